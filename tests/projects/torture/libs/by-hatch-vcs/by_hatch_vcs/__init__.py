"""A project whose version is in the history of its repository."""
