"""Synthetic bundles, and tars made byte by byte: nothing here uses the code under test."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agentix.bundle import WrittenBundle, write_bundle
from agentix.nix import StorePath
from agentix.wire.protocol import PROTOCOL

HASH = "0123456789abcdfghijklmnpqrsvwxyz"
OLD: dict[str, Any] = {
    "format": 1,
    "name": "hello-world",
    "version": "0.1.0",
    "platform": "linux/amd64",
    "python": "3.11.2",
    "toolchain": "debian-12",
    "libc": "glibc 2.36",
    "protocol": PROTOCOL,
    "agentix": "0.1.0",
    "packages": [{"name": "msgpack", "version": "1.1.0", "sha256": "a" * 64}],
    "tools": [{"package": "jq", "version": "1.6-2.1+deb12u1"}],
}
INFO: dict[str, Any] = OLD | {
    "format": 2,
    "packages": [
        {
            "name": "hello-world",
            "version": "0.1.0",
            "sha256": None,
            "built": "b" * 64,
            "file": "hello_world-0.1.0-py3-none-any.whl",
            "size": 1441,
            "licences": [],
            "requires": ["msgpack>=1; python_version > '3'", "gone; extra == 'x'"],
        },
        {
            "name": "msgpack",
            "version": "1.1.0",
            "sha256": "a" * 64,
            "file": "msgpack-1.1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
            "size": 480247,
            "licences": ["License :: OSI Approved :: Apache Software License"],
            "requires": [],
        },
    ],
    "tools": [
        {
            "package": "jq",
            "version": "1.6-2.1+deb12u1",
            "file": "jq_1.6-2.1+deb12u1_amd64.deb",
            "sha256": "c" * 64,
            "size": 63984,
            "licences": ["Expat", "GPL-2+ or Artistic"],
        }
    ],
    "base": [
        {
            "package": "libc6",
            "version": "2.36-9+deb12u14",
            "file": "libc6_2.36-9+deb12u14_amd64.deb",
            "sha256": "d" * 64,
            "size": 2759320,
            "licences": ["common-licenses/LGPL-2.1"],
        }
    ],
}


class Link(str):
    """A symbolic link in a tree that a test describes."""


class Program(bytes):
    """An executable file in a tree that a test describes."""


def store_name(name: str) -> str:
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(HASH[byte % 32] for byte in digest[:32]) + f"-{name}"


def plant(path: Path, tree: Any) -> None:
    """Make *tree* at *path*: dicts are folders, bytes files."""
    if isinstance(tree, dict):
        path.mkdir()
        for name, below in tree.items():
            plant(path / os.fsdecode(name), below)
    elif isinstance(tree, Link):
        path.symlink_to(tree)
    else:
        path.write_bytes(tree)
        path.chmod(0o555 if isinstance(tree, Program) else 0o444)


def nar(tree: Any) -> bytes:
    """The NAR serialisation, straight from its definition."""

    def text(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data + b"\0" * (-len(data) % 8)

    def words(*parts: bytes) -> bytes:
        return b"".join(text(part) for part in parts)

    def node(tree: Any) -> bytes:
        if isinstance(tree, dict):
            entries = sorted((os.fsencode(name), below) for name, below in tree.items())
            body = words(b"directory")
            for name, below in entries:
                body += words(b"entry", b"(", b"name", name, b"node") + node(below) + words(b")")
        elif isinstance(tree, Link):
            body = words(b"symlink", b"target", os.fsencode(tree))
        elif isinstance(tree, Program):
            body = words(b"regular", b"executable", b"", b"contents", bytes(tree))
        else:
            body = words(b"regular", b"contents", tree)
        return words(b"(", b"type") + body + words(b")")

    return words(b"nix-archive-1") + node(tree)


@dataclass
class Bundle:
    """Store paths on disk that make up a bundle; the root is the one called ``bundle``."""

    folder: Path
    trees: dict[str, Any]
    closure: list[StorePath] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / store_name("bundle")

    def write(self, destination: Path) -> WrittenBundle:
        return write_bundle(self.root, self.closure, destination)

    def manifest(self) -> dict[str, Any]:
        declared = {
            store_name(name): {
                "sha256": hashlib.sha256(nar(tree)).hexdigest(),
                "size": len(nar(tree)),
            }
            for name, tree in self.trees.items()
        }
        return INFO | {"closure": declared, "root": store_name("bundle")}


def root_tree(info: dict[str, Any] = INFO) -> dict[str, Any]:
    return {
        "info.json": json.dumps(info).encode(),
        "runtime": {
            "bin": {"hello": Link("/nix/store/" + store_name("python-3.11") + "/bin/python3")},
            "bootstrap.sh": Program(b"#!/nix/store/busybox sh\n"),
            "environment": Link("/nix/store/" + store_name("python-3.11")),
        },
    }


PYTHON = {
    "bin": {"python3": Program(b"\x7fELF" + bytes(range(256)) * 40), "python": Link("python3")},
    "empty": {},
    "lib": {
        "libc.so.6": b"x" * 5000,
        "python3.11": {"os.py": b"import sys\n", "a-b": b"", "a": {"b": b"1"}, "a.b": b"2"},
    },
}


@dataclass
class Workshop:
    """Makes synthetic bundles below *folder*."""

    folder: Path

    def bundle(self, extra: dict[str, Any] | None = None, root: Any = None) -> Bundle:
        store = Path(tempfile.mkdtemp(dir=self.folder)) / "nix/store"
        store.mkdir(parents=True)
        trees = {"python-3.11": PYTHON, "bundle": root_tree() if root is None else root}
        trees |= extra or {}
        bundle = Bundle(store, trees)
        for name, tree in trees.items():
            path = store / store_name(name)
            plant(path, tree)
            data = nar(tree)
            bundle.closure.append(StorePath(path, hashlib.sha256(data).hexdigest(), len(data)))
        return bundle


def block(
    path: bytes,
    kind: bytes = b"0",
    *,
    size: int = 0,
    mode: int | None = None,
    link: bytes = b"",
    prefix: bytes = b"",
    **fields: bytes,
) -> bytes:
    """One ustar header; *fields* (mtime, uid, magic, checksum, size …) replace raw bytes."""
    if mode is None:
        mode = 0o444 if kind == b"0" else 0o555
    layout = {
        "name": (0, 100, path),
        "mode": (100, 8, b"%07o\0" % mode),
        "uid": (108, 8, b"0000000\0"),
        "gid": (116, 8, b"0000000\0"),
        "size": (124, 12, b"%011o\0" % size),
        "mtime": (136, 12, b"00000000001\0"),
        "checksum": (148, 8, b" " * 8),
        "kind": (156, 1, kind),
        "link": (157, 100, link),
        "magic": (257, 8, b"ustar\x0000"),
        "uname": (265, 32, b""),
        "gname": (297, 32, b""),
        "major": (329, 8, b"0000000\0"),
        "minor": (337, 8, b"0000000\0"),
        "prefix": (345, 155, prefix),
        "rest": (500, 12, b""),
    }
    header = bytearray(512)
    for name, (at, width, value) in layout.items():
        value = fields.get(f"raw_{name}", value)
        assert len(value) <= width, name
        header[at : at + len(value)] = value
    if "raw_checksum" not in fields:
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 512)


def pax(*records: bytes) -> bytes:
    data = b"".join(records)
    return block(b"pax", b"x", size=len(data), mode=0o444) + padded(data)


def record(key: bytes, value: bytes) -> bytes:
    length = len(key) + len(value) + 3
    while True:
        text = b"%d %b=%b\n" % (length, key, value)
        if len(text) == length:
            return text
        length = len(text)


def file(path: bytes, data: bytes, *, executable: bool = False, **fields: Any) -> bytes:
    mode = 0o555 if executable else 0o444
    return block(path, size=len(data), mode=mode, **fields) + padded(data)


class Part(NamedTuple):
    """One member of a handmade tar."""

    path: bytes
    raw: bytes


def parts(bundle: Bundle) -> list[Part]:
    """The members of *bundle*'s tar, in order, without the end."""
    text = (json.dumps(bundle.manifest(), sort_keys=True, indent=2) + "\n").encode()
    members = [Part(b"manifest.json", file(b"manifest.json", text))]

    def add(path: bytes, tree: Any) -> None:
        if isinstance(tree, dict):
            members.append(Part(path, block(path, b"5")))
            for name in sorted(map(os.fsencode, tree)):
                below = tree[name] if name in tree else tree[os.fsdecode(name)]
                add(path + b"/" + name, below)
        elif isinstance(tree, Link):
            members.append(Part(path, block(path, b"2", link=os.fsencode(tree))))
        else:
            executable = isinstance(tree, Program)
            members.append(Part(path, file(path, bytes(tree), executable=executable)))

    for name in sorted(bundle.trees, key=store_name):
        add(b"nix/store/" + store_name(name).encode(), bundle.trees[name])
    target = f"/nix/store/{store_name('bundle')}/runtime".encode()
    members.append(Part(b"nix/runtime", block(b"nix/runtime", b"2", link=target)))
    return members


END = bytes(1024)


def listing(folder: Path) -> dict[str, tuple[int, str]]:
    """Everything below *folder*: mode and content or target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if path.is_symlink():
            content = "-> " + str(path.readlink())
        else:
            content = path.read_bytes().hex() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (mode, content)
    return found
