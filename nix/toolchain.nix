/*
  A complete, relocated CPython with its C libraries, from pinned Debian packages.

  Nothing of the target is executed: programs run on the build machine, whose own toolchain
  of the same name byte-compiles (for the build machine's platform that is the new one itself).

  Type: { system, artifact, busybox, patchelf } -> { pin, platform, python ? null } -> Derivation
  Example: toolchain { pin = fromJSON (readFile ./toolchains/debian-12.json); platform = "linux/amd64"; }
*/
{
  system,
  artifact,
  busybox,
  patchelf,
}:
let
  inherit (builtins) map toJSON;
  platforms = import ./platforms.nix;
  builders = import ./scripts.nix [
    "bytecode.py"
    "elf.py"
    "licences.py"
    "step.py"
    "toolchain.py"
    "toolchain.sh"
  ];
in
{
  pin,
  platform,
  python ? null,
}:
let
  packages =
    pin.packages.${platform}
      or (throw "nix/toolchains/${pin.name}.json has no packages for ${platform}");
  inherit (platforms.${platform}) multiarch loader;
in
derivation {
  name = "${pin.name}-python-${pin.python}";
  inherit
    system
    builders
    busybox
    patchelf
    python
    multiarch
    loader
    ;
  version = pin.python;
  builder = "${busybox}/bin/busybox";
  args = [
    "sh"
    "${builders}/toolchain.sh"
  ];
  debs = map artifact packages;
  config = toJSON {
    inherit (pin) name python glibc;
    inherit patchelf;
    packages = map (p: { inherit (p) package version; }) packages;
  };
  passAsFile = [ "config" ];
  allowedReferences = [ "out" ];
  LC_ALL = "C.UTF-8";
  PYTHONHASHSEED = "0";
  PYTHONUTF8 = "1";
  allowSubstitutes = false;
  preferLocalBuild = true;
}
