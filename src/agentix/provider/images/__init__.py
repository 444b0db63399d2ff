"""Task images as files: archives and folders, read without trusting them, and unpacked once."""
