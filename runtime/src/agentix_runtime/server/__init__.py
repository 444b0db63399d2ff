"""The server process: listens, keeps a worker, and collects every process that ends."""
