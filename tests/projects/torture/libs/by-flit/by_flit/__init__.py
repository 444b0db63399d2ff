"""A project that flit builds, which imports or reads it for its version."""

__version__ = "4.5"
