"""A module of a folder that has two names."""

FOUND = __name__
