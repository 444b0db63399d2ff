"""Tools from npm in a lock: verified, the same with and without npm, and kept until asked."""

from __future__ import annotations

import asyncio
import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest
from mirror.npm import DARWIN, LINUX_ARM64, LINUX_X64, MUSL_X64, NODE, NpmRegistry, manifest
from mirror.npm_home import clean_home, hide_npm
from mirror.server import serving

from agentix.build.lock import load
from agentix.build.lock.file import Lock, loads
from agentix.build.lock.npm import NpmTools, lock_npm_tools
from agentix.errors import LockError
from agentix.folders import cache_folder
from agentix.progress import SILENT
from agentix.ungrouped import ungrouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BOTH: Mapping[str, Mapping[str, object]] = {
    "linux-x64": LINUX_X64,
    "linux-arm64": LINUX_ARM64,
    "linux-x64-musl": MUSL_X64,
    "darwin-arm64": DARWIN,
}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[NpmRegistry]:
    home = clean_home(monkeypatch, tmp_path)
    with serving() as server:
        registry = NpmRegistry(server)
        (home / ".npmrc").write_text(f"registry={registry.address}/\n")
        yield registry


def lock(root: Path, *releases: str, previous: Lock | None = None, released: str = "") -> NpmTools:
    with ungrouped():
        return asyncio.run(
            lock_npm_tools(releases, root, previous=previous, released={released}, progress=SILENT)
        )


