"""Build one project in places that have little in common, and compare the bundles."""
