# The compiler of a lock, for the machine that this is evaluated on.
{ lock, platform }:
let
  library = import ../../nix { system = builtins.currentSystem; };
in
(library.locked {
  inherit platform;
  lock = library.readLock (/. + lock);
  sources = { };
}).compiler
