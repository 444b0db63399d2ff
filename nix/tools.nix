/*
  Programs from Debian packages, relocated like the toolchain, whose C library they use.

  Type: { … } -> { declared : [String], packages : [{ package, archive }] } -> Derivation
  Only the declared packages' programs are in bin/; the rest is what they need to run.
  Example: tools { declared = [ "jq" ]; … } => "/nix/store/…-tools" (with bin/jq)
*/
{
  busybox,
  loader,
  multiarch,
  patchelf,
  step,
  toolchain,
  ...
}:
{ declared, packages }:
step {
  name = "tools";
  scripts = [
    "tools.py"
    "elf.py"
    "licences.py"
    "step.py"
  ];
  allowedReferences = [
    "out"
    toolchain
  ];
  config = {
    inherit
      busybox
      declared
      loader
      multiarch
      packages
      patchelf
      toolchain
      ;
  };
}
