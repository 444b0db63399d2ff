/*
  The nixpkgs that flake.lock pins, for what asks for `pkgs`; fetched when something first looks
  into it, and never otherwise.

  Type: Path
  Example: import ./nixpkgs.nix => "/nix/store/…-source"
*/
let
  inherit (builtins) fetchTarball fromJSON readFile;
  pin = (fromJSON (readFile ../flake.lock)).nodes.nixpkgs.locked;
in
fetchTarball {
  url = "https://github.com/${pin.owner}/${pin.repo}/archive/${pin.rev}.tar.gz";
  sha256 = pin.narHash;
}
