"""An npm registry of our own: packages made on the spot, and told in every wrong way."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.server import Behaviour, Server

NODE = "#!/usr/bin/env node\n"


def tarball(files: Mapping[str, bytes | str | tarfile.TarInfo], folder: str = "package") -> bytes:
    """Return a tarball of *files* below *folder*; those whose name ends with ``!`` are programs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            if isinstance(content, tarfile.TarInfo):  # a member as it is told
                archive.addfile(content, io.BytesIO(bytes(content.size)))
                continue
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(f"{folder}/{name.removesuffix('!')}" if folder else name)
            member.size, member.mode = len(data), 0o755 if name.endswith("!") else 0o644
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0)


def manifest(name: str, version: str = "1.0.0", **more: Any) -> dict[str, Any]:
    """Return a package.json."""
    return {"name": name, "version": version, **more}


def integrity(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


class NpmRegistry:
    """Offers packages below ``/npm`` of a *server*."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.address = f"{server.address}/npm"
        self.documents: dict[str, dict[str, Any]] = {}

    def offer(
        self,
        about: dict[str, Any],
        files: Mapping[str, bytes | str | tarfile.TarInfo] | None = None,
        *behaviours: Behaviour,
        dist: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Offer one release; *dist* is what it says of its tarball beyond the truth."""
        name, version = about["name"], about["version"]
        data = tarball({"package.json": json.dumps(about), **(files or {})})
        path = f"/npm/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        self.server.offer(path, data, *behaviours)
        told = {"tarball": f"{self.server.address}{path}", "integrity": integrity(data)}
        document = self.documents.setdefault(name, {"name": name, "versions": {}})
        document["versions"][version] = {**about, "dist": told | dict(dist or {})}
        document["dist-tags"] = {"latest": version}
        text = json.dumps(document).encode()
        for spelling in (f"/npm/{quote(name, safe='@')}", f"/npm/{name}"):
            self.server.offer(spelling, text)
        return data

    def offer_native(
        self, name: str, platforms: Mapping[str, Mapping[str, Any]], version: str = "1.0.0"
    ) -> None:
        """Offer a tool whose program is in packages for *platforms*: suffix and their fields."""
        program = name.rpartition("/")[2]
        needs = {f"{name}-{suffix}": version for suffix in platforms}
        about = manifest(name, version, bin={program: "bin/run"}, optionalDependencies=needs)
        about["scripts"] = {"postinstall": "node install.js"}
        self.offer(about, {"bin/run": "a note that an install script replaces"})
        for suffix, fields in platforms.items():
            machine = 183 if "arm64" in suffix else 62
            head = b"\x7fELF\x02\x01\x01" + bytes(11) + machine.to_bytes(2, "little") + bytes(44)
            self.offer(manifest(f"{name}-{suffix}", version, **fields), {f"{program}!": head})


LINUX_X64: dict[str, Any] = {"os": ["linux"], "cpu": ["x64"], "libc": ["glibc"]}
LINUX_ARM64: dict[str, Any] = {"os": ["linux"], "cpu": ["arm64"], "libc": ["glibc"]}
MUSL_X64: dict[str, Any] = {"os": ["linux"], "cpu": ["x64"], "libc": ["musl"]}
DARWIN: dict[str, Any] = {"os": ["darwin"], "cpu": ["arm64"]}