def test_a_native_tool_is_locked_for_both_platforms_without_npm(
    registry: NpmRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.offer_native("@x/tool", BOTH)
    with_npm = lock(tmp_path, "@x/tool@1.0.0")
    hide_npm(monkeypatch, tmp_path)
    found = lock(tmp_path, "@x/tool@1.0.0")
    assert found == with_npm
    (tool,) = found.locked
    assert (tool.name, tool.version, found.node, found.missing) == ("@x/tool", "1.0.0", False, {})
    target = tool.targets["linux/arm64"]
    assert target.packages == {
        "node_modules/@x/tool": "x+tool-1.0.0.tgz",
        "node_modules/@x/tool-linux-arm64": "x+tool-linux-arm64-1.0.0.tgz",
    }
    assert target.programs == {"tool": "node_modules/@x/tool-linux-arm64/tool"}
    assert sorted(found.artifacts) == [
        "x+tool-1.0.0.tgz",
        "x+tool-linux-arm64-1.0.0.tgz",
        "x+tool-linux-x64-1.0.0.tgz",
    ]


def test_a_tarball_is_pinned_by_sha256_and_waits_for_the_store(
    registry: NpmRegistry, tmp_path: Path
) -> None:
    data = registry.offer(manifest("tool", bin="cli.js"), {"cli.js": NODE})
    found = lock(tmp_path, "tool@1.0.0")
    artifact = found.artifacts["tool-1.0.0.tgz"]
    assert found.node
    assert (artifact.sha256, artifact.size) == (hashlib.sha256(data).hexdigest(), len(data))
    waiting = cache_folder("downloads")
    assert (waiting / artifact.sha256 / "tool-1.0.0.tgz").read_bytes() == data
    assert [path.name for path in waiting.iterdir()] == [artifact.sha256]


def test_a_tarball_with_another_hash_leaves_nothing(registry: NpmRegistry, tmp_path: Path) -> None:
    wrong = {"integrity": "sha512-" + "A" * 86 + "=="}
    registry.offer(manifest("tool", bin="cli.js"), {"cli.js": NODE}, dist=wrong)
    with pytest.raises(
        LockError, match=r"tool@1.0.0 .*is not what the registry promised"
    ) as caught:
        lock(tmp_path, "tool@1.0.0")
    assert "\n" not in str(caught.value)
    assert list(cache_folder("downloads").iterdir()) == []


def test_a_platform_without_a_package_is_told_and_the_other_one_locked(
    registry: NpmRegistry, tmp_path: Path
) -> None:
    registry.offer_native(
        "tool", {"linux-x64": LINUX_X64, "linux-arm64-musl": {**LINUX_ARM64, "libc": ["musl"]}}
    )
    found = lock(tmp_path, "tool@1.0.0")
    assert list(found.locked[0].targets) == ["linux/amd64"]
    assert "tool@1.0.0 has no package for linux/arm64" in found.missing["linux/arm64"]
    registry.offer_native("mac", {"darwin": DARWIN, "linux-x64-musl": MUSL_X64})
    with pytest.raises(
        LockError, match=r"cannot lock mac@1.0.0: mac@1.0.0 has no package"
    ) as caught:
        lock(tmp_path, "mac@1.0.0")
    assert "\n" not in str(caught.value)


def test_an_install_script_that_would_matter_is_told(registry: NpmRegistry, tmp_path: Path) -> None:
    script: dict[str, Any] = {"scripts": {"install": "node-gyp rebuild"}}
    registry.offer_native("native", BOTH)
    needs = {"a": "1.0.0", "b": "1.0.0"}
    registry.offer(manifest("tool", bin="x.js", dependencies=needs, **script), {"x.js": NODE})
    registry.offer(manifest("a", hasInstallScript=True))
    registry.offer(manifest("b", scripts={"test": "x"}))
    found = lock(tmp_path, "tool@1.0.0", "native@1.0.0")
    assert found.scripted == ["a@1.0.0", "tool@1.0.0"]


@pytest.mark.parametrize(
    ("name", "program", "reason"),
    [
        ("tool", "../x", "programs.../x.[key]: must be a plain file name"),
        ("tool", "a\x1b[31m", "must be a plain file name"),
        ("t" * 214, "x", "must be at most 211 characters long"),
    ],
)
def test_names_that_no_lock_may_hold_are_refused_in_one_line(
    registry: NpmRegistry, tmp_path: Path, name: str, program: str, reason: str
) -> None:
    registry.offer(manifest(name, bin={program: "x.js"}), {"x.js": NODE})
    with pytest.raises(
        LockError, match=f"cannot lock {name}@1.0.0: .*{re.escape(reason)}"
    ) as caught:
        lock(tmp_path, f"{name}@1.0.0")
    assert str(caught.value).isprintable()


def test_a_release_that_is_not_there_is_told(registry: NpmRegistry, tmp_path: Path) -> None:
    registry.offer(manifest("tool", "2.0.0", bin="cli.js"), {"cli.js": NODE})
    with pytest.raises(LockError, match=r"has no tool@1.0.0; the latest is 2.0.0"):
        lock(tmp_path, "tool@1.0.0")


def test_what_is_locked_stays_until_it_is_released(
    registry: NpmRegistry, tmp_path: Path, examples_lock: Lock
) -> None:
    registry.offer(manifest("tool", dependencies={"a": "1.0.0"}, bin="x.js"), {"x.js": NODE})
    registry.offer(manifest("a"))
    first = lock(tmp_path, "tool@1.0.0")
    previous = with_tools(examples_lock, first)
    registry.offer(manifest("tool", bin="x.js"), {"x.js": NODE})
    asked = len(registry.server.requests)
    assert lock(tmp_path, "tool@1.0.0", previous=previous) == first
    assert len(registry.server.requests) == asked
    again = lock(tmp_path, "tool@1.0.0", previous=previous, released="tool")
    assert again.scripted == []
    assert len(again.locked[0].targets["linux/amd64"].packages) == 1


@pytest.fixture(scope="session")
def examples_lock() -> Lock:
    from pathlib import Path

    return load(Path(__file__).parents[3] / "examples/hello-world/bundle.lock")


def with_tools(lock: Lock, tools: NpmTools) -> Lock:
    return lock.model_copy(
        update={"npm": tuple(tools.locked), "artifacts": {**lock.artifacts, **tools.artifacts}}
    )


def test_a_lock_with_tools_reads_as_it_was_written_and_has_no_address(
    registry: NpmRegistry, tmp_path: Path, examples_lock: Lock
) -> None:
    registry.offer_native("@x/tool", BOTH)
    made = with_tools(examples_lock, lock(tmp_path, "@x/tool@1.0.0"))
    text = made.dumps()
    assert loads(text) == made
    assert "://" not in text
    assert registry.address not in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"node_modules/@x/tool": "x+tool-1', '"node_modules/@x/tool": "missing-1', "not among"),
        ('"node_modules/@x/tool":', '"../node_modules/@x/tool":', "below the archive's root"),
        ('"node_modules/@x/tool":', '"/node_modules/@x/tool":', "relative POSIX path"),
        ('"npm": true,', "", "of the wrong kind"),
        ('"tool": "node_modules', '"../tool": "node_modules', "plain file name"),
    ],
)
def test_a_damaged_lock_is_refused(
    registry: NpmRegistry, tmp_path: Path, examples_lock: Lock, old: str, new: str, reason: str
) -> None:
    registry.offer_native("@x/tool", BOTH)
    text = with_tools(examples_lock, lock(tmp_path, "@x/tool@1.0.0")).dumps()
    assert old in text
    with pytest.raises(LockError, match=reason) as caught:
        loads(text.replace(old, new))
    assert "\n" not in str(caught.value)


def test_a_lock_of_before_reads_and_is_written_as_it_was(examples_lock: Lock) -> None:
    old = examples_lock.model_copy(update={"npm": (), "nix": None, "plugins": None})
    assert loads(old.dumps()) == old
    assert '"npm"' not in old.dumps()
    assert '"plugins"' not in old.dumps()
