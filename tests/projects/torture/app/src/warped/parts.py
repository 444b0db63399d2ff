"""What the first entry point leads to."""


class First:
    """A class, found by the name of its entry point."""
