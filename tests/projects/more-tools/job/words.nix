"hello from Nix,"
