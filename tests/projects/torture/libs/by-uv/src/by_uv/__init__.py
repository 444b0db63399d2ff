"""A project whose backend is a native program."""

FOUND = "by_uv"
