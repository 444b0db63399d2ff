{
  description = "Turn a Python project into a reproducible bundle and call its functions inside any sandbox";

  # Pinned for projects that ask for it and for the shell; no output here fetches it otherwise.
  inputs.nixpkgs.url = "github:nixos/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      inherit (builtins) listToAttrs map;
      forSystems =
        f:
        listToAttrs (
          map
            (system: {
              name = system;
              value = f (import ./nix { inherit system; }) system;
            })
            [
              "x86_64-linux"
              "aarch64-linux"
            ]
        );
    in
    {
      # For flakes of one's own: mkBundle { system = "x86_64-linux"; src = ./.; }
      lib.mkBundle =
        { system, ... }@args:
        (import ./nix { inherit nixpkgs system; }).mkBundle (removeAttrs args [ "system" ]);

      packages = forSystems (
        library: _:
        let
          bundle = library.mkBundle { src = ./examples/hello-world; };
        in
        {
          inherit bundle;
          default = bundle;
        }
      );

      checks = forSystems (library: _: { nix = import ./nix/tests/check.nix { inherit library; }; });

      # Not in devShells: to check those, `nix flake check` would have to fetch nixpkgs.
      legacyPackages = forSystems (
        library: system: { shell = library.shell { pkgs = nixpkgs.legacyPackages.${system}; }; }
      );
    };
}
