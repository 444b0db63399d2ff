"""Where a bundle is unpacked: a private folder, written to by descriptor, never through a link."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Self

    from agentix.bundle.manifest import Manifest

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TIME = (1_000_000_000, 1_000_000_000)  # one second after the epoch, as in a Nix store


class Folder:
    """Makes files, folders and links below one folder, in archive order.

    Modes do not depend on the umask: folders 0755 (so that their owner can remove them), files
    0444 or 0555. The caller has checked the order; here every step down is one open descriptor,
    so whatever the names say, nothing can be made anywhere else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[int] = []

    def __enter__(self) -> Self:
        self._open.append(os.open(self._path, _OPEN))
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._open:
            with suppress(OSError):
                os.close(descriptor)

    def begin(self) -> None:
        """Make the folders that every bundle has."""
        self.directory([b"nix"])
        self.directory([b"nix", b"run"])
        self.directory([b"nix", b"store"])

    def directory(self, parts: list[bytes]) -> None:
        """Make a folder and stay in it until something outside it comes."""
        parent, name = self._parent(parts), parts[-1]
        os.mkdir(name, 0o755, dir_fd=parent)
        # Before it is opened: an umask may deny that to its owner.
        os.chmod(name, 0o755, dir_fd=parent)  # noqa: S103 - sandboxes read it as any user
        self._open.append(os.open(name, _OPEN, dir_fd=parent))

    def symlink(self, parts: list[bytes], target: bytes) -> None:
        """Make a link; nobody asks where it leads."""
        parent, name = self._parent(parts), parts[-1]
        os.symlink(target, name, dir_fd=parent)
        os.utime(name, ns=_TIME, dir_fd=parent, follow_symlinks=False)

    def file(
        self,
        parts: list[bytes],
        pieces: Iterable[memoryview],
        seen: Callable[[memoryview], object],
        *,
        executable: bool,
    ) -> None:
        """Make a file of *pieces*, each of which *seen* is given too."""
        file = os.open(parts[-1], _CREATE, 0o600, dir_fd=self._parent(parts))
        try:
            for piece in pieces:
                seen(piece)
                write_all(file, piece)
            os.fchmod(file, 0o555 if executable else 0o444)
            os.utime(file, ns=_TIME)
        finally:
            os.close(file)

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest: with it, and only with it, the folder is complete."""
        text = memoryview(manifest.to_bytes())
        self.file([b"manifest.json"], [text], len, executable=False)
        os.fchmod(self._open[0], 0o755)

    def _parent(self, parts: list[bytes]) -> int:
        """Return the folder that *parts* is in, after leaving the deeper ones."""
        while len(self._open) > len(parts):
            descriptor = self._open.pop()
            try:
                os.utime(descriptor, ns=_TIME)
            finally:
                os.close(descriptor)
        return self._open[-1]


class Nowhere:
    """In place of a :class:`Folder`: takes everything, and makes nothing of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self) -> None:
        """Make nothing."""

    def directory(self, parts: list[bytes]) -> None:
        """Make no folder."""

    def symlink(self, parts: list[bytes], target: bytes) -> None:
        """Make no link."""

    def file(
        self,
        parts: list[bytes],
        pieces: Iterable[memoryview],
        seen: Callable[[memoryview], object],
        *,
        executable: bool,
    ) -> None:
        """Show *pieces* to *seen*, and make no file of them."""
        for piece in pieces:
            seen(piece)

    def finish(self, manifest: Manifest) -> None:
        """Write nothing."""


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of *data*, however many calls the system needs."""
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, memoryview(data)[written:])
