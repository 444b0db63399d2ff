/*
  A bundle.lock, checked as far as the build relies on it.

  Type: Path -> Lock
  Example: lock ./examples/hello-world/bundle.lock => { name = "hello-world"; … }
*/
let
  inherit (builtins)
    attrNames
    concatStringsSep
    filter
    fromJSON
    head
    readFile
    toString
    ;
  keys = [
    "artifacts"
    "name"
    "platforms"
    "projects"
    "python"
    "system"
    "toolchain"
    "version"
  ];
in
file:
let
  lock = fromJSON (readFile file);
  format = toString (lock.format or "none");
  missing = filter (key: !(lock ? ${key})) keys;
  wanted = platform: throw "${toString file}: 'platforms' has ${concatStringsSep ", " (attrNames lock.platforms)}, not ${platform}; run 'agentix lock'";
  artifact =
    name: lock.artifacts.${name} or (throw "${toString file}: 'artifacts' does not have ${name}; run 'agentix lock'");
in
if format != "1" then
  throw "${toString file}: 'format' is ${format}, this Agentix reads 1; run 'agentix lock'"
else if missing != [ ] then
  throw "${toString file}: '${head missing}' is missing; run 'agentix lock'"
else
  lock
  // {
    # The locked value for a platform, and a named artifact with its own name in it.
    platform = platform: lock.platforms.${platform} or (wanted platform);
    artifact = name: artifact name // { file = name; };
  }
