"""From a project to its bundle: project, lock, artifacts, plan, Nix, bundle."""
