/*
  The index: every function of the library, for builds that run on `system`.

  Type: { system : String, pins ? Path, nixpkgs ? Path } ->
        { artifact, kit, locked, readLock, sources, … }
  `nixpkgs` is looked into only for what asks for `pkgs`.
  Example: (import ./nix { system = "x86_64-linux"; }).mkBundle { src = ./examples/hello-world; }
*/
{
  system,
  pins ? ./toolchains,
  nixpkgs ? import ./nixpkgs.nix,
}:
let
  inherit (builtins)
    attrNames
    concatStringsSep
    filter
    fromJSON
    head
    listToAttrs
    map
    mapAttrs
    pathExists
    readFile
    ;

  platforms = import ./platforms.nix;
  supported = attrNames platforms;
  matching = filter (name: platforms.${name}.nix == system) supported;
  host =
    if matching == [ ] then
      throw "bundles are not built on ${system}, only on ${
        concatStringsSep " and " (map (name: platforms.${name}.nix) supported)
      }"
    else
      head matching;

  seedPins = fromJSON (readFile (pins + "/seeds.json"));
  seeds = platform: mapAttrs (_: import ./seed.nix { inherit system; }) seedPins.programs.${platform};
  artifact = import ./artifact.nix {
    inherit system;
    inherit (seeds host) busybox;
  };
  helpers = listToAttrs (
    map (wheel: {
      name = wheel.package;
      value = artifact wheel;
    }) seedPins.wheels
  );
  pin =
    name:
    let
      file = pins + "/${name}.json";
    in
    if pathExists file then
      fromJSON (readFile file)
    else
      throw "the lock names the toolchain '${name}', which this Agentix does not have; run 'agentix lock'";

  # nixpkgs is imported for the bundle's platform: its binaries come from its cache.
  asked =
    { kit, platform }:
    import ./asked.nix {
      agentix = library // {
        inherit platform;
        target = kit;
      };
      pkgs = import nixpkgs {
        system = platforms.${platform}.nix;
        config.allowUnfree = true;
        overlays = [ ];
      };
    };

  kit = import ./kit.nix {
    inherit
      artifact
      helpers
      host
      seeds
      system
      ;
  };
  locked = import ./locked.nix {
    inherit
      artifact
      asked
      host
      kit
      pin
      ;
    inherit (seedPins) programs;
  };
  readLock = import ./lock.nix;
  sources = import ./sources.nix;
  # A lock that was made with this checkout names it by where it was then.
  checkout =
    if pathExists ../runtime then
      {
        agentix = ../.;
        agentix-runtime = ../runtime;
      }
    else
      { };
  library = {
    inherit
      artifact
      host
      kit
      locked
      pin
      platforms
      readLock
      seeds
      sources
      system
      ;
    shell = import ./shell.nix;
    storeName = import ./store-name.nix;
    mkBundle =
      {
        src,
        lock ? src + "/bundle.lock",
        platform ? host,
        elsewhere ? checkout,
      }:
      let
        read = readLock lock;
      in
      (locked {
        lock = read;
        inherit platform;
        sources = sources.found {
          root = src;
          inherit elsewhere;
          inherit (read) projects;
        };
      }).bundle;
  };
in
library
