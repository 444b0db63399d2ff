"""Source archives: what they are called, and what the files that say how to build them hold."""

from __future__ import annotations

import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING

from agentix.build.tar import Header, members
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_KIND = re.compile(r"\.(tar|tar\.gz|tgz|tar\.bz2|tbz2?|tar\.xz|txz|zip)$")
_LARGEST = 4 * 1024 * 1024  # bytes of one such file
_DAMAGED = (
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)


def suffix(name: str) -> str | None:
    """Return what the *name* of a source archive ends with, or None when it is no such name."""
    found = _KIND.search(name)
    return found[0] if found else None


def take_out(archive: Path, path: str, names: Sequence[str], folder: Path) -> list[str]:
    """Copy the files *names* of the project at *path* in *archive* into *folder*.

    Returns the paths of everything in the archive. What is missing is left out. Raises LockError
    when the archive cannot be read.
    """
    there: list[str] = []
    found: dict[str, bytes] = {}
    try:
        with _files(archive) as files:
            for name, opened in files:
                there.append(name)
                if PurePosixPath(name).name in names:
                    found[name] = _read(name, opened)
                    if sum(map(len, found.values())) > 16 * _LARGEST:
                        raise ValueError(
                            f"its files called {PurePosixPath(name).name} are too large"
                        )
    except _DAMAGED as error:
        reason = " ".join(str(error).split())
        raise LockError(f"cannot read the source archive {archive.name}: {reason}") from error
    # Nearly always one folder is all that there is at the top.
    tops = {name.partition("/")[0] for name in there}
    root = PurePosixPath(tops.pop() if len(tops) == 1 else "", path)
    for name in names:
        if (data := found.get(str(root / name))) is not None:
            (folder / name).write_bytes(data)
    return there


def unpack(archive: Path, folder: Path) -> Path:
    """Lay the plain files of *archive* out below *folder*; return the folder at their top.

    Links and whatever would lie elsewhere are left out. Raises LockError when it cannot be read.
    """
    try:
        with _files(archive) as files:
            for name, opened in files:
                file = opened() if _is_inside(name) else None
                if file is not None:
                    place = folder / name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with place.open("wb") as copy:
                        shutil.copyfileobj(file, copy)
    except _DAMAGED as error:
        reason = " ".join(str(error).split())
        raise LockError(f"cannot read the source archive {archive.name}: {reason}") from error
    tops = list(folder.iterdir())
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else folder


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


@contextmanager
def _files(archive: Path) -> Iterator[Iterator[tuple[str, Callable[[], IO[bytes] | None]]]]:
    """Give the files of *archive*: the path of each, and how to open it."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            infos = (info for info in zipped.infolist() if not info.is_dir())
            yield ((info.filename, lambda info=info: zipped.open(info)) for info in infos)  # type: ignore[misc]
    else:
        with tarfile.open(archive, tarinfo=Header) as tar:
            files = (member for member in members(tar) if member.isreg())
            yield (
                (member.name.removeprefix("./"), lambda member=member: tar.extractfile(member))  # type: ignore[misc]
                for member in files
            )


def _read(name: str, opened: Callable[[], IO[bytes] | None]) -> bytes:
    file = opened()
    data = file.read(_LARGEST + 1) if file is not None else b""
    if len(data) > _LARGEST:
        raise ValueError(f"{name} has more than {_LARGEST} bytes")
    return data
