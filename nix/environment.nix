/*
  A Python environment: the union of installed wheels, and an interpreter that keeps the
  environment variables of its children as they were.

  Type: { … } -> { wheels : [Derivation] } -> Derivation
  Of a file that two wheels disagree on, the later wheel's is taken, with a warning.
  Example: environment { wheels = [ aiohttp yarl ]; } => "/nix/store/…-environment"
*/
{
  busybox,
  python,
  step,
  toolchain,
  ...
}:
{ wheels }:
step {
  name = "environment";
  scripts = [
    "environment.py"
    "launcher.py"
    "step.py"
  ];
  allowedReferences = [
    "out"
    busybox
    toolchain
  ]
  ++ wheels;
  config = {
    inherit
      busybox
      python
      toolchain
      wheels
      ;
  };
}
