"""Find the Nix of this machine, and how to reach its store."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import NixError
from agentix.nix.paths import STORE

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATE = Path("/nix/var/nix")
_SOCKET = _STATE / "daemon-socket/socket"
_PLACES = (Path("/usr/bin"), _STATE / "profiles/default/bin")


@dataclass(frozen=True, slots=True)
class Nix:
    """How Nix is reached here.

    ``root`` is the folder below which ``/nix/store`` lies: ``/`` unless the store is a user's own.
    ``daemon`` says that a daemon works for us, and decides itself on sandboxing and build users.
    ``substitutes`` says that the configured binary caches may be asked: for nothing of ours, which
    they cannot have.
    """

    programs: Path
    root: Path
    daemon: bool
    sandbox: bool = True
    substitutes: bool = False

    @property
    def private(self) -> bool:
        """Whether the store is a user's own: builders see it at ``/nix`` only in a sandbox."""
        return self.root != Path("/")

    def real(self, path: str | Path) -> Path:
        """Return where the store path *path* can be opened."""
        return self.root / STORE[1:] / Path(path).name

    def options(self) -> list[str]:
        """Return the options that every call gets."""
        chosen = {} if self.substitutes else {"substitute": "false"}
        if not self.daemon:  # an ordinary user of a daemon may not set these, and is told so
            chosen |= {} if self.substitutes else {"substituters": ""}
            chosen |= {"sandbox": str(self.sandbox).lower()}
            chosen["sandbox-fallback"] = str(not self.private).lower()
            if os.geteuid() == 0 and not _has_group("nixbld"):
                chosen["build-users-group"] = ""
        return [word for name, value in chosen.items() for word in ("--option", name, value)]

    def environment(self) -> dict[str, str]:
        """Return the environment of every call: the caller's, less what would change results."""
        environment = {name: value for name, value in os.environ.items() if name != "NIX_PATH"}
        if self.private:
            environment["NIX_REMOTE"] = str(self.root)
        if not os.access(environment.get("HOME") or "/nonexistent", os.W_OK | os.X_OK):
            environment["HOME"] = tempfile.gettempdir()
        environment["TMPDIR"] = tempfile.gettempdir()  # Nix takes one that cannot be used
        environment.setdefault("USER", f"user-{os.geteuid()}")  # for one whom passwd does not know
        return environment


def find() -> Nix:
    """Return how to reach Nix; NixError says what to install when it is missing."""
    store = os.environ.get("NIX_STORE_DIR") or STORE
    if store.rstrip("/") != STORE:
        raise NixError(
            f"NIX_STORE_DIR is {store}, but a bundle works only from {STORE}; unset NIX_STORE_DIR"
        )
    for folder in _folders():
        if os.access(folder / "nix-store", os.X_OK) and os.access(folder / "nix-build", os.X_OK):
            root, daemon = _store()
            return Nix(folder, root, daemon)
    raise NixError(
        "Nix is not installed (no nix-build on PATH or in its usual places); "
        "on Debian and Ubuntu: apt-get install nix-bin"
    )


def _folders() -> Iterator[Path]:
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if entry.startswith("/"):
            yield Path(entry)
    yield from _PLACES
    with suppress(RuntimeError):  # no HOME, and no such user
        yield Path.home() / ".nix-profile/bin"


def _store() -> tuple[Path, bool]:
    """Return the root of the store, and whether a daemon keeps it: as Nix itself would choose."""
    remote = os.environ.get("NIX_REMOTE", "")
    if remote.startswith("/"):
        return Path(remote), False
    if remote == "daemon" or remote.startswith("unix://"):
        return Path("/"), True
    if remote not in ("", "auto", "local"):
        raise NixError(
            f"NIX_REMOTE is {remote}; bundles are built with the store of this machine: "
            "unset NIX_REMOTE, or set it to 'daemon' or to a folder"
        )
    if remote == "local" or os.geteuid() == 0 or os.access(_STATE, os.W_OK):
        return Path("/"), False
    if os.access(_SOCKET, os.W_OK):  # Debian's daemon works for the group nix-users only
        return Path("/"), True
    # Neither ours to write nor kept for us by a daemon: one among the user's files.
    try:
        data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    except RuntimeError as error:  # no HOME, and no such user
        raise NixError(
            "there is no Nix store, since this user has no home; set NIX_REMOTE to a folder for one"
        ) from error
    return Path(data) / "nix/root", False


def _has_group(name: str) -> bool:
    import grp

    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
