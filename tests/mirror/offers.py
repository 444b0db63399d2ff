"""What a mirror offers: Debian packages, wheels, and an index of them."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import uuid
import zipfile
from typing import TYPE_CHECKING

from aiohttp import web

from agentix.build.artifact import Artifact
from mirror.server import good

if TYPE_CHECKING:
    from mirror.server import Behaviour, Server


def content(size: int = 3_000_000) -> bytes:
    """Return bytes that no store has seen before."""
    return hashlib.shake_256(uuid.uuid4().bytes).digest(size)


def package(server: Server, data: bytes, *behaviours: Behaviour, name: str = "tool") -> Artifact:
    """Offer a Debian package on the mirror."""
    file = f"{name}_1.0-1_amd64.deb"
    server.offer(f"/debian/pool/main/t/{name}/{file}", data, *behaviours)
    return Artifact(
        file=file,
        package=name,
        version="1.0-1",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        pool=f"pool/main/t/{name}/{file}",
    )


def deb(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:xz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(f"./{name}")
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    parts = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", b"odd"),
        ("data.tar.xz", tar.getvalue()),
    ]
    out = io.BytesIO(b"!<arch>\n")
    out.seek(0, io.SEEK_END)
    for name, data in parts:
        out.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data)
        out.write(b"\n" * (len(data) % 2))
    return out.getvalue()


def wheel(name: str = "demo_pkg", version: str = "1.0") -> tuple[str, bytes]:
    out = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}.py", f"unique = {uuid.uuid4().hex!r}\n")
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()


def needed_wheel(
    file: str, data: bytes, package: str = "demo-pkg", version: str = "1.0"
) -> Artifact:
    sha256 = hashlib.sha256(data).hexdigest()
    return Artifact(file=file, package=package, version=version, sha256=sha256, size=len(data))


def index(
    server: Server,
    *wheels: tuple[str, bytes],
    name: str = "demo-pkg",
    auth: str = "",
    at: str = "/simple",
    hashes: bool = True,
) -> None:
    """Offer an index of one package, to those who give the password *auth*."""
    expected = "Basic " + base64.b64encode(auth.encode()).decode() if auth else None

    async def guarded(request: web.Request, content: bytes) -> web.StreamResponse:
        if expected and request.headers.get("Authorization") != expected:
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        if request.path.endswith("/"):
            return web.Response(body=content, content_type="text/html")
        return await good(request, content)

    links = []
    for file, data in wheels:
        fragment = f"#sha256={hashlib.sha256(data).hexdigest()}" if hashes else ""
        links.append(f'<a href="{at}/files/{file}{fragment}">{file}</a>')
    server.offer(f"{at}/{name}/", "\n".join(links).encode(), guarded)
    for file, data in wheels:
        server.offer(f"{at}/files/{file}", data, guarded)
