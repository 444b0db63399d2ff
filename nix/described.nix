/*
  What a derivation of a Nix file says of itself, as the manifest tells it of every tool.

  Licences are SPDX's names where nixpkgs has those, else its own.

  Type: Derivation -> { package, version, kind : String, licences : [String] }
  Example: described pkgs.hello => { package = "hello"; version = "2.12.2"; kind = "nix"; … }
*/
let
  inherit (builtins)
    filter
    isList
    isString
    map
    match
    parseDrvName
    ;
  plain = text: isString text && match "[!-~]([ -~]{0,118}[!-~])?" text != null;
  named = licence: licence.spdxId or licence.shortName or licence.fullName or licence;
in
derivation:
let
  parsed = parseDrvName derivation.name;
  version = derivation.version or parsed.version;
  licence = derivation.meta.license or [ ];
in
{
  package = derivation.pname or parsed.name;
  version = if version == "" then "unknown" else version;
  kind = "nix";
  licences = filter plain (map named (if isList licence then licence else [ licence ]));
}
