/*
  What builds for one platform with one pinned toolchain need.

  Type: { system, host, artifact, seeds, helpers } -> { pin, platform } ->
        { toolchain, busybox : Derivation; wheel, project, environment, tools, bundle : function; }
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
  inherit (seeds platform) busybox;
  inherit (pin) python;
in
{
  inherit busybox toolchain;
  wheel = import ./wheel.nix {
    inherit
      loader
      patchelf
      python
      step
      toolchain
      ;
    inherit (helpers) installer;
  };
  project = import ./project.nix {
    inherit native platform step;
    hooks = helpers.pyproject-hooks;
  };
  environment = import ./environment.nix {
    inherit
      busybox
      python
      step
      toolchain
      ;
  };
  tools = import ./tools.nix {
    inherit
      loader
      multiarch
      patchelf
      step
      toolchain
      ;
    inherit (seeds host) busybox;
  };
  bundle = import ./bundle.nix {
    inherit
      busybox
      platform
      python
      step
      toolchain
      ;
  };
}
