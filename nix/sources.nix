/*
  The source trees of a lock's projects, as store paths that depend on their content only.

  `listed` takes exactly the files that a plan names. `found` takes what lies in a project's
  folder, less the folders of other projects, the lock and what builds leave behind; in a flake,
  where Git chose the files, both give the same path.

  Type: { listed : { root : String, files : [String] } -> Path;
          found : { root : Path, projects : [{ name, path }] } -> { <name> = Path; } }
  Example: listed { root = "/home/me/hello"; files = [ "pyproject.toml" "hello.py" ]; }
*/
let
  inherit (builtins)
    any
    attrNames
    concatMap
    dirOf
    elem
    filter
    listToAttrs
    map
    match
    path
    readDir
    stringLength
    substring
    ;

  below = folder: file: substring 0 (stringLength folder + 1) file == "${folder}/";
  relative = root: file: substring (stringLength root + 1) (stringLength file) file;

  # Every file, and every folder on the way to it, as keys of one set.
  parents = file: if file == "." then [ ] else [ file ] ++ parents (dirOf file);
  admitted =
    files:
    listToAttrs (
      map (name: {
        inherit name;
        value = null;
      }) (concatMap parents files)
    );

  listed =
    { root, files }:
    let
      known = admitted files;
    in
    path {
      name = "source";
      path = root;
      filter = file: _: known ? ${relative (toString root) file};
    };

  # What builds leave at the top of a project, and the lock itself.
  residue =
    name:
    elem name [
      ".venv"
      "build"
      "bundle.lock"
      "dist"
    ]
    || match "result(-.*)?" name != null;

  found =
    { root, projects }:
    let
      folder = project: toString (root + "/${project.path}");
      source =
        project:
        let
          own = folder project;
          others = filter (other: below own other) (map folder projects);
          # Git keeps no empty folders; leaving out a project must not make one.
          admits =
            file:
            !(residue (relative own file))
            && !(elem file others)
            && (!(any (below file) others) || any (name: admits "${file}/${name}") (attrNames (readDir file)));
        in
        {
          inherit (project) name;
          value = path {
            name = "source";
            path = root + "/${project.path}";
            filter = file: _: admits file;
          };
        };
    in
    listToAttrs (map source projects);
in
{
  inherit listed found;
}
