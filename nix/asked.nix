/*
  What a Nix file of a project or a plugin gives: derivations or folders of its own, one, or several
  in a list or a set.

  The file may be a function; it is given what it asks for, and nothing else is evaluated.

  Type: { pkgs : Set, agentix : Set } -> { file : Path, name : String } -> [Derivation | String]
  Example: asked { inherit pkgs agentix; } { file = ./default.nix; name = "default.nix"; } => [ hello ]
*/
offered:
{ file, name }:
let
  inherit (builtins)
    attrNames
    attrValues
    baseNameOf
    concatMap
    concatStringsSep
    filter
    functionArgs
    intersectAttrs
    isAttrs
    isFunction
    isList
    path
    typeOf
    ;
  storeName = import ./store-name.nix;
  value = import file;
  arguments = if isFunction value then functionArgs value else { };
  unknown = filter (argument: !(offered ? ${argument} || arguments.${argument})) (
    attrNames arguments
  );
  given =
    if !(isFunction value) then
      value
    else if unknown != [ ] then
      throw "${name} asks for ${concatStringsSep ", " unknown}; it may ask for ${concatStringsSep ", " (attrNames offered)}"
    else
      value (intersectAttrs arguments offered);
  derivations =
    found:
    if isAttrs found && found.type or null == "derivation" then
      [ found ]
    else if isList found then
      concatMap derivations found
    else if isAttrs found then
      concatMap derivations (attrValues found)
    else if typeOf found == "path" then
      [
        (path {
          path = found;
          name = storeName (baseNameOf found);
        })
      ]
    else
      throw "${name} gives a ${typeOf found}; it must give derivations or folders, in a list or a set";
in
derivations given
