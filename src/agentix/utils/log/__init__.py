"""Logging on both sides."""
