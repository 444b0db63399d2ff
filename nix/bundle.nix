/*
  The root of a bundle: `runtime/`, which sandboxes start, and `info.json` about all of it.

  Type: { … } -> { environment, project : Derivation, tools : Derivation | null,
                   about : { name, version, packages, tools, base } } -> Derivation
  Example: bundle { … } => "/nix/store/…-bundle" (with runtime/bootstrap.sh)
*/
{
  busybox,
  platform,
  python,
  step,
  toolchain,
  ...
}:
{
  environment,
  project,
  tools,
  about,
}:
step {
  name = "bundle";
  scripts = [
    "bundle.py"
    "launcher.py"
    "licences.py"
    "step.py"
  ];
  allowedReferences = [
    busybox
    environment
    toolchain
  ]
  ++ (if tools == null then [ ] else [ tools ]);
  config = {
    inherit
      about
      busybox
      environment
      platform
      project
      python
      toolchain
      tools
      ;
  };
}
