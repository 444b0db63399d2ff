"""The Docker engine's API: every use of the SDK, blocking and bounded, is in this file."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import docker
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException

from agentix.errors import ImageError, ProviderError
from agentix.provider.docker.problems import (
    RefusedError,
    one_line,
    why_no_connection,
    why_not_pulled,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping

TIMEOUT = 60
_log = logging.getLogger("agentix.provider.docker")

LOCAL = "unix://"
DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
RETRIES = 3
# What registries answer when they mean "not now": too many requests, or a failure of their own.
PASSING = ("toomanyrequests", "429 ", "500 ", "502 ", "503 ", "504 ")


@dataclass(frozen=True, slots=True)
class Image:
    """What the engine knows of an image; ``platform`` is empty when the image does not say."""

    id: str
    platform: str
    environment: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """How a container is doing: ``status`` is Docker's word, the rest tells how it ended."""

    id: str
    status: str
    exit_code: int
    out_of_memory: bool
    problem: str
    labels: Mapping[str, str]

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.status in {"created", "running", "paused", "restarting"}

    @property
    def end(self) -> str:
        """How it ended, in a few words."""
        words = [f"exit code {self.exit_code}"]
        if self.out_of_memory:
            words.append("out of memory")
        return ", ".join([*words, self.problem] if self.problem else words)


def address() -> str:
    """Return where the engine listens: DOCKER_HOST, else the context that the docker CLI uses.

    Raises ProviderError when that is another machine, which cannot see the bundle or the socket.
    """
    chosen = os.environ.get("DOCKER_HOST") or _context()
    if not chosen.startswith(LOCAL):
        raise ProviderError(
            f"the Docker engine at {chosen} may be on another machine, and remote engines are not"
            f" supported in this version; set DOCKER_HOST to the socket of an engine on this"
            f" machine, such as {DEFAULT_ADDRESS}"
        )
    return chosen


def _context() -> str:
    with contextlib.suppress(Exception):  # a broken ~/.docker must not stop the default engine
        return str(ContextAPI.get_current_context().Host or DEFAULT_ADDRESS)
    return DEFAULT_ADDRESS


