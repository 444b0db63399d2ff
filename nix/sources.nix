/*
  The source trees of a lock's projects, as store paths that depend on their content only.

  `listed` takes exactly the files that a plan names. `found` takes what lies in a project's
  folder, less the folders of other projects and the lock. In a flake Git chose the files, so both
  give the same path; outside of Git whatever lies there belongs. A project whose path leads out of
  `root`, where a flake may not look, is taken from `elsewhere`, if it is there.

  Type: { listed : { root : String, files : [String] } -> Path;
          found : { root : Path, projects : [{ name, path }], elsewhere ? { <name> = Path; } } ->
                  { <name> = Path; } }
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

  found =
    {
      root,
      projects,
      elsewhere ? { },
    }:
    let
      tree =
        { name, path, ... }:
        if substring 0 2 path == ".." && elsewhere ? ${name} then
          elsewhere.${name}
        else
          root + "/${path}";
      folder = project: toString (tree project);
      source =
        project:
        let
          own = folder project;
          others = filter (other: below own other) (map folder projects);
          # Git keeps no empty folders; leaving out a project must not make one.
          admits =
            file:
            relative own file != "bundle.lock"
            && !(elem file others)
            && (!(any (below file) others) || any (name: admits "${file}/${name}") (attrNames (readDir file)));
        in
        {
          inherit (project) name;
          value = path {
            name = "source";
            path = tree project;
            filter = file: _: admits file;
          };
        };
    in
    listToAttrs (map source projects);
in
{
  inherit listed found;
}
