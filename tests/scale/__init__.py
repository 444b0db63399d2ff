"""Many sandboxes at once, and many that are not wanted any more while they are being made."""
