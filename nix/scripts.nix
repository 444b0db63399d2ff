/*
  Some of the scripts of builders/, as a folder of the store.

  Only these are inputs of what runs them, so that a change in one script rebuilds no more than it
  must.

  Type: [String] -> Path
  Example: scripts [ "bundle.py" "step.py" ] => "/nix/store/…-builders"
*/
let
  inherit (builtins) baseNameOf elem path;
in
names:
path {
  name = "builders";
  path = ./builders;
  filter = file: _: elem (baseNameOf file) names;
}
