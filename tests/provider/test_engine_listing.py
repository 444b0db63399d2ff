"""Sandboxes of engines that do not answer."""

from __future__ import annotations

import contextlib
import json
import socketserver
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from agentix.errors import ProviderError
from agentix.provider.docker import DockerProvider, PodmanProvider, address, listing
from agentix.provider.docker.container import IMAGE, PROCESS, SANDBOX, STARTED
from agentix.provider.owner import Owner
from agentix.provider.runtime_folder import RuntimeFolder
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    Provider = type[DockerProvider]

BOTH = pytest.mark.parametrize(
    ("provider", "kind"), [(DockerProvider, "docker"), (PodmanProvider, "podman")]
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test a place for folders of its own, and engines that are not there."""
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        for name in ("DOCKER_HOST", "CONTAINER_HOST"):
            monkeypatch.setenv(name, f"unix://{folder}/no-engine")
        yield Path(folder)


@contextlib.contextmanager
def engine(path: Path, containers: list[dict[str, Any]] | None) -> Iterator[None]:
    """Have an engine at *path* that lists these containers; None: it fails when it is asked to."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listed = "/containers/json" in self.path
            answer = containers if listed else {"ApiVersion": "1.41"}
            body = json.dumps({"message": "no"} if answer is None else answer).encode()
            self.send_response(500 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "here"

        def log_message(self, *_: object) -> None:
            pass

    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def listed(sandbox_id: str, name: str, state: str, **labels: str) -> dict[str, Any]:
    labels = {SANDBOX: sandbox_id, PROCESS: Owner.current().text(), **labels}
    return {"Names": [f"/{name}"], "State": state, "Labels": labels}


@BOTH
async def test_what_else_has_the_label_of_a_sandbox_does_not_hide_it(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    sandbox_id = f"{kind}-abc"
    containers = [
        listed(sandbox_id, f"agentix-{sandbox_id}", "running", **{IMAGE: "x", STARTED: "never"}),
        listed(sandbox_id, f"agentix-{sandbox_id}-sweep", "exited"),
        listed(f"{kind}-def", "nothing", "running") | {"Names": None},
    ]
    with engine(nowhere / "no-engine", containers):
        (found,) = await provider().list()
    assert (found.sandbox_id, found.status, found.image) == (sandbox_id, "running", "x")


@BOTH
async def test_an_owner_that_can_be_none_is_nobody(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    odd = Owner.current().model_copy(update={"pid": 10**300}).text()
    container = listed(f"{kind}-abc", f"agentix-{kind}-abc", "running", **{PROCESS: odd})
    with engine(nowhere / "no-engine", [container]):
        assert await provider().list() == []


@BOTH
async def test_another_engine_that_fails_hides_nothing(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    folder = RuntimeFolder.create(kind, "some:image")
    folder.record({"engine": f"unix://{nowhere}/another"})
    with engine(nowhere / "another", None):
        (found,) = await provider().list()
    assert (found.sandbox_id, found.status) == (folder.sandbox_id, "running")


@BOTH
async def test_an_engine_of_which_nothing_is_recorded_need_not_be_there(
    provider: Provider,
    kind: Literal["docker", "podman"],
    nowhere: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.delenv(name)
    where = address.Address(kind, f"unix://{nowhere}/no-engine")
    monkeypatch.setattr(listing, "locate", lambda _: where)
    assert await provider().list() == []


@BOTH
async def test_an_engine_that_was_chosen_does_not_pass_for_one_that_has_nothing(
    provider: Provider, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProviderError, match=f"no {kind.title()} engine at"):
        await provider().list()
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.setenv(name, "npipe://elsewhere")
    with pytest.raises(ProviderError, match="npipe://elsewhere"):
        await provider().prune()


@BOTH
@pytest.mark.parametrize("way", ["unix:///no\nengine", "tcp://no\nengine:1", "no\nengine"])
async def test_an_address_in_several_lines_is_told_on_one(
    provider: Provider, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        monkeypatch.setenv(name, way)
    with pytest.raises(ProviderError) as caught:
        await provider().list()
    assert plain(way) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_podman_is_not_started_merely_to_say_that_it_has_nothing(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTAINER_HOST")
    monkeypatch.setattr("agentix.provider.docker.address._podman_sockets", lambda: iter(()))
    assert await PodmanProvider().list() == []
    assert not (nowhere / "agentix/podman.sock").exists()


@BOTH
async def test_an_engine_that_has_sandboxes_and_does_not_answer_is_named(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    folder = RuntimeFolder.create(kind, "some:image")
    folder.record({"engine": f"unix://{nowhere}/no-engine"})
    with pytest.raises(ProviderError, match=f"no {kind.title()} engine at"):
        await provider().list()


@BOTH
async def test_another_engine_that_does_not_answer_hides_nothing(
    provider: Provider, kind: str, nowhere: Path
) -> None:
    folder = RuntimeFolder.create(kind, "some:image")
    folder.record({"engine": f"unix://{nowhere}/another"})
    (found,) = await provider().list()
    assert (found.sandbox_id, found.status) == (folder.sandbox_id, "running")
    assert not found.abandoned
