"""Another."""
