"""An engine's API: every use of the SDK, blocking and bounded, is in this file.

Podman speaks it as well; what the two do differently is said where it matters.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import tarfile
import time
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import docker
import requests
from docker.errors import APIError, DockerException

from agentix.errors import ImageError, ProviderError
from agentix.provider.docker import service, transport
from agentix.provider.docker.facts import Ability, Image, State
from agentix.provider.docker.problems import (
    RefusedError,
    no_such_way,
    one_line,
    why_no_connection,
)
from agentix.provider.kit import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentix.provider.docker.address import Address

TIMEOUT = 60
_BREAK = 0.1  # seconds in which it shows that the connections that are kept are broken, too
_FOLDER, _LINK = 1 << 31, 1 << 27  # of Go's file modes, which engines speak in


class Engine:
    """One connection to the engine, for the length of one operation.

    Every method raises ProviderError when the engine cannot be reached or refuses.
    """

    def __init__(self, where: Address, *, timeout: int | None = None) -> None:
        self.where = where
        self._timeout = TIMEOUT if timeout is None else timeout
        self.peer: int | None = None
        """The process that listens, where the kernel says which one it is."""
        self._connected: docker.APIClient | None = None

    def __enter__(self) -> Engine:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Reach the engine and agree on a version of its API."""
        if not self.where.url.isprintable():  # it would be told in pieces
            raise ProviderError(no_such_way(self.where.kind, self.where.url))
        if self.where.remote:
            self._connected = transport.client(self.where, timeout=self._timeout)
            return
        if self.where.ours:
            service.ensure(self.where.path)
        self.peer = _knock(self.where, self._timeout)
        # Podman takes half a second to tell its version, and speaks this one since its third.
        version = "1.41" if self.where.kind == "podman" else None
        with self._explained("agree on a version of its API"):
            self._connected = docker.APIClient(
                self.where.url, version=version, timeout=self._timeout
            )

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connected is not None:
            self._connected.close()

    @property
    def _api(self) -> docker.APIClient:
        assert self._connected is not None, "connect() comes first"  # noqa: S101 - a slip of ours
        return self._connected

    def facts(self) -> Mapping[str, Any]:
        """Return what the engine says of itself."""
        with self._explained("say what it is"):
            found: Mapping[str, Any] = self._api.info()
        return found

    def ability(self) -> Ability:
        """Return what the engine runs, and what it can limit."""
        with self._explained("say what it can do"):
            return Ability.of(self._api.info())

    def image(self, reference: str) -> Image | None:
        """Return the image called *reference*, or None when the engine has none.

        Raises ImageError when that cannot be the name of an image.
        """
        try:
            with self._explained(f"look for image {quoted(reference)}"):
                return Image.of(self._api.inspect_image(reference))  # type: ignore[no-untyped-call]
        except RefusedError as error:
            if error.status == 404:
                return None
            message = f"{quoted(reference)} is not the name of an image: {error.reason}"
            raise ImageError(message) from error

    def create(
        self, name: str, settings: Mapping[str, Any], host: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Create the container *name* without starting it; return what the engine warns of."""
        with self._explained(f"create a container from image {quoted(settings['image'])}"):
            config = self._api.create_host_config(**host)
            answer = self._api.create_container(name=name, host_config=config, **settings)
        return tuple(answer.get("Warnings") or ())

    def start(self, name: str) -> None:
        """Start the container *name*."""
        with self._explained(f"start container {name}"):
            self._api.start(name)

    def state(self, name: str) -> State | None:
        """Return how the container *name* is doing, or None when there is none."""
        try:
            with self._explained(f"inspect container {name}"):
                return State.of(self._api.inspect_container(name))
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def labelled(self, label: str) -> list[dict[str, Any]]:
        """Return what the engine lists of containers with this *label*, running or not."""
        with self._explained("list containers"):
            found: list[dict[str, Any]] = self._api.containers(all=True, filters={"label": label})
        return found

    def kind(self, name: str, path: str) -> str | None:
        """Return what *path* in the container is: "folder", "link" or "file"; None when nothing."""
        try:
            with self._explained(f"look into container {name}"):
                content, found = self._api.get_archive(name, path)
                mode, size = int(found["mode"]), int(found["size"])
                if not (mode & _FOLDER or size):
                    for _ in content:  # to the end: then the connection can go on
                        pass
        except RefusedError as error:
            if error.status == 404:
                return None
            raise
        content.close()
        return "folder" if mode & _FOLDER else "link" if mode & _LINK else "file"

    def names(self, name: str, path: str) -> set[str]:
        """Return what is in the folder *path* of the container; nothing when there is none."""
        try:
            with self._explained(f"look into container {name}"):
                content, _ = self._api.get_archive(name, path)
                with tarfile.open(fileobj=io.BytesIO(b"".join(content))) as found:
                    names = found.getnames()
        except RefusedError as error:
            if error.status == 404:
                return set()
            raise
        return {PurePosixPath(each).name for each in names[1:]}

    def put(self, name: str, path: str, tar: Iterator[bytes]) -> None:
        """Unpack *tar* into the folder *path* of the container; raises what *tar* raises."""
        with self._explained(f"put files into container {name}"):
            self._api.put_archive(name, path, tar)

    def drop_volume(self, name: str) -> None:
        """Remove the volume *name*, unless it is gone, or somebody uses it."""
        with self._gone_is_fine(), self._explained(f"remove volume {name}"):
            _insist(partial(self._api.remove_volume, name))

    def output(self, name: str, lines: int = 40) -> bytes:
        """Return the last *lines* that the container's processes printed."""
        with self._explained(f"read the output of container {name}"):
            output: bytes = self._api.logs(name, stdout=True, stderr=True, tail=lines)
        return output

    def stop(self, name: str, *, grace: int) -> None:
        """Ask the container to end, and kill it after *grace* seconds; fine if it is gone."""
        with self._gone_is_fine(), self._explained(f"stop container {name}"):
            _insist(partial(self._api.stop, name, timeout=grace))

    def remove(self, name: str) -> None:
        """Remove the container and its anonymous volumes, running or not; fine if it is gone."""
        with self._gone_is_fine(), self._explained(f"remove container {name}"):
            _insist(partial(self._api.remove_container, name, v=True, force=True))

    def pull(
        self, reference: str, platform: str, wanted: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        """Have the engine pull *reference*; *wanted* hears each sign of progress, and ends it.

        Raises RefusedError, whose reason is what the registry said.
        """
        what, problem = f"pull image {quoted(reference)}", None
        with self._explained(what):
            lines = self._api.pull(reference, platform=platform, stream=True, decode=True)
            for line in lines:  # to the end: a connection is closed only when all has been read
                problem = problem or line.get("error")
                if not wanted(line):
                    lines.close()
                    return
        if problem:
            raise RefusedError(self.where.kind, what, problem, 0)

    def load(self, pieces: Iterator[bytes]) -> None:
        """Have the engine load what ``docker save`` would have written, in *pieces*.

        Raises RefusedError when it cannot, and what *pieces* raises.
        """
        what, problem = "load an image", None
        with self._explained(what):
            for line in self._api.load_image(pieces):  # type: ignore[no-untyped-call]
                problem = problem or line.get("error") or line.get("message")
        if problem:
            raise RefusedError(self.where.kind, what, problem, 0)

    def drop(self, reference: str) -> bool:
        """Remove the image called *reference*; return False when a container still needs it."""
        try:
            with self._explained(f"remove image {quoted(reference)}"):
                self._api.remove_image(reference)
        except RefusedError as error:
            if error.status == 409:
                return False
            if error.status != 404:
                raise
        return True

    @contextlib.contextmanager
    def _gone_is_fine(self) -> Iterator[None]:
        try:
            yield
        except RefusedError as error:
            # 409: somebody else is removing it at this moment.
            if error.status not in {304, 404, 409}:
                raise

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn the SDK's errors into one line each that says what to do."""
        try:
            yield
        except APIError as error:
            reason = error.explanation or error
            raise RefusedError(self.where.kind, what, reason, error.status_code or 0) from error
        except (DockerException, requests.RequestException, OSError) as error:
            where = self.where
            # The SDK wraps what happens while it asks for the version.
            if any(
                isinstance(e, requests.Timeout | TimeoutError) for e in (error, error.__cause__)
            ):
                message = f"did not answer within {self._timeout} s, asked to {what}"
                engine = f"the {where.kind.title()} engine at {where.url}"
                raise ProviderError(f"{engine} {message}") from error
            message = f"{where.kind} cannot {what} at {where.url}: {one_line(error)}"
            raise ProviderError(message) from error


def _insist(ask: Callable[[], object]) -> None:
    """Ask for something that is over afterwards; once more where the connection breaks."""
    try:
        ask()
    except requests.ConnectionError:
        time.sleep(_BREAK)
        ask()


def _knock(where: Address, timeout: int) -> int | None:
    """Return who listens, if that can be told; raise ProviderError when nobody does.

    The SDK would hide why and leak the socket.
    """
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout)
            probe.connect(str(where.path))
            size = struct.calcsize("3i")
            answer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    except OSError as error:
        raise ProviderError(why_no_connection(where, error)) from error
    pid: int = struct.unpack("3i", answer)[0]
    return pid or None
