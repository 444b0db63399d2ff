/*
  A derivation that hands one value to one script of builders/, run by the toolchain's Python.

  The first of `scripts` runs; the others are modules that it imports.

  Type: { system, python : Derivation } -> { name, scripts, config, ... } -> Derivation
  Example: step { name = "hello"; scripts = [ "bundle.py" "step.py" ]; config = { … }; }
*/
{ system, python }:
let
  inherit (builtins) head toJSON;
in
{
  name,
  scripts,
  config,
  allowedReferences,
}:
derivation {
  inherit name system allowedReferences;
  builder = "${python}/bin/python3";
  args = [
    "-s"
    "-S"
    "-B"
    "${import ./scripts.nix scripts}/${head scripts}"
  ];
  config = toJSON config;
  passAsFile = [ "config" ];
  # Nix starts a builder by its bare name; Python looks for itself on PATH.
  PATH = "${python}/bin";
  LC_ALL = "C.UTF-8";
  PYTHONHASHSEED = "0";
  PYTHONUTF8 = "1";
  SOURCE_DATE_EPOCH = "315532800";
  allowSubstitutes = false;
  preferLocalBuild = true;
}
