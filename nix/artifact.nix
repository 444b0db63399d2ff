/*
  A file that `agentix fetch` put into the store, named by its name and sha256; or the tree of a
  Git commit.

  Nix never downloads it: the derivation only names the path, and building it means that the
  file is missing.

  Type: { system, busybox } -> { file, sha256 : String, commit ? String, ... } -> Derivation
  Example: artifact { file = "six-1.17.0-py2.py3-none-any.whl"; sha256 = "4721f3…"; }
*/
{ system, busybox }:
let
  storeName = import ./store-name.nix;
in
{
  file,
  sha256,
  commit ? null,
  ...
}:
derivation {
  name = storeName file;
  inherit system file;
  builder = "${busybox}/bin/busybox";
  args = [
    "sh"
    "-c"
    "echo \"$file is not in the Nix store; run 'agentix fetch' to get it\"; exit 1"
  ];
  outputHashMode = if commit == null then "flat" else "recursive";
  outputHashAlgo = "sha256";
  outputHash = sha256;
  allowSubstitutes = false;
  preferLocalBuild = true;
}
