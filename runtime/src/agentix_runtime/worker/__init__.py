"""The worker process: the only one that runs the user's code."""
