"""A registry of one image, on loopback, that can be unwell: the engine's client is the real one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from images.archives import MANIFEST, write_oci_layout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from images.config import TaskImage

NAME = "agentix-test/task"


class Registry:
    """Serves *image* as ``agentix-test/task:1``; the first *failures* pulls meet *status*.

    A *stuck* one says that it has the image, and never sends it.
    """

    def __init__(
        self,
        image: TaskImage,
        scratch: Path,
        failures: int = 0,
        status: int = 502,
        stuck: asyncio.Event | None = None,
    ) -> None:
        archive = write_oci_layout(image, Path(scratch, "registry.tar"), tag="1")
        self._blobs: dict[str, bytes] = {}
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                data = content.read()
                self._blobs[f"sha256:{hashlib.sha256(data).hexdigest()}"] = data
                if member.name == "index.json":
                    self._manifest = str(json.loads(data)["manifests"][0]["digest"])
        self._failures = failures
        self._status = status
        self._stuck = stuck
        self.pulls = 0
        self.port = 0

    @property
    def reference(self) -> str:
        """The name of the image."""
        return f"127.0.0.1:{self.port}/{NAME}:1"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Registry]:
        """Listen on a free port of loopback, which the engine takes for insecure but fine."""
        app = web.Application()
        app.router.add_get("/v2/", self._hello)
        app.router.add_get(f"/v2/{NAME}/manifests/{{name}}", self._get_manifest)
        app.router.add_get(f"/v2/{NAME}/blobs/{{name}}", self._get_blob)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()

    async def _hello(self, _request: web.Request) -> web.Response:
        self.pulls += 1
        return web.json_response({})

    async def _get_manifest(self, request: web.Request) -> web.Response:
        if self.pulls <= self._failures:
            return web.Response(status=self._status)
        name = request.match_info["name"]
        if name not in {"1", self._manifest}:
            error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
            return web.json_response({"errors": [error]}, status=404)
        headers = {"Docker-Content-Digest": self._manifest}
        body = self._blobs[self._manifest]
        return web.Response(body=body, content_type=MANIFEST, headers=headers)

    async def _get_blob(self, request: web.Request) -> web.Response:
        if self._stuck is not None:
            self._stuck.set()
            await asyncio.sleep(60)
        return web.Response(body=self._blobs[request.match_info["name"]])
