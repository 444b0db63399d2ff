"""The providers as subjects of the conformance suite, with images made for tests."""
