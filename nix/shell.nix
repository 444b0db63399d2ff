/*
  A shell with what contributors need beside Nix: what `make setup` and the tests look for.

  Type: { pkgs } -> Derivation
  Example: nix develop .#shell
*/
{ pkgs }:
pkgs.mkShellNoCC {
  packages = [
    pkgs.bubblewrap
    pkgs.git
    pkgs.gnumake
    pkgs.gnupg
    pkgs.python3
    pkgs.skopeo
    pkgs.uv
  ];
}
