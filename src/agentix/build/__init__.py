"""From a project to its bundle.

``project`` reads it, ``lock`` decides what its bundle is made of, ``fetch`` brings that into the
Nix store, ``plan`` says what Nix is to build, and ``realise`` goes all the way to the tar.
"""
