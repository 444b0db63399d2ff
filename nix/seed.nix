/*
  A static program that every build starts from, as the folder that `agentix fetch` added.

  There is nothing to run before the seeds exist, so a missing one fails on a builder whose
  name says what to do.

  Type: { system } -> { store, sha256 : String, ... } -> Derivation
  Example: seed pins."linux/amd64".busybox => "/nix/store/…-busybox" (with bin/busybox)
*/
{ system }:
{ store, sha256, ... }:
derivation {
  name = store;
  inherit system;
  builder = "/${store} is not in the Nix store, run agentix fetch, looking for a builder";
  outputHashMode = "recursive";
  outputHashAlgo = "sha256";
  outputHash = sha256;
  allowSubstitutes = false;
  preferLocalBuild = true;
}
