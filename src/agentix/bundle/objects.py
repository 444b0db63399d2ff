"""The store paths that bundles of a cache share: each content once, whichever bundle brought it.

    <root>/store/<key>/tree            the store path
    <root>/store/<key>/members.json    how it looks in a tar
    <root>/store/lock                  shared by whoever deploys, exclusive to whoever removes

The key is made of the store path's name and its NAR hash, so that a name which somebody has given
to another content leads nowhere. What is here was verified when it came in. A bundle has the files
themselves (:mod:`.linking`), so removing either leaves the other whole.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agentix.bundle.linking import link_tree
from agentix.bundle.members import Members
from agentix.bundle.removal import erase
from agentix.bundle.waiting import locked
from agentix.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentix.bundle.manifest import StoreObject

_LOCK = "lock"
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_PATIENCE = 60.0  # seconds that a removal may take to move things away


def key(name: str, content: StoreObject) -> str:
    """Return what the store path *name* with that *content* is called among the shared ones."""
    text = f"{name} {content.sha256} {content.size}"
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{name[33:]}"


class Objects:
    """The shared store paths in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep all that is here from being removed, as long as the block runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / _LOCK, fcntl.LOCK_SH, _PATIENCE) as held:
            if not held:
                raise BundleError(
                    f"another process has been removing store paths for {_PATIENCE:.0f} s;"
                    f" see who holds {self.folder / _LOCK}, end it, and try again"
                )
            yield

    @contextmanager
    def unused(self) -> Iterator[bool]:
        """Tell whether nobody uses what is here, and keep it so as long as the block runs."""
        if not self.folder.is_dir():
            yield False
            return
        with locked(self.folder / _LOCK, fcntl.LOCK_EX, 0) as held:
            yield held

    def all(self) -> dict[str, Path]:
        """Return where everything is, by key."""
        with suppress(FileNotFoundError):
            return {path.name: path for path in self.folder.iterdir() if path.name != _LOCK}
        return {}

    def size(self, called: str) -> int:
        """Return how many bytes are in what is *called* so; 0 when that is not known."""
        found = Members.load(self.folder / called / "members.json")
        return found.content.size if found else 0

    def tree(self, name: str, content: StoreObject) -> Path:
        """Return where it is, if it is here."""
        return self.folder / key(name, content) / "tree"

    def find(self, name: str, content: StoreObject) -> Members | None:
        """Return how the store path *name* with that *content* looks in a tar, if it is here."""
        found = Members.load(self.folder / key(name, content) / "members.json")
        return found if found and found.name == name and found.content == content else None

    def place(self, members: Members, target: Path) -> None:
        """Make *target* the store path that :meth:`find` found."""
        tree = self.folder / key(members.name, members.content) / "tree"
        link_tree(tree, target, copy=True)

    def share(self, tree: Path, members: Members, scratch: Path) -> None:
        """Share *tree*, just verified; where another has been faster, it becomes that one's.

        It is prepared in *scratch*, a private folder on the same file system. Nothing happens
        where that cannot link files: copies would share nothing.
        """
        called = key(members.name, members.content)
        final = self.folder / called
        draft = scratch / called
        for folder in (scratch, draft):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)  # whatever the umask
        if not link_tree(tree, draft / "tree", copy=False):
            return
        note = draft / "members.json"
        note.write_text(members.model_dump_json())
        note.chmod(0o444)
        for attempt in itertools.count():
            try:
                draft.rename(final)
                return
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
            if self.find(members.name, members.content) is not None:
                break
            with suppress(FileNotFoundError):  # somebody has been at it, and others see that, too
                final.rename(scratch / f"{called}.{attempt}")
        erase(tree)
        self.place(members, tree)