class Engine:
    """One connection to the engine, for the length of one operation.

    Every method raises ProviderError when the engine cannot be reached or refuses.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._connected: docker.APIClient | None = None

    def __enter__(self) -> Engine:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Reach the engine and agree on a version of its API."""
        _knock(self._where)
        with self._explained("agree on a version of its API"):
            self._connected = docker.APIClient(base_url=self._where, timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connected is not None:
            self._connected.close()

    @property
    def _api(self) -> docker.APIClient:
        assert self._connected is not None, "connect() comes first"  # noqa: S101 - a slip of ours
        return self._connected

    def platform(self) -> str:
        """Return the platform that the engine runs, such as ``linux/amd64``."""
        with self._explained("ask for the engine's version"):
            version = self._api.version()
        return f"{version['Os']}/{version['Arch']}"

    def image(self, reference: str) -> Image | None:
        """Return the image called *reference*, or None when the engine has none.

        Raises ImageError when that cannot be the name of an image.
        """
        try:
            with self._explained(f"look for image {reference!r}"):
                found: dict[str, Any] = self._api.inspect_image(reference)  # type: ignore[no-untyped-call]
        except RefusedError as error:
            if error.status == 404:
                return None
            message = f"{reference!r} is not the name of an image: {error.reason}"
            raise ImageError(message) from error
        config = found.get("Config") or {}
        platform = f"{found['Os']}/{found['Architecture']}" if found.get("Architecture") else ""
        command = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
        return Image(found["Id"], platform, tuple(config.get("Env") or ()), tuple(command))

    def create(self, name: str, settings: Mapping[str, Any], host: Mapping[str, Any]) -> None:
        """Create the container *name* without starting it."""
        with self._explained(f"create a container from image {settings['image']!r}"):
            config = self._api.create_host_config(**host)
            self._api.create_container(name=name, host_config=config, **settings)

    def start(self, name: str) -> None:
        """Start the container *name*."""
        with self._explained(f"start container {name}"):
            self._api.start(name)

    def state(self, name: str) -> State | None:
        """Return how the container *name* is doing, or None when there is none."""
        try:
            with self._explained(f"inspect container {name}"):
                found = self._api.inspect_container(name)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise
        state = found["State"]
        return State(
            id=found["Id"],
            status=state["Status"],
            exit_code=state["ExitCode"],
            out_of_memory=state["OOMKilled"],
            problem=state["Error"],
            labels=found["Config"]["Labels"] or {},
        )

    def link_target(self, name: str, path: str) -> str:
        """Return where the link *path* in the container leads; empty when it is none."""
        try:
            with self._explained(f"look into container {name}"):
                content, found = self._api.get_archive(name, path)
        except RefusedError as error:
            if error.status == 404:
                return ""
            raise
        content.close()
        return str(found["linkTarget"])

    def output(self, name: str, lines: int = 40) -> bytes:
        """Return the last *lines* that the container's processes printed."""
        with self._explained(f"read the output of container {name}"):
            output: bytes = self._api.logs(name, stdout=True, stderr=True, tail=lines)
        return output

    def stop(self, name: str, *, grace: int) -> None:
        """Ask the container to end, and kill it after *grace* seconds; fine if it is gone."""
        with self._gone_is_fine(), self._explained(f"stop container {name}"):
            self._api.stop(name, timeout=grace)

    def remove(self, name: str) -> None:
        """Remove the container and its anonymous volumes, running or not; fine if it is gone."""
        with self._gone_is_fine(), self._explained(f"remove container {name}"):
            self._api.remove_container(name, v=True, force=True)

    def pull(
        self,
        reference: str,
        platform: str,
        stop: threading.Event,
        advance: Callable[[int], None],
    ) -> None:
        """Have the engine pull *reference*; try again when its registry says "not now".

        *advance* hears how many bytes have arrived; *stop* ends it at the next sign of progress.
        Raises ImageError when the image cannot be had.
        """
        pause = 1.0
        for attempt in range(1, RETRIES + 1):
            try:
                self._pull(reference, platform, stop, advance)
            except RefusedError as error:
                again = attempt < RETRIES and any(sign in error.reason for sign in PASSING)
                if not again:
                    raise ImageError(why_not_pulled(reference, platform, error.reason)) from error
                _log.warning("pulling %s again in %g s: %s", reference, pause, error.reason)
            else:
                return
            if stop.wait(pause):
                return
            pause *= 2

    def _pull(
        self, reference: str, platform: str, stop: threading.Event, advance: Callable[[int], None]
    ) -> None:
        had: dict[str, int] = {}
        with self._explained(f"pull image {reference!r}"):
            lines = self._api.pull(reference, platform=platform, stream=True, decode=True)
            for line in lines:
                if stop.is_set():
                    lines.close()
                    return
                if problem := line.get("error"):
                    raise RefusedError(f"pull image {reference!r}", problem, 0)
                if line.get("status") == "Downloading":
                    now = line.get("progressDetail", {}).get("current", 0)
                    advance(max(0, now - had.get(line["id"], 0)))
                    had[line["id"]] = now

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
            raise RefusedError(what, reason, error.status_code or 0) from error
        except (requests.Timeout, TimeoutError) as error:
            message = f"did not answer within {TIMEOUT} s, asked to {what}"
            raise ProviderError(f"the Docker engine at {self._where} {message}") from error
        except (DockerException, requests.RequestException, OSError) as error:
            message = f"docker cannot {what} at {self._where}: {one_line(error)}"
            raise ProviderError(message) from error


def _knock(where: str) -> None:
    """Raise ProviderError when nobody listens; the SDK would hide why and leak the socket."""
    path = where.removeprefix(LOCAL)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(TIMEOUT)
            probe.connect(path)
    except OSError as error:
        raise ProviderError(why_no_connection(where, path, error)) from error
