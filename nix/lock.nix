/*
  A bundle.lock, checked as far as builds rely on it, with ways to look things up in it.

  Type: Path -> Lock, with platform : String -> { wheels, system } and
        artifact : String -> { file, package, version, sha256, … }
  Example: (readLock ./bundle.lock).artifact "six-1.17.0-py3-none-any.whl"
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
    "system"
    "toolchain"
    "version"
  ];
in
file:
let
  lock = fromJSON (readFile file);
  refuse = reason: throw "${toString file}: ${reason}; run 'agentix lock'";
  format = toString (lock.format or "missing");
  missing = filter (key: !(lock ? ${key})) keys;
  names = set: concatStringsSep ", " (attrNames set);
in
if format != "1" then
  refuse "'format' is ${format}, and this Agentix reads 1"
else if missing != [ ] then
  refuse "'${head missing}' is missing"
else
  lock
  // {
    platform =
      platform:
      let
        chosen =
          lock.platforms.${platform}
            or (refuse "'platforms' has ${names lock.platforms}, not ${platform}");
        reason = chosen.missing or null;
      in
      if reason == null then chosen else refuse "there is no bundle for ${platform}: ${reason}";
    artifact =
      name:
      lock.artifacts.${name} or (refuse "'artifacts' does not have ${name}") // { file = name; };
  }
