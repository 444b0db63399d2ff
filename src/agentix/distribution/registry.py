"""The OCI's distribution protocol, as far as bundles need it: one method for each thing to do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from yarl import URL

from agentix.distribution.artifact import INDEX, MANIFEST, MAX_DOCUMENT, digest_of
from agentix.distribution.connection import Connection, Passing, bounded
from agentix.errors import DistributionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Self

    import aiohttp

    from agentix.distribution.connection import Body
    from agentix.distribution.place import Place
    from agentix.patience import Patience


class Registry:
    """One repository of one registry; with *write*, to put something there.

    Every method raises DistributionError for what does not go, after as many tries as make sense.
    Plain HTTP is spoken only with this machine, or where *insecure* allows it.
    """

    def __init__(self, place: Place, *, write: bool, insecure: bool, patience: Patience) -> None:
        self.place = place
        self._scope = f"repository:{place.repository}:{'pull,push' if write else 'pull'}"
        self._connection = Connection(place, self._scope, insecure=insecure, patience=patience)
        self.patiently = self._connection.patiently
        self.failed = self._connection.failed

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.__aexit__()

    async def manifest(self, reference: str) -> tuple[bytes, str] | None:
        """Return the document behind a tag or ``sha256:…``, and its type; None if there is none."""
        accept = f"{INDEX}, {MANIFEST}"

        async def ask() -> tuple[bytes, str] | None:
            url = self._connection.url(f"manifests/{reference}")
            async with self._connection.answer("GET", url, {"Accept": accept}) as response:
                if response.status == 404:
                    return None
                await self._connection.expect(response, 200)
                data = await bounded(response, MAX_DOCUMENT)
                return data, response.content_type

        found = await self.patiently(ask)
        if found is not None and reference.startswith("sha256:"):
            self._compare(found[0], reference)
        return found

    async def put_manifest(self, reference: str, data: bytes, media_type: str) -> None:
        """Have *reference*, a tag or a digest, mean the document *data*."""

        async def put() -> None:
            url = self._connection.url(f"manifests/{reference}")
            headers = {"Content-Type": media_type}
            async with self._connection.answer("PUT", url, headers, data) as response:
                await self._connection.expect(response, 201, 200, 204)

        await self.patiently(put)

    async def has(self, digest: str) -> bool:
        """Tell whether the repository has the blob *digest*."""

        async def ask() -> bool:
            async with self._connection.answer(
                "HEAD", self._connection.url(f"blobs/{digest}")
            ) as response:
                if response.status != 404:
                    await self._connection.expect(response, 200)
                return response.status == 200

        return await self.patiently(ask)

    async def mount(self, digest: str, repository: str) -> bool:
        """Have the blob *digest* here, too, if another *repository* of the registry has it."""
        query = {"mount": digest, "from": repository}
        scope = f"{self._scope} repository:{repository}:pull"
        try:
            async with self._connection.answer(
                "POST", self._connection.url("blobs/uploads/").with_query(query), scope=scope
            ) as response:
                return response.status == 201
        except (Passing, DistributionError):
            return False  # it was a short cut

    async def upload(self, digest: str, size: int, body: Body) -> None:
        """Send a blob, from its beginning again where a try breaks off."""

        async def send() -> None:
            url = self._connection.url("blobs/uploads/")
            async with self._connection.answer("POST", url) as response:
                await self._connection.expect(response, 202)
                place = self._connection.location(response, url)
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            joint = "&" if place.raw_query_string else "?"
            place = URL(f"{place}{joint}digest={digest.replace(':', '%3A')}", encoded=True)
            async with self._connection.answer("PUT", place, headers, body, size=size) as response:
                if response.status in (404, 416):
                    raise Passing("the registry has forgotten what was sent")
                await self._connection.expect(response, 201, 200, 204)

        await self.patiently(send)

    async def blob(self, digest: str, limit: int) -> bytes:
        """Return the blob *digest*, of at most *limit* bytes."""

        async def ask() -> bytes:
            async with self._connection.answer(
                "GET", self._connection.url(f"blobs/{digest}")
            ) as response:
                await self._connection.expect(response, 200)
                return await bounded(response, limit)

        data = await self.patiently(ask)
        self._compare(data, digest)
        return data

    @asynccontextmanager
    async def reading(
        self, digest: str, offset: int
    ) -> AsyncIterator[tuple[int, aiohttp.StreamReader]]:
        """Open the blob *digest* for reading, at *offset* or, where that cannot be, before it.

        Gives where it begins, and the rest. Raises Passing when another try may go better.
        """
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        async with self._connection.answer(
            "GET", self._connection.url(f"blobs/{digest}"), headers
        ) as response:
            if response.status == 206:
                said = response.headers.get("Content-Range", "")
                if not said.startswith(f"bytes {offset}-"):
                    raise Passing("the registry sent another part than it was asked for")
            else:
                await self._connection.expect(response, 200)
            yield offset if response.status == 206 else 0, response.content

    def _compare(self, data: bytes, digest: str) -> None:
        if digest_of(data) != digest:
            raise DistributionError(f"{self.place.host} sent something else than {digest}")
