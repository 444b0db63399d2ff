"""What builds bundles: Nix with its store and its builders, and uv."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agentix import nix
from agentix.build.debian.archive import KEYRING
from agentix.build.lock.uv import find_uv
from agentix.doctor.program import PATIENCE, ask, installed, version
from agentix.errors import NixError
from agentix.findings import Finding
from agentix.nix.paths import STORE
from agentix.nix.program import run

if TYPE_CHECKING:
    from collections.abc import Iterable

OLDEST = (2, 8)
_NOTHING = f"{STORE}/{'0' * 32}-nothing"
# What a builder is kept apart by.
_APART = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork")


def nix_program() -> Iterable[Finding]:
    """Look for Nix, and whether its store can be used."""
    found = nix.find()
    text = version([str(found.programs / "nix-store"), "--version"])
    if tuple(map(int, text.split(".")[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield Finding("problem", f"{text} is too old", f"install Nix {oldest} or newer")
        return
    if (found.root / "nix/var/nix/db").exists() or found.daemon:  # else the first build makes it
        words = ["--check-validity", "--print-invalid", _NOTHING]
        run(found, "nix-store", words, timeout=PATIENCE)
    yield Finding("ok", f"{text}, {_kind(found)}")


def _kind(found: nix.Nix) -> str:
    if found.private:
        return f"a store of this user's own, in {found.root}"
    return "this machine's store, " + ("by its daemon" if found.daemon else "without a daemon")


def nix_builders() -> Iterable[Finding]:
    """Look at what builds: how many at once, and whether each is kept apart from the machine."""
    try:
        found = nix.find()
    except NixError:
        return  # as is said already
    if found.daemon:
        yield Finding("ok", "the daemon's, sandboxed as it is configured")
        return
    count = len(os.sched_getaffinity(0))
    own = ["--user", "--map-root-user"] if os.geteuid() else []
    ended = ask(["unshare", *own, *_APART, "true"])
    if ended.status == 0:
        yield Finding("ok", f"{count} at once, each in a sandbox")
    elif found.private:
        yield Finding(
            "problem",
            f"this machine forbids the namespaces that a store of one's own needs ({ended.reason})",
            "build as root, or install a Nix daemon (Debian: apt-get install nix-setup-systemd, "
            "and be in the group nix-users)",
        )
    else:
        yield Finding(
            "note",
            f"{count} at once, and they see this machine: it forbids namespaces ({ended.reason})",
            "allow them (in a container: --privileged) to be sure that builds see nothing else",
        )


def uv() -> Iterable[Finding]:
    """Look for the resolver."""
    yield Finding("ok", f"uv {version([find_uv(), '--version'])}")


git = installed(
    "git", needed="a project that is kept with it, or has a .gitignore, cannot be built"
)


def signatures() -> Iterable[Finding]:
    """Look for what tells that Debian's index is Debian's, which locking system tools takes."""
    needed = "system tools cannot be locked"
    yield from installed("gpgv", needed=needed)()
    if not Path(KEYRING).exists():
        advice = "Debian: apt-get install debian-archive-keyring"
        yield Finding("note", f"there is no {KEYRING}; {needed}", advice)
