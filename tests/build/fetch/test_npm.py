"""Tarballs of npm tools come from the user's registry into the store, or not at all."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from mirror.fetching import bring, left_in_cache, stored
from mirror.npm import NODE, NpmRegistry, manifest
from mirror.npm_home import clean_home
from mirror.offers import content, package
from mirror.server import cut, good

from agentix.build.lock.npm import lock_npm_tools
from agentix.errors import FetchError
from agentix.progress import SILENT

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.server import Server

    from agentix.build.artifact import Artifact

pytestmark = pytest.mark.nix


@pytest.fixture
def registry(
    server: Server, surroundings: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> NpmRegistry:
    cache = os.environ["AGENTIX_CACHE_DIR"]
    home = clean_home(monkeypatch, tmp_path)
    monkeypatch.setenv("AGENTIX_CACHE_DIR", cache)
    registry = NpmRegistry(server)
    host = registry.address.partition(":")[2]
    (home / ".npmrc").write_text(f"registry={registry.address}\n{host}/:_authToken=sesame\n")
    return registry


def locked(root: Path, release: str) -> Artifact:
    tools = asyncio.run(
        lock_npm_tools([release], root, previous=None, released=(), progress=SILENT)
    )
    (artifact,) = tools.artifacts.values()
    return artifact


def fresh(name: str) -> dict[str, bytes | str | bytes]:
    return {"cli.js": NODE, "random": content(3000), "name": name}


def offer(registry: NpmRegistry, name: str, *behaviours: object) -> bytes:
    return registry.offer(manifest(name, bin="cli.js"), fresh(name), *behaviours)  # type: ignore[arg-type]


def test_what_was_locked_is_not_fetched_again(registry: NpmRegistry, tmp_path: Path) -> None:
    data = offer(registry, "@x/tool")
    artifact = locked(tmp_path, "@x/tool@1.0.0")
    asked = len(registry.server.requests)
    assert bring(artifact, project=tmp_path).files == 0
    assert stored(artifact) == data
    assert len(registry.server.requests) == asked
    assert left_in_cache() == []


def test_another_machine_fetches_it_with_the_users_token_and_goes_on_where_it_broke(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = offer(registry, "@x/tool", good, cut, good)
    artifact = locked(tmp_path, "@x/tool@1.0.0")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "another"))
    other = package(registry.server, content())
    assert bring(artifact, other, project=tmp_path).files == 2
    assert stored(artifact) == data
    assert stored(other)
    tarball = registry.server.asked("/npm/@x/tool/-/tool-1.0.0.tgz")
    assert {request.headers["Authorization"] for request in tarball} == {"Bearer sesame"}
    assert "Range" in tarball[-1].headers
    assert not any(
        "Authorization" in r.headers for r in registry.server.requests if "/npm" not in r.path
    )


def test_another_tarball_than_was_locked_is_refused(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(registry, "tool")
    artifact = locked(tmp_path, "tool@1.0.0")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "another"))
    offer(registry, "tool")  # with its own, right integrity
    with pytest.raises(
        FetchError, match=r"tool-1.0.0.tgz from .* is not what was locked"
    ) as caught:
        bring(artifact, project=tmp_path)
    assert "\n" not in str(caught.value)
    assert stored(artifact) is None
    assert left_in_cache() == []


@pytest.mark.parametrize("lost", ["/npm/tool", "/npm/tool/-/tool-1.0.0.tgz"])
def test_a_release_that_is_gone_is_one_line(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    offer(registry, "tool")
    artifact = locked(tmp_path, "tool@1.0.0")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "another"))
    del registry.server.files[lost]
    with pytest.raises(FetchError, match="lock another version") as caught:
        bring(artifact, project=tmp_path)
    assert "\n" not in str(caught.value)


def test_offline_it_is_named(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(registry, "tool")
    artifact = locked(tmp_path, "tool@1.0.0")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "another"))
    with pytest.raises(FetchError, match=r"offline nothing is fetched: tool-1.0.0.tgz"):
        bring(artifact, project=tmp_path, offline=True)
