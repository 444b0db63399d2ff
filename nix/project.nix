/*
  A source tree, built into one wheel by its own PEP 517 backend.

  Type: { … } -> { name, version : String, source : Path, path ? String, backend : Derivation } ->
        Derivation
  `source` is a folder or a source archive, `path` the folder of the project in it.
  `backend` is an environment of the build machine with the locked build requirements. For
  another platform than the build machine's, only a pure wheel will do.
  Example: project { name = "hello-world"; … } => "/nix/store/…" (a folder with one .whl)
*/
{
  hooks,
  native,
  platform,
  step,
  ...
}:
let
  storeName = import ./store-name.nix;
in
{
  name,
  version,
  source,
  path ? ".",
  backend,
}:
step {
  name = storeName "${name}-${version}-wheel";
  scripts = [
    "project.py"
    "step.py"
  ];
  allowedReferences = [ ];
  config = {
    inherit
      backend
      hooks
      name
      native
      path
      platform
      source
      version
      ;
  };
}
