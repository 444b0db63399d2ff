/*
  A wheel, installed into a prefix of its own: modules, byte code, scripts and data.

  Console scripts keep the placeholder interpreter "#!python"; the environment that takes the
  wheel gives them its own.

  Type: { … } -> { package, version : String, wheel : Path, file ? String } -> Derivation
  `wheel` is the file that its index calls `file`, or a folder with one wheel.
  Example: wheel { package = "six"; version = "1.17.0"; file = "six-1.17.0-py3-none-any.whl"; … }
*/
{
  installer,
  loader,
  patchelf,
  python,
  step,
  toolchain,
  ...
}:
let
  storeName = import ./store-name.nix;
in
{
  package,
  version,
  wheel,
  file ? "",
}:
step {
  name = storeName "${package}-${version}";
  scripts = [
    "wheel.py"
    "bytecode.py"
    "debug.py"
    "elf.py"
    "graft.py"
    "patch.py"
    "step.py"
  ];
  allowedReferences = [
    "out"
    toolchain
  ];
  config = {
    inherit
      file
      installer
      loader
      patchelf
      python
      toolchain
      wheel
      ;
  };
}
