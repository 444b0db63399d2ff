"""A second top package, of which an entry point names a class."""


class Second:
    """What the second entry point leads to."""
