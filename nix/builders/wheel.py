"""Install one wheel into a prefix of its own.

pypa/installer reads the wheel; what is special here is that programs and libraries are relocated
before the RECORD is written, and that scripts keep the placeholder ``#!python``, because the
interpreter is the environment's, which does not exist yet.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import zipfile
import zlib
from base64 import urlsafe_b64encode
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import bytecode
import debug
import elf
import step
from patch import patch

if __name__ == "__main__":
    sys.path.insert(0, step.config()["installer"])

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.exceptions import InstallerError
from installer.records import Hash, RecordEntry
from installer.scripts import Script
from installer.sources import WheelFile
from installer.utils import Scheme

if TYPE_CHECKING:
    from collections.abc import Iterable

    from installer.scripts import ScriptSection


SPREAD = ".spread"
LIBRARIES = ".libraries.json"
# What reading an archive raises that is cut off, damaged, hostile or no wheel. RuntimeError is
# zipfile's, of a member that is encrypted or compressed in a way that it does not know.
UNUSABLE = (
    InstallerError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
    AssertionError,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)
ORIGIN = ("$ORIGIN", "${ORIGIN}")


class Prefix(SchemeDictionaryDestination):
    """A prefix below which a wheel's files go, relocated as they are recorded."""

    def __init__(self, root: Path, python: str, name: str, relocate: Relocation) -> None:
        site = str(root / f"lib/python{python}/site-packages")
        schemes = {
            "purelib": site,
            "platlib": site,
            "scripts": str(root / "bin"),
            "headers": str(root / f"include/python{python}/{name}"),
            "data": str(root),
        }
        super().__init__(schemes, "python", "posix", overwrite_existing=True)
        self._relocate = relocate

    def write_file(
        self, scheme: Scheme, path: str | os.PathLike[str], stream: BinaryIO, is_executable: bool
    ) -> RecordEntry:
        """Write a file as it is; scripts are programs even where the archive forgot to say so."""
        executable = is_executable or scheme == "scripts"
        return self.write_to_fs(scheme, os.fspath(path), stream, executable)

    def write_script(
        self, name: str, module: str, attr: str, section: ScriptSection
    ) -> RecordEntry:
        """Write an entry point's script; its content differs between environments."""
        file, content = Script(name, module, attr, section).generate("python", "posix")
        path = self._path_with_destdir(Scheme("scripts"), file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755)
        return RecordEntry(file, None, None)

    def finalize_installation(
        self,
        scheme: Scheme,
        record_file_path: str,
        records: Iterable[tuple[Scheme, RecordEntry]],
    ) -> None:
        """Relocate what the loader will load, then record what is there now."""
        entries = list(records)
        places = {self._path_with_destdir(s, e.path): i for i, (s, e) in enumerate(entries)}
        for path in self._relocate(places):
            part, entry = entries[places[path]]
            entries[places[path]] = (part, _recorded(entry.path, path))
        super().finalize_installation(scheme, record_file_path, entries)


def _recorded(name: str, path: Path) -> RecordEntry:
    with path.open("rb") as file:
        digest = urlsafe_b64encode(file_digest(file, "sha256").digest()).rstrip(b"=").decode()
    return RecordEntry(name, Hash("sha256", digest), path.stat().st_size)


