# A toolchain by name and platform, for the tests.
{
  name,
  platform,
  system ? builtins.currentSystem,
}:
let
  library = import ../../nix { inherit system; };
in
(library.kit {
  pin = library.pin name;
  inherit platform;
}).toolchain
