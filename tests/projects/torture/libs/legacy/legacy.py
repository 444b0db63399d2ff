"""A tree with nothing but a setup.py."""

FOUND = "legacy"
