/*
  A Python environment: the union of installed wheels, and an interpreter that keeps the
  environment variables of its children as they were.

  Type: { … } -> { wheels : [Derivation], linked ? Derivation } -> Derivation
  `linked` has some of the wheels in another way, see linked.nix. Of a file that two wheels disagree on, the later wheel's is taken, with a warning.
  Example: environment { wheels = [ aiohttp yarl ]; } => "/nix/store/…-environment"
*/
{
  busybox,
  python,
  step,
  toolchain,
  ...
}:
{
  wheels,
  linked ? null,
}:
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
  ++ wheels
  ++ (if linked == null then [ ] else [ linked ]);
  config = {
    inherit
      busybox
      linked
      python
      toolchain
      wheels
      ;
  };
}
