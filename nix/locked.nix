/*
  Everything that a lock names, built for one platform, and the bundle of it.

  Type: { host, artifact, pin, kit, programs } ->
        { lock : Lock, platform, sources : { <project> = Path; }, name ? lock.name } ->
        { bundle, environment, toolchain : Derivation; }
  Example: (locked { lock = readLock ./bundle.lock; platform = "linux/amd64"; … }).bundle
*/
{
  host,
  artifact,
  pin,
  kit,
  programs,
}:
let
  inherit (builtins) head map;
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
  made =
    project:
    let
      backend = project.backend.${host} or (throw
        "the lock has no build backend of '${project.name}' for ${host}; run 'agentix lock'"
      );
    in
    target.project {
      inherit (project) name version;
      source = sources.${project.name} or (throw "there are no sources for the project '${project.name}'");
      backend = here.environment { wheels = map (install here) backend; };
    };
  build =
    project:
    target.wheel {
      package = project.name;
      inherit (project) version;
      wheel = made project;
    };
  projects = map build lock.projects;

  debs = map lock.artifact chosen.system;
  environment = target.environment { wheels = map (install target) chosen.wheels ++ projects; };
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
in
{
  inherit environment;
  inherit (target) toolchain;
  bundle = target.bundle {
    inherit environment tools;
    project = head projects;
    about = {
      inherit name;
      inherit (lock) version;
      packages =
        map (file: known (lock.artifact file)) chosen.wheels
        ++ map (project: {
          package = project.name;
          inherit (project) version;
          sha256 = null;
          wheel = made project;
        }) lock.projects;
      tools = map known debs;
      base = map known pinned.packages.${platform} ++ [ (shell platform) ];
    };
  };
}
