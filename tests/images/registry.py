"""A registry on loopback: Debian's docker-registry, behind a front that can be unwell.

The clients are the real ones, and so is what answers them, but for what a test asks the front for.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import socket
import subprocess
import tarfile
import urllib.error
import urllib.request
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from patience import eventually_async

from images.archives import CONFIG, LAYER, MANIFEST, write_oci_layout
from images.build import cache_root
from images.config import TaskImage
from images.debian import download, held

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


NAME = "agentix-test/task"
INDEX = "application/vnd.oci.image.index.v1+json"
USER, PASSWORD = "somebody", "secret"
# The line of an htpasswd file for them.
_HTPASSWD = f"{USER}:$2b$04$IN2XZRhH034Oqk7T/wiU8ey0y1VUgujLq0XjDNbuXy/vfz4GwFIXS\n"
_PASSED_ON = ("Accept", "Authorization", "Content-Type", "Range")


@functools.cache
def program() -> Path:
    """Return Debian's docker-registry, unpacked rather than installed: nothing may start it."""
    folder = cache_root() / "programs"
    folder.mkdir(parents=True, exist_ok=True)
    (package,) = download("bookworm", ("docker-registry",), cache_root(), alone=True)
    target = folder / package.stem
    with held(folder / "docker-registry.lock"):
        if not target.exists():
            draft = target.with_name(f".{target.name}")
            subprocess.run(["dpkg-deb", "-x", package, draft], check=True, timeout=60)
            draft.rename(target)
    return target / "usr/bin/docker-registry"


@dataclass(frozen=True, slots=True)
class Published:
    """What a registry has of one image."""

    manifest: bytes
    blobs: tuple[bytes, ...]
    kind: str = MANIFEST

    @property
    def digest(self) -> str:
        """The hex by which the image is known."""
        return hashlib.sha256(self.manifest).hexdigest()

    @classmethod
    def of(cls, image: TaskImage, scratch: Path) -> Published:
        """Return what there is of a task image, in one layer."""
        archive = write_oci_layout(image, Path(scratch, "published.tar"), tag="1")
        found: dict[str, bytes] = {}
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                found[member.name] = content.read()
        digest = json.loads(found["index.json"])["manifests"][0]["digest"]
        manifest = found.pop(f"blobs/sha256/{digest.removeprefix('sha256:')}")
        return cls(manifest, tuple(data for name, data in found.items() if "blobs" in name))

    @classmethod
    def layered(
        cls, layers: Sequence[tuple[bytes, bytes, str]], architecture: str, **config: Any
    ) -> Published:
        """Return an image of *layers*: each a tar, the same as it is sent, and how it is packed."""
        description = json.dumps(
            {
                "architecture": architecture,
                "os": "linux",
                "config": config,
                "rootfs": {"type": "layers", "diff_ids": [_digest(tar) for tar, _, _ in layers]},
            }
        ).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, description),
            "layers": [_descriptor(LAYER + packing, sent) for _, sent, packing in layers],
        }
        blobs = (description, *(sent for _, sent, _ in layers))
        return cls(json.dumps(manifest).encode(), blobs)

    @classmethod
    def index(cls, images: dict[str, Published]) -> Published:
        """Return an index of *images* by architecture; they must have been pushed before."""
        entries = [
            _descriptor(each.kind, each.manifest)
            | {"platform": {"os": "linux", "architecture": name}}
            for name, each in images.items()
        ]
        content = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
        return cls(json.dumps(content).encode(), (), INDEX)


