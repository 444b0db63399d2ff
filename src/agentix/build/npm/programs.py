"""Which files are a tool's programs, found in its tarballs without running anything of it.

What npm links is often a stand-in: a script that looks for the native program in a package for
this platform, or a note that an install script replaces by it. Install scripts are not run; a
native program of the same name is taken as it is.
"""

from __future__ import annotations

import posixpath
import re
import struct
import tarfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.build.tar import Header, members
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agentix.build.npm.package import Package
    from agentix.platforms import Platform

_MACHINES = {"x86_64": 62, "aarch64": 183}
_HEAD = 256
_NODE = re.compile(rb"#!\s*(\S*/)?(env\s+(-S\s+)?([^\s=]+=\S+\s+)*)?node(js)?(\s|$)")


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of a tool by name: where each lies; ``node`` says that one is run by Node."""

    paths: Mapping[str, str]
    node: bool


def find_programs(
    top: str,
    packages: Mapping[str, Package],
    tarballs: Mapping[str, Path],
    platform: Platform,
) -> Programs:
    """Return the programs of the tool at *top*, whose *packages* and *tarballs* lie at these paths.

    Raises LockError when it offers none, or one that only an install script would make.
    """
    tool = packages[top]
    wanted = {name: _path(tool, path) for name, path in tool.programs.items()}
    if not wanted:
        raise LockError(f"{tool} has no programs: its package.json has no bin; it is no tool")
    natives = [
        f"{path}/{member}"
        for path, package in packages.items()
        if package.native and path != top
        for member, head in _heads(tarballs[path], package)
        if _is_native(head, platform)
    ]
    own = dict(_heads(tarballs[top], tool))
    paths: dict[str, str] = {}
    node = False
    for name, path in sorted(wanted.items()):
        same = {name, posixpath.basename(path).removesuffix(".exe")}
        if candidates := [n for n in natives if posixpath.basename(n) in same]:
            paths[name] = min(candidates, key=lambda n: (n.count("/"), n))
            continue
        head = own.get(path)
        if head is None:
            raise LockError(f"{tool} has no file {path}, which its program {name} is said to be")
        by_node = _NODE.match(head) is not None
        if not by_node and not head.startswith(b"#!") and not _is_native(head, platform):
            raise LockError(
                f"the program {name} of {tool} is only made by its install script, and those are "
                "not run; choose a release that ships it"
            )
        node = node or by_node
        paths[name] = f"{top}/{path}"
    return Programs(paths, node)


def _path(tool: Package, path: str) -> str:
    found = posixpath.normpath(path.replace("\\", "/").lstrip("/"))
    if found == "." or found.split("/")[0] == "..":
        raise LockError(f"{tool} says that its programs lie outside of it, at {path!r}")
    return found


def _is_native(head: bytes, platform: Platform) -> bool:
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 20:
        return False
    (machine,) = struct.unpack_from("<H", head, 18)
    return bool(machine == _MACHINES[platform.machine])


def _heads(tarball: Path, package: Package) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a package, and how each begins."""
    try:
        with tarfile.open(tarball, "r|gz", tarinfo=Header) as archive:
            for member in members(archive):
                if member.isreg() and (file := archive.extractfile(member)) is not None:
                    yield member.name.removeprefix("./").partition("/")[2], file.read(_HEAD)
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as error:
        raise LockError(f"the tarball of {package} cannot be read: {error}") from error
