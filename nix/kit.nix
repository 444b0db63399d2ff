/*
  What builds for one platform with one pinned toolchain need.

  Type: { system, host, artifact, seeds, helpers } -> { pin, platform } ->
        { toolchain, busybox : Derivation;
          wheel, project, environment, linked, tools, npm, bundle : function; }
  Everything runs on the build machine, whose platform is `host`.
  Example: (kit { pin = pin "debian-12"; platform = "linux/arm64"; }).wheel { … }
*/
{
  system,
  host,
  artifact,
  seeds,
  helpers,
}:
{ pin, platform }:
let
  platforms = import ./platforms.nix;
  inherit (platforms.${platform}) loader multiarch;
  inherit (seeds host) patchelf;
  native = platform == host;

  relocated = import ./toolchain.nix {
    inherit artifact patchelf system;
    inherit (seeds host) busybox;
  };
  # The build machine's own interpreter, of the same minor version, runs every script.
  interpreter = relocated {
    inherit pin;
    platform = host;
  };
  toolchain =
    if native then
      interpreter
    else
      relocated {
        inherit pin platform;
        python = interpreter;
      };
  step = import ./step.nix {
    inherit system;
    python = interpreter;
  };
  target = {
    inherit
      loader
      multiarch
      patchelf
      platform
      step
      toolchain
      ;
    inherit (pin) python;
    inherit (seeds platform) busybox;
  };
in
{
  inherit (target) busybox toolchain;
  wheel = import ./wheel.nix (target // { inherit (helpers) installer; });
  project = import ./project.nix (
    target
    // {
      inherit native;
      hooks = helpers.pyproject-hooks;
    }
  );
  environment = import ./environment.nix target;
  linked = import ./linked.nix target;
  tools = import ./tools.nix (
    target
    // {
      inherit (seeds host) busybox;
      shell = target.busybox;
    }
  );
  npm = import ./npm.nix target;
  bundle = import ./bundle.nix target;
}
