"""Tests of pushing and pulling bundles."""
