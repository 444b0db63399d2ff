/*
  The bundle that a plan.json of `agentix build` describes.

  Type: { plan : String, system ? String } -> Derivation
  Example: nix-build nix/build.nix --argstr plan /tmp/plan.json
*/
{
  plan,
  system ? builtins.currentSystem,
}:
let
  inherit (builtins) fromJSON mapAttrs readFile;
  given = fromJSON (readFile plan);
  # Another nixpkgs than the pinned one, where the plan names it; with null there is to be none.
  nixpkgs =
    if !(given ? nixpkgs) then
      { }
    else if given.nixpkgs == null then
      { nixpkgs = throw "nixpkgs would have to be fetched"; }
    else
      { inherit (given) nixpkgs; };
  library = import ./. ({ inherit system; } // nixpkgs);
  inherit (given)
    lock
    name
    platform
    sources
    ;
in
(library.locked {
  inherit name platform;
  lock = library.readLock lock;
  sources = mapAttrs (_: library.sources.listed) sources;
}).bundle
