"""Paths that programs have compiled in or written down, made to lead to the packages' files here.

A program built for /usr looks there for its data and helpers, which an image does not have or has
of another version. In text there is room for any path. In a program a path can only become one of
the same length, and none of the store's is as short: so it becomes an *alias*,
``/nix/runtime/<name>``, a link that every bundle makes for each of its tools' aliases. Nothing has
to be told by variables, which would reach the programs that a tool starts.

What is edited is a path that leads to something that came with the packages; all others, and the
folders that programs of all kinds share (/usr/bin), mean the image's.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import step
from tree import files, inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from needs import Needs

RUNTIME = "/nix/runtime/"
# What bundle.py itself puts there.
RESERVED = frozenset({"bin", "bootstrap.sh", "cert.pem", "environment", "lc", "nix"})

_PATH = re.compile(rb"(?<![\w.+/@%~-])/(?:usr|lib|lib64|bin|sbin|etc)/[\w.+@~/-]+")
_SHARED = frozenset(
    {"bin", "games", "include", "lib", "lib64", "libexec", "local", "sbin", "share", "src", "etc"}
    | {"lib/debug", "lib/locale", "share/fonts", "share/misc", "share/zoneinfo"}
)
_LARGEST_TEXT = 8 * 1024 * 1024
# Text that is read with another root in mind, and archives of what is not linked yet.
_KEPT = (".a", ".la", ".o", ".so")
_OF_LIBC = (
    *("ld-linux", "libanl.", "libc.", "libdl.", "libm.", "libmvec.", "libnsl.", "libnss_"),
    *("libpthread.", "libresolv.", "librt.", "libutil."),
)


@dataclass
class Rewriting:
    """Edits the files of *tree*; ``aliases`` and ``reached`` say what they have come to name."""

    tree: Path
    multiarch: str
    needs: Needs
    aliases: dict[str, Path] = field(default_factory=dict)
    reached: set[Path] = field(default_factory=set)
    _named: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Edit every file."""
        for path in files(self.tree):
            place = path.relative_to(self.tree)
            with path.open("rb") as file:
                magic = file.read(20)
            if magic[:4] == b"\x7fELF":
                if magic[16] in {2, 3}:  # a program or a library, not an object file
                    self._edit_program(path)
            elif place.parts[0] != "include" and path.suffix not in _KEPT:
                self._edit_text(path)

    def names_ours(self, path: Path) -> bool:
        """Say whether the program or library *path* names what came with the packages."""
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return any(self._ours(match.group(), RUNTIME) for match in _PATH.finditer(data))

    def _edit_program(self, path: Path) -> None:
        edits = list(self._edits(path))
        if not edits:
            return
        mode = path.stat().st_mode
        path.chmod(mode | 0o200)
        with path.open("r+b") as file:
            for offset, new in edits:
                file.seek(offset)
                file.write(new)
        path.chmod(mode)

    def _edits(self, path: Path) -> Iterator[tuple[int, bytes]]:
        name = str(path.relative_to(self.tree))
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for match in _PATH.finditer(data):
                if ours := self._ours(match.group(), RUNTIME):
                    yield match.start(), self._alias(ours).encode()
            for entry in self.needs.texts:
                if fnmatchcase(name, entry.file):
                    # Between NULs: the whole of a text, not the end of another one.
                    places = list(
                        re.finditer(b"(?<=\0)%s\0" % re.escape(entry.text.encode()), data)
                    )
                    if not places:
                        step.fail(f"{name} has no text {entry.text!r}, which needs.toml tells of")
                    alias = self._alias(entry.means, len(entry.text)).encode()
                    yield from ((place.start(), alias) for place in places)

    def _edit_text(self, path: Path) -> None:
        if path.stat().st_size > _LARGEST_TEXT:
            return
        content = path.read_bytes()
        if b"\0" in content:
            return

        def replaced(match: re.Match[bytes]) -> bytes:
            ours = self._ours(match.group(), "")
            here = inside(self.tree, ours) if ours else None
            if not ours or here is None:
                return match.group()
            self.reached.add(here)
            return str(here).encode() + match.group()[len(ours) :]

        edited = _PATH.sub(replaced, content)
        if edited != content:
            mode = path.stat().st_mode
            path.chmod(mode | 0o200)
            path.write_bytes(edited)
            path.chmod(mode)

    def _ours(self, found: bytes, least: str) -> str | None:
        """Return the part of a path, longer than *least*, that a path of ours can stand for."""
        path = found.decode("ascii", "replace").rstrip("/.")
        parts = path.split("/")
        if ".." in parts or not self.needs.admits(path):
            return None
        if inside(self.tree, path) is None:
            path = path.rpartition("/")[0]  # a file that may be there or not, in a folder of ours
            if self._is_shared(path) or inside(self.tree, path) is None:
                return None
            parts = path.split("/")
        for count in range(3, len(parts) + 1):
            part = "/".join(parts[:count])
            if len(part) > len(least) and not self._is_shared(part) and self.needs.admits(part):
                return part
        return None

    def _is_shared(self, path: str) -> bool:
        place = path.lstrip("/").removeprefix("usr/")
        return place in _SHARED or place in {"", "usr", f"lib/{self.multiarch}"}

    def _alias(self, path: str, length: int = 0) -> str:
        """Return the alias, *length* characters long, of the absolute *path* of the packages."""
        length = length or len(path)
        key = f"{path}:{length}"
        if key not in self._named:
            here = inside(self.tree, path)
            if here is None:
                step.fail(f"{path} did not come with the packages, but needs.toml tells of it")
            name = self._free_name(path, length - len(RUNTIME))
            self.aliases[name] = here
            self.reached.add(here)
            self._named[key] = RUNTIME + name
        return self._named[key]

    def _free_name(self, path: str, length: int) -> str:
        """Return a name for *path*: its last characters, or some that depend on it alone."""
        last = path[-length:].replace("/", "-").replace(".", "-")
        digests = (hashlib.sha256(f"{path}:{n}".encode()).hexdigest() for n in range(1000))
        names = itertools.chain([last], (digest[:length] for digest in digests))
        free = (n for n in names if len(n) == length and {n}.isdisjoint(RESERVED | {*self.aliases}))
        name = next(free, None)
        if name is None:
            step.fail(f"there are too many paths as short as {path} in these tools; declare fewer")
        return name


def adopt(libraries: Path, tree: Path, multiarch: str, is_wanted: Callable[[Path], bool]) -> None:
    """Copy those of the toolchain's *libraries* that name what is in *tree*, to be edited there.

    The C library is none of them: there can be only one in a process.
    """
    for library in sorted(libraries.glob("*.so.*")):
        if not library.resolve().name.startswith(_OF_LIBC) and is_wanted(library.resolve()):
            _copy(library, tree / "lib" / multiarch)


def complete(libraries: Path, tree: Path, multiarch: str, needs: Needs) -> None:
    """Add the data that the table tells of, and copy the toolchain's *libraries* that name it."""
    for entry in needs.data:
        if any(tree.glob(entry.beside)):
            (tree / entry.at).parent.mkdir(parents=True, exist_ok=True)
            (tree / entry.at).write_text(entry.text.lstrip())
            for name in entry.libraries:
                _copy(libraries / name, tree / "lib" / multiarch)


def _copy(library: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if library.is_symlink():
        (folder / library.name).symlink_to(library.readlink().name)
    else:
        (folder / library.name).write_bytes(library.read_bytes())
        (folder / library.name).chmod(0o755)
