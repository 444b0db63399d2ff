"""What a registry says, and what it may not get away with."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from mirror.npm import DARWIN, LINUX_X64, manifest
from mirror.server import cut, good, serving

from agentix.build.npm.package import Wanted
from agentix.build.npm.registry import NotThere, open_registry
from agentix.build.npm.resolving import resolve
from agentix.errors import LockError
from agentix.patience import Patience

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.npm import NpmRegistry

FAST = Patience(tries=3, first=0.01, longest=0.02)
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


async def busy(request: web.Request, content: bytes) -> web.StreamResponse:
    raise web.HTTPServiceUnavailable


async def resolved(root: Path, name: str = "tool", version: str = "1.0.0") -> list[str]:
    async with open_registry(root, FAST) as registry:
        found = await resolve(registry, Wanted(name, version), root)
    return sorted(f"{path}={package.version}" for path, package in found.items())


async def download(root: Path, name: str = "tool") -> tuple[str, int]:
    async with open_registry(root, FAST) as registry:
        release = await registry.release(Wanted(name, "1.0.0"))
        return await registry.download(release, root / "out.tgz")


async def test_a_tarball_is_what_the_registry_promised(
    registry: NpmRegistry, tmp_path: Path
) -> None:
    data = registry.offer(manifest("@x/tool"), {"a": "b"}, busy, cut, good)
    assert await download(tmp_path, "@x/tool") == (hashlib.sha256(data).hexdigest(), len(data))
    assert (tmp_path / "out.tgz").read_bytes() == data


async def test_a_release_of_long_ago_has_another_hash(
    registry: NpmRegistry, tmp_path: Path
) -> None:
    data = registry.offer(manifest("tool"))
    old = {"integrity": None, "shasum": hashlib.sha1(data).hexdigest()}
    registry.offer(manifest("tool"), dist=old)
    assert (await download(tmp_path))[0] == hashlib.sha256(data).hexdigest()


async def test_another_tarball_is_refused_in_one_line(
    registry: NpmRegistry, tmp_path: Path
) -> None:
    registry.offer(manifest("tool"), dist={"integrity": "sha512-" + "A" * 86 + "=="})
    with pytest.raises(LockError, match="is not what the registry promised") as caught:
        await download(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.tgz").exists()


async def test_a_mirror_is_asked_also_for_what_it_tells_of_its_upstream(
    registry: NpmRegistry, tmp_path: Path
) -> None:
    upstream = {"tarball": "https://upstream.invalid/tool/-/tool-1.0.0.tgz"}
    data = registry.offer(manifest("tool"), dist=upstream)
    assert (await download(tmp_path))[1] == len(data)


async def test_the_users_token_goes_to_the_registry_and_nowhere_else(
    registry: NpmRegistry, home: Path, tmp_path: Path
) -> None:
    host = registry.address.partition(":")[2]
    (home / ".npmrc").write_text(f"registry={registry.address}\n{host}/:_authToken=sesame\n")

    with serving() as elsewhere:

        async def guarded(request: web.Request, content: bytes) -> web.StreamResponse:
            if request.headers.get("Authorization") != "Bearer sesame":
                raise web.HTTPUnauthorized
            raise web.HTTPFound(f"{elsewhere.address}/tool.tgz")

        data = registry.offer(manifest("tool"), None, guarded)
        elsewhere.offer("/tool.tgz", data)
        assert (await download(tmp_path))[1] == len(data)
        assert "Authorization" in registry.server.asked("/npm/tool")[0].headers
        assert "Authorization" not in elsewhere.requests[0].headers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"<html>", "does not answer as an npm registry does"),
        (b"[]", "has no tool@1.0.0"),
        (b'{"versions": {"1.0.0": {"version": "?"}}}', "describes tool@1.0.0 oddly"),
        (b'{"versions": {"1.0.0": {"version": "1.0.0"}}}', "no usable hash of tool@1.0.0"),
        (b'{"versions": {"2.0.0": {}}, "dist-tags": {"latest": "2.0.0"}}', "the latest is 2.0.0"),
    ],
)
async def test_what_is_no_answer_is_told_in_one_line(
    registry: NpmRegistry, tmp_path: Path, answer: bytes, reason: str
) -> None:
    registry.server.offer("/npm/tool", answer)
    with pytest.raises(LockError, match=reason) as caught:
        await download(tmp_path)
    assert "\n" not in str(caught.value)


async def test_a_registry_that_is_gone_or_closed_is_named(
    registry: NpmRegistry, home: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotThere, match="does not have missing"):
        await download(tmp_path, "missing")

    async def closed(request: web.Request, content: bytes) -> web.StreamResponse:
        raise web.HTTPForbidden

    registry.server.offer("/npm/closed", b"", closed)
    with pytest.raises(LockError, match=r"answered 403 Forbidden; npm's settings need credentials"):
        await download(tmp_path, "closed")
    (home / ".npmrc").write_text("registry=http://127.0.0.1:1/\n")
    with pytest.raises(LockError, match=r"cannot fetch tool .*tried 3 times.*check the network"):
        await download(tmp_path)


def offer_exact(registry: NpmRegistry) -> None:
    needs: dict[str, Any]
    needs = {"optionalDependencies": {"a": "1.0.0", "gone": "1.0.0", "mac": "1.0.0"}}
    registry.offer(manifest("tool", dependencies={"b": "1.0.0"}, bin="x", **needs))
    registry.offer(manifest("a", **LINUX_X64))
    registry.offer(manifest("mac", **DARWIN))
    registry.offer(manifest("b", dependencies={"c": "npm:@x/real@2.0.0"}))
    registry.offer(manifest("@x/real", "2.0.0"))


async def test_without_npm_a_tool_that_leaves_no_choice_is_resolved(
    registry: NpmRegistry, without_npm: None, tmp_path: Path
) -> None:
    offer_exact(registry)
    assert await resolved(tmp_path) == [
        "node_modules/a=1.0.0",
        "node_modules/b=1.0.0",
        "node_modules/c=2.0.0",
        "node_modules/mac=1.0.0",
        "node_modules/tool=1.0.0",
    ]


@needs_npm
async def test_npm_resolves_the_same(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_exact(registry)
    own = await resolved(tmp_path)
    registry.offer(manifest("b", dependencies={"c": "npm:@x/real@>=2.0.0"}))  # now it is a choice
    assert await resolved(tmp_path) == own


async def test_a_tool_that_names_ever_more_packages_is_refused(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.build.npm.resolving._MOST", 9)
    for number in range(20):
        needs = {f"p{number + 1}": "1.0.0"}
        registry.offer(manifest(f"p{number}", bin="x.js", dependencies=needs))
    async with open_registry(tmp_path) as opened:
        with pytest.raises(LockError, match="it needs more than 9 packages"):
            await resolve(opened, Wanted("p0", "1.0.0"), tmp_path)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"dependencies": {"a": "^1.0.0"}}, r"tool@1.0.0 depends on a \^1.0.0"),
        ({"peerDependencies": {"a": "*"}}, r"depends on a \*"),
        ({"bundleDependencies": ["a"]}, "brings packages of its own"),
        ({"_hasShrinkwrap": True}, "brings packages of its own"),
    ],
)
async def test_without_npm_a_choice_names_npm(
    registry: NpmRegistry, without_npm: None, tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    registry.offer(manifest("tool", **more))
    with pytest.raises(LockError, match=f"{why}.*install npm to lock") as caught:
        await resolved(tmp_path)
    assert "\n" not in str(caught.value)


@needs_npm
async def test_npm_decides_and_runs_nothing(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_CONFIG_GLOBAL", "true")
    monkeypatch.setenv("NPM_CONFIG_OMIT", "optional")
    mark = tmp_path / "ran"
    scripts = {"postinstall": f"touch {mark}", "preinstall": f"touch {mark}"}
    registry.offer(manifest("tool", dependencies={"a": "^1.0.0"}, scripts=scripts))
    registry.offer(manifest("a", "1.0.0"))
    registry.offer(manifest("a", "1.5.0", scripts=scripts, optionalDependencies={"b": "1"}))
    registry.offer(manifest("a", "2.0.0"))
    registry.offer(manifest("b", "1.0.0"))
    assert await resolved(tmp_path) == [
        "node_modules/a=1.5.0",
        "node_modules/b=1.0.0",
        "node_modules/tool=1.0.0",
    ]
    assert not mark.exists()
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("node")) == []


@needs_npm
async def test_what_npm_cannot_resolve_is_told_in_one_line(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.offer(manifest("tool", dependencies={"a": "^7.0.0"}))
    registry.offer(manifest("a", "1.0.0"))
    with pytest.raises(LockError, match=r"npm cannot resolve tool@1.0.0: .*a@\^7") as caught:
        await resolved(tmp_path)
    assert "\n" not in str(caught.value)


@needs_npm
async def test_a_dependency_that_is_no_release_is_refused(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    (local / "package.json").write_text(json.dumps(manifest("a")))
    registry.offer(manifest("tool", dependencies={"a": f"file:{local}"}))
    with pytest.raises(LockError, match="a comes from a folder, and of npm only releases"):
        await resolved(tmp_path)
