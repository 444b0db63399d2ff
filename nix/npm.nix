/*
  A command-line tool from npm: its packages laid out for Node, its native programs relocated like
  the toolchain, whose C library they use.

  Type: { … } -> { name : String, packages : { <path> = Path; }, programs : { <name> = String; },
                   node : Path | null } -> Derivation
  The paths are those of the lock, below the tool; `node` has bin/node, for programs that Node runs.
  Example: npm { name = "esbuild-0.28.2"; … } => "/nix/store/…-esbuild-0.28.2" (with bin/esbuild)
*/
{
  loader,
  patchelf,
  platform,
  step,
  toolchain,
  ...
}:
let
  inherit (builtins) replaceStrings;
  storeName = import ./store-name.nix;
  # As their tarballs are called here; no store name begins with what a scope begins with.
  file = replaceStrings [ "@" "/" ] [ "" "+" ];
in
{
  name,
  packages,
  programs,
  node,
}:
step {
  name = storeName (file name);
  scripts = [
    "npm.py"
    "elf.py"
    "graft.py"
    "patch.py"
    "licences.py"
    "step.py"
  ];
  allowedReferences = [
    "out"
    toolchain
  ]
  ++ (if node == null then [ ] else [ node ]);
  config = {
    inherit
      loader
      name
      node
      packages
      patchelf
      platform
      programs
      toolchain
      ;
  };
}
