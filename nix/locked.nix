/*
  Everything that a lock names, built for one platform, and the bundle of it.

  Type: { host, artifact, pin, kit, programs, asked : { kit, platform } -> … (asked.nix) } ->
        { lock : Lock, platform, sources : { <project> = Path; }, name ? lock.name } ->
        { bundle, compiler, environment, toolchain : Derivation; }
  Example: (locked { lock = readLock ./bundle.lock; platform = "linux/amd64"; … }).bundle
*/
{
  host,
  artifact,
  pin,
  kit,
  programs,
  asked,
}:
let
  inherit (builtins)
    attrNames
    attrValues
    concatMap
    filter
    head
    isAttrs
    listToAttrs
    map
    mapAttrs
    replaceStrings
    ;
  platforms = import ./platforms.nix;
  gnu = replaceStrings [ "_" ] [ "-" ];  # as Debian calls its cross compilers
  # What is known of a locked or pinned artifact, as the manifest tells it.
  known = artifact: {
    inherit (artifact)
      file
      package
      sha256
      version
      ;
    size = artifact.size or null;
  };
  described = import ./described.nix;
  # Of this one only the program is at hand, without the text of its licence.
  shell = platform: known programs.${platform}.busybox.artifact // { licences = [ "GPL-2" ]; };
in
{
  lock,
  platform,
  sources,
  name ? lock.name,
}:
let
  pinned = pin lock.toolchain;
  target = kit {
    pin = pinned;
    inherit platform;
  };
  # Build backends run now, on this machine.
  here = kit {
    pin = pinned;
    platform = host;
  };

  chosen = lock.platform platform;
  install =
    kit: file:
    let
      locked = lock.artifact file;
    in
    kit.wheel {
      inherit (locked) package version;
      inherit file;
      wheel = artifact locked;
    };
  # What is built into a wheel: the projects, and releases that have none, whose sources are files
  # of the lock.
  project =
    locked:
    locked
    // {
      path = ".";
      source =
        sources.${locked.name} or (throw "there are no sources for the project '${locked.name}'");
    };
  release =
    file:
    let
      locked = lock.artifact file;
    in
    {
      inherit (locked) package version;
      inherit file;
      name = locked.package;
      path = ".";
    }
    // head (filter (locked: locked.source == file) (lock.releases or [ ]))
    // {
      source = artifact locked;
    };
  made =
    project:
    let
      backend = project.backend.${host} or (throw
        "the lock has no build backend of '${project.name}' for ${host}; run 'agentix lock'"
      );
    in
    target.project {
      inherit (project)
        name
        path
        source
        version
        ;
      backend = here.environment { wheels = map (install here) backend; };
      compiler = if project.compiled or false then compiler else null;
    };
  # Runs on this machine, and makes programs for the platform.
  compiler = here.tools {
    declared =
      let
        prefix = if platform == host then "" else "-${gnu platforms.${platform}.multiarch}";
      in
      map (name: name + prefix) [
        "binutils"
        "g++"
        "gcc"
      ]
      ++ lock.build or [ ];
    packages = map (
      file:
      let
        deb = lock.artifact file;
      in
      {
        inherit (deb) package;
        archive = artifact deb;
      }
    ) (lock.compilers.${host}.${platform} or (throw
      "the lock has no compiler on ${host} for ${platform}; run 'agentix lock'"
    ));
  };
  build =
    project:
    target.wheel {
      package = project.name;
      inherit (project) version;
      wheel = made project;
    };
  releases = map release (chosen.sources or [ ]);
  projects = map (locked: build (project locked)) lock.projects;
  compiled = map (locked: build (project locked)) (
    filter (locked: locked.compiled or false) lock.projects
  );

  debs = map lock.artifact chosen.system;
  wheels = map (install target) chosen.wheels ++ map build releases;
  environment = target.environment {
    wheels = wheels ++ projects;
    linked =
      if tools == null then
        null
      else
        target.linked {
          inherit tools;
          wheels = wheels ++ compiled;
        };
  };
  tools =
    if lock.system == [ ] then
      null
    else
      target.tools {
        declared = lock.system;
        packages = map (deb: {
          inherit (deb) package;
          archive = artifact deb;
        }) debs;
      };

  # Tools from npm, each with its own packages; Node is one of the system's tools.
  tarballs =
    let
      targets = map (tool: tool.targets.${platform}) (lock.npm or [ ]);
      used = concatMap (target: attrValues target.packages) targets;
    in
    attrValues (
      listToAttrs (
        map (file: {
          name = file;
          value = lock.artifact file;
        }) used
      )
    );
  npm = map (
    locked:
    let
      wanted = locked.targets.${platform};
    in
    target.npm {
      name = "${locked.name}-${locked.version}";
      packages = mapAttrs (_: file: artifact (lock.artifact file)) wanted.packages;
      inherit (wanted) programs;
      node = if wanted.node then tools else null;
    }
  ) (lock.npm or [ ]);

  # What Nix files give: the plugins' first, so that the project's own is taken where both offer.
  site = "lib/python${pinned.python}/site-packages";
  plugins = if lock.plugins or null == null then { } else lock.plugins;
  installed =
    name:
    head (
      map build (map project (filter (locked: locked.name == name) lock.projects))
      ++ map (install target) (filter (file: (lock.artifact file).package == name) chosen.wheels)
    );
  files =
    map (name: {
      file = "${installed name}/${site}/${plugins.${name}.nix}";
      name = "the plugin ${name}'s ${plugins.${name}.nix}";
    }) (filter (name: plugins.${name} ? nix) (attrNames plugins))
    ++ (
      if lock.nix or null == null then
        [ ]
      else
        [
          {
            file = sources.${(head lock.projects).name} + "/${lock.nix}";
            name = "the project's ${lock.nix}";
          }
        ]
    );
  nix = concatMap (asked {
    inherit platform;
    kit = target;
  }) files;
in
{
  inherit compiler environment;
  inherit (target) toolchain;
  bundle = target.bundle {
    inherit
      environment
      nix
      npm
      tools
      ;
    project = head projects;
    about = {
      inherit name;
      inherit (lock) version;
      packages =
        map (file: known (lock.artifact file)) chosen.wheels
        ++ map (
          release:
          let
            locked = lock.artifact release.file;
          in
          {
            inherit (locked) package version;
            sha256 = null;
            source = if locked ? commit then null else locked.sha256;
            wheel = made release;
          }
        ) releases
        ++ map (locked: {
          package = locked.name;
          inherit (locked) version;
          sha256 = null;
          wheel = made (project locked);
        }) lock.projects;
      tools =
        map known debs
        ++ map (tarball: known tarball // { kind = "npm"; }) tarballs
        ++ map described (filter isAttrs nix);
      inherit plugins;
      base = map known pinned.packages.${platform} ++ [ (shell platform) ];
    };
  };
}
