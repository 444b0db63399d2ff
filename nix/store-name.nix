/*
  The store name of a file: every character that Nix does not admit becomes "-".

  `agentix fetch` adds artifacts under the same names; the two rules must agree.

  Type: String -> String
  Example: storeName "libc6_1%3a2.36_amd64.deb" => "libc6_1-3a2.36_amd64.deb"
*/
let
  inherit (builtins)
    concatStringsSep
    genList
    match
    stringLength
    substring
    ;
  admit = c: if match "[0-9A-Za-z+._?=-]" c == null then "-" else c;
in
name:
if match "[0-9A-Za-z+._?=-]*" name != null then
  name
else
  concatStringsSep "" (genList (i: admit (substring i 1 name)) (stringLength name))
