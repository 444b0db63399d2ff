/*
  A source tree, built into one wheel by its own PEP 517 backend.

  Type: { … } -> { name, version : String, source : Path, path ? String, backend : Derivation,
                   compiler ? Derivation } -> Derivation
  `source` is a folder or a source archive, `path` the folder of the project in it. `backend` is an
  environment of the build machine with the locked build requirements, `compiler` its tools with a
  gcc that compiles for the platform. Without one only a pure wheel can be built for another platform
  than the build machine's.
  Example: project { name = "hello-world"; … } => "/nix/store/…" (a folder with one .whl)
*/
{
  hooks,
  multiarch,
  native,
  platform,
  python,
  step,
  toolchain,
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
  compiler ? null,
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
    compiler =
      if compiler == null then
        null
      else
        {
          inherit multiarch python toolchain;
          tools = compiler;
        };
  };
}