class Registry:
    """Serves *image*, and what else is pushed; the first *failures* pulls meet *status*.

    A *stuck* one says that it has the image, and never sends it; a *private* one asks who it is.
    """

    def __init__(
        self,
        image: TaskImage | Published | None,
        scratch: Path,
        failures: int = 0,
        status: int = 502,
        stuck: asyncio.Event | None = None,
        private: bool = False,
    ) -> None:
        scratch.mkdir(exist_ok=True)
        self._image = Published.of(image, scratch) if isinstance(image, TaskImage) else image
        self._scratch = scratch
        self._failures = failures
        self._status = status
        self._stuck = stuck
        self._private = private
        self._behind = ""
        self._over = asyncio.Event()
        self.pulls = 0
        self.blobs = 0
        self.port = 0

    @property
    def address(self) -> str:
        """Where it is, as the first part of a name."""
        return f"127.0.0.1:{self.port}"

    @property
    def reference(self) -> str:
        """The usual name of the usual image."""
        return f"{self.address}/{NAME}:1"

    def login(self) -> str:
        """Return the file of somebody who has logged in, in the form that all clients read."""
        secret = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return json.dumps({"auths": {self.address: {"auth": secret}}})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Registry]:
        """Listen on a free port, which docker takes for insecure but fine."""
        async with self.alone(), aiohttp.ClientSession(auto_decompress=False) as session:
            app = web.Application()
            app.router.add_get("/v2/", self._hello)
            app.router.add_route("*", "/{path:.*}", functools.partial(self._pass_on, session))
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.port = runner.addresses[0][1]
                if self._image is not None:
                    await self.push(self._image)
                yield self
            finally:
                self._over.set()
                await runner.cleanup()

    async def push(self, published: Published, tag: str = "1") -> None:
        """Have *tag* of the usual name mean *published*."""
        await asyncio.to_thread(self._push, published, tag)

    def _push(self, published: Published, tag: str) -> None:
        base = f"{self._behind}/v2/{NAME}"
        for blob in published.blobs:
            place = self._send("POST", f"{base}/blobs/uploads/", b"")
            joint = "&" if "?" in place else "?"
            self._send("PUT", f"{place}{joint}digest={_digest(blob)}", blob)
        self._send("PUT", f"{base}/manifests/{tag}", published.manifest, published.kind)

    def _send(
        self, method: str, url: str, data: bytes, kind: str = "application/octet-stream"
    ) -> str:
        headers = {"Content-Type": kind}
        if self._private:
            secret = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        request = urllib.request.Request(url, data, headers, method=method)
        with _direct().open(request, timeout=60) as answer:
            return str(answer.headers.get("Location", ""))

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[str]:
        """Give the address of the registry itself, without a front."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._behind = f"http://127.0.0.1:{port}"
        folder = self._scratch / f"registry-{port}"
        folder.mkdir()
        settings: dict[str, Any] = {
            "version": "0.1",
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": {"addr": f"127.0.0.1:{port}", "secret": "of a test"},
        }
        if self._private:
            (folder / "htpasswd").write_text(_HTPASSWD)
            settings["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        (folder / "config.yml").write_text(json.dumps(settings))  # all JSON is YAML
        path = await asyncio.to_thread(program)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [path, "serve", folder / "config.yml"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
            )  # fmt: skip
        try:
            await eventually_async(
                functools.partial(_answers, self._behind), "the registry answers", within=30
            )
            yield self._behind
        finally:
            process.kill()
            process.wait()

    async def _hello(self, request: web.Request) -> web.StreamResponse:
        self.pulls += 1
        if self._private and "Authorization" not in request.headers:
            headers = {"WWW-Authenticate": 'Basic realm="test"'}
            return web.json_response({"errors": []}, status=401, headers=headers)
        return web.json_response({}, headers={"Docker-Distribution-Api-Version": "registry/2.0"})

    async def _pass_on(
        self, session: aiohttp.ClientSession, request: web.Request
    ) -> web.StreamResponse:
        if "/manifests/" in request.path and self.pulls <= self._failures:
            return web.Response(status=self._status, headers={"Retry-After": "0"})
        if "/blobs/" in request.path:
            self.blobs += 1
            if self._stuck is not None:
                self._stuck.set()
                await self._over.wait()
                raise web.HTTPGone
        headers = [(k, v) for k, v in request.headers.items() if k.title() in _PASSED_ON]
        url = self._behind + request.raw_path
        async with session.request(request.method, url, headers=headers) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() != "transfer-encoding"}
            body = await answer.read()
            if request.method == "HEAD":
                response = web.StreamResponse(status=answer.status, headers=kept)
                response.content_length = int(kept.get("Content-Length", 0))
                return response
            kept.pop("Content-Length", None)
            return web.Response(status=answer.status, headers=kept, body=body)


def _answers(url: str) -> bool:
    try:
        with _direct().open(f"{url}/v2/", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == 401
    except OSError:
        return False


def _direct() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _descriptor(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
