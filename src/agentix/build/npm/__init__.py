"""The npm registry, as its user has configured it: which releases there are, and their files."""
