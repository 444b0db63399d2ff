/*
  Wheels that lack libraries, pointed at those of the declared system packages that have them.

  Type: { … } -> { wheels : [Derivation], tools : Derivation } -> Derivation
  A folder with a prefix for each of the wheels that are changed, for `environment`.
  Example: linked { wheels = [ opencv-python ]; tools = tools { declared = [ "libgl1" ]; … }; }
*/
{
  multiarch,
  patchelf,
  step,
  toolchain,
  ...
}:
{ wheels, tools }:
step {
  name = "linked";
  scripts = [
    "linked.py"
    "elf.py"
    "graft.py"
    "patch.py"
    "environment.py"
    "launcher.py"
    "step.py"
  ];
  allowedReferences = [
    "out"
    toolchain
    tools
  ];
  config = {
    inherit
      multiarch
      patchelf
      tools
      wheels
      ;
  };
}
