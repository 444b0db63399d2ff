"""What runs inside a sandbox: a server for the host to talk to, a worker for its functions."""
