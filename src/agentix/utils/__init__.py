"""What runs on both sides of a remote call: logging, tracing, and the context that calls carry."""
