/*
  Programs from Debian packages, relocated like the toolchain, whose C library they use.

  Type: { … } -> { declared : [String], packages : [{ package, archive }] } -> Derivation
  The programs of the declared packages are in bin/, the rest is what they need to run. Of one name
  that two have, the package declared first has it.

  A derivation can use them, too: `PATH = "${tools}/bin"` gives it a compiler when "gcc" and
  "binutils" are declared, with the headers of whatever "-dev" packages are. What gcc makes runs with
  the toolchain's loader and C library (see compiler.py). What a program finds by an alias, as git
  its templates and perl its modules, is there in bundles only (see paths.py).

  `packages` is the closure that `lock_system_tools` gives for those names.
  Example: tools { declared = [ "jq" ]; … } => "/nix/store/…-tools" (with bin/jq)
*/
{
  busybox,
  loader,
  multiarch,
  patchelf,
  python,
  shell,
  step,
  toolchain,
  ...
}:
{ declared, packages }:
step {
  name = "tools";
  scripts = [
    "tools.py"
    "alternatives.py"
    "bytecode.py"
    "compiler.py"
    "elf.py"
    "licences.py"
    "needs.py"
    "needs.toml"
    "paths.py"
    "scripts.py"
    "step.py"
    "tree.py"
  ];
  allowedReferences = [
    "out"
    shell
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
      python
      shell
      toolchain
      ;
  };
}
