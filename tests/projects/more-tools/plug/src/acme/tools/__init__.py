"""A plugin that must not be imported to know what it needs."""

raise SystemExit("it was imported")