class Relocation:
    """Makes programs and libraries of wheels find the toolchain's libraries, whoever loads them.

    What only debuggers read is left out. Otherwise a library is left as it was published where that
    will do: it is loaded into a process whose program has a DT_RPATH with the toolchain, which the
    loader searches for it too. A DT_RUNPATH would rule that out, and would come after an image's
    LD_LIBRARY_PATH; it becomes a DT_RPATH.
    Folders of the machine that built the wheel are dropped: an image may have them.
    """

    def __init__(self, toolchain: str, loader: str, patchelf: str) -> None:
        self._libraries = f"{toolchain}/lib"
        self._linked: dict[Path, tuple[str, ...]] = {}
        self._loader = loader
        self._patchelf = patchelf
        self.outward: list[Path] = []

    def __call__(self, paths: Iterable[Path]) -> list[Path]:
        """Edit what needs it among *paths* and return those.

        Afterwards ``outward`` has the files that look for neighbours which are not in this wheel.
        """
        changed = []
        for path in paths:
            linked = elf.read(path) if path.is_file() else None
            if linked is None:
                continue
            self._linked[path] = linked.needed
            if any(_is_elsewhere(path.parent, folder) for folder in linked.search):
                self.outward.append(path)
            edited = debug.strip(path)
            if (search := self._search(linked)) is not None:
                loader = f"{self._libraries}/{self._loader}" if self._is_ours(linked) else None
                patch(path, search, loader, self._patchelf)
                edited = True
            if edited:
                changed.append(path)
        return changed

    def libraries(self, root: Path) -> dict[str, Any]:
        """Return which libraries the files below *root* lack, and which there are for others.

        What a file lacks is neither in its own wheel nor in the toolchain. Whether the loader would
        look in the right folder is not asked.
        """
        offered = {path.name for path in self._linked}
        lacking: dict[str, list[str]] = {}
        for path, needed in sorted(self._linked.items()):
            lacks = [
                name
                for name in needed
                if _is_name(name)
                and name not in offered
                and not Path(self._libraries, name).exists()
            ]
            if lacks:
                lacking[str(path.relative_to(root))] = lacks
        offers = sorted(name for name in offered if ".so" in name and _is_name(name))
        return {"lacks": lacking, "offers": offers}

    def _search(self, linked: elf.Elf) -> str | None:
        """Return the search path that a file is to have, None where it may stay as it is."""
        kept = [folder for folder in linked.search if folder.startswith(ORIGIN)]
        if not self._is_ours(linked) and linked.runpath is None and kept == linked.search:
            return None
        return ":".join(dict.fromkeys([*kept, self._libraries]))

    def _is_ours(self, linked: elf.Elf) -> bool:
        """Say whether it is a program that the toolchain's loader is to load."""
        return linked.interpreter is not None and Path(linked.interpreter).name == self._loader


def _is_name(library: str) -> bool:
    """Say whether anything can be called like that; what a damaged file says may be no name."""
    return len(library) < 256 and library.isascii() and library.isprintable() and "/" not in library


def _is_elsewhere(origin: Path, folder: str) -> bool:
    if not folder.startswith(ORIGIN):
        return False
    return not Path(os.path.normpath(origin / folder.partition("/")[2])).is_dir()


def locate(wheel: Path, name: str) -> tuple[Path, str]:
    """Return the wheel file and its name, of a file called *name* or a folder with one wheel."""
    if not wheel.is_dir():
        return wheel, name
    (file,) = wheel.glob("*.whl")
    return file, file.name


def install_wheel(file: Path, name: str, root: Path, python: str, relocate: Relocation) -> None:
    """Install the wheel *file*, called *name*, below *root*."""
    with zipfile.ZipFile(file) as archive:
        archive.filename = name
        source = WheelFile(archive)
        prefix = Prefix(root, python, source.distribution, relocate)
        install(source, prefix, additional_metadata={"INSTALLER": b"agentix\n"})


def main() -> None:
    """Install the wheel of this step."""
    config: dict[str, Any] = step.config()
    file, name = locate(Path(config["wheel"]), config["file"])
    relocate = Relocation(config["toolchain"], config["loader"], config["patchelf"])
    root = step.out()
    try:
        install_wheel(file, name, root, config["python"], relocate)
    except UNUSABLE as error:
        step.fail(f"{name} is not a usable wheel: {error}; pin another version")
    except subprocess.CalledProcessError as error:
        step.fail(f"{name} cannot be relocated: {error}")
    for note in (SPREAD, LIBRARIES):
        if os.path.lexists(root / note):
            step.fail(
                f"{name} brings a file {note}, which environments take for a note of ours; "
                "pin another version"
            )
    site = root / f"lib/python{config['python']}/site-packages"
    site.mkdir(parents=True, exist_ok=True)
    spread(relocate.outward, site, root / SPREAD)
    libraries = relocate.libraries(root)
    if any(libraries.values()):
        (root / LIBRARIES).write_text(json.dumps(libraries, indent=1) + "\n")
    bytecode.compile_tree(site)


def spread(files: list[Path], site: Path, note: Path) -> None:
    """Note the packages in which a library looks for others from the folder that it is in.

    Their folders must not be links in an environment: beyond a link is this wheel alone.
    """
    names = {file.relative_to(site).parts[0] for file in files if file.is_relative_to(site)}
    if names:
        note.write_text("".join(f"{name}\n" for name in sorted(names)))


if __name__ == "__main__":
    os.umask(0o022)
    main()
