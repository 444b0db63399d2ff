"""A module in it."""

FOUND = "dist/x.py"
