/*
  The root of a bundle: `runtime/`, which sandboxes start, and `info.json` about all of it.

  Type: { … } -> { environment, project : Derivation, tools : Derivation | null,
                   npm, nix ? [ ] : [Derivation],
                   about : { name, version, packages, tools, base, plugins ? { } } } -> Derivation
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
  npm ? [ ],
  nix ? [ ],
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
  ++ npm
  ++ nix
  ++ (if tools == null then [ ] else [ tools ]);
  config = {
    inherit
      about
      busybox
      environment
      nix
      npm
      platform
      project
      python
      toolchain
      tools
      ;
  };
}
