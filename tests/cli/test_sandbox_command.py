"""``agentix sandbox``: a table for people, JSON for scripts; a broken provider stops nobody."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import eventually
from procfs import runs
from stub_runtime import make_entry, python

from agentix.provider.base import SandboxId
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Agentix = Callable[..., subprocess.CompletedProcess[str]]

PLUGIN = """
from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.base import SandboxProvider
from agentix.provider.kit import RuntimeFolder

class Shelf(SandboxProvider):
    name = "shelf"
    async def create(self, config): ...
    async def delete(self, sandbox_id):
        if RuntimeFolder.find(sandbox_id)[1].get("stuck"):
            raise ProviderError(f"sandbox {sandbox_id} is stuck")
    async def get(self, sandbox_id):
        raise SandboxNotFound("it has ended")

class Deaf(Shelf):
    name = "deaf"
    async def list(self):
        raise ProviderError("the engine of deaf does not answer; start it")

class Vague(Shelf):
    name = "vague"
    async def list(self):
        return None
    async def prune(self, **options):
        return ()

class Wild(Shelf):
    def __init__(self):
        raise ZeroDivisionError("no\\nway")
"""
POINTS = """[agentix.provider]
broken = agentix_missing:Broken
deaf = agentix_shelf:Deaf
shelf = agentix_shelf:Shelf
vague = agentix_shelf:Vague
wild = agentix_shelf:Wild
"""


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A short place for folders: pytest's own is too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        yield Path(folder)


@pytest.fixture
def agentix(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agentix:
    """Run the command where only this test's sandboxes are."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):  # what others run there is theirs
        monkeypatch.setenv(name, f"unix://{tmp_path}/no-engine")

    def run(*words: str, plugins: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ)
        if plugins is not None:
            environment["PYTHONPATH"] = str(plugins)
        code = "from agentix.cli import main; main()"
        return subprocess.run(
            [sys.executable, "-c", code, "sandbox", *words],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )

    return run


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    info = site / "agentix_shelf-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentix-shelf\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    (site / "agentix_shelf.py").write_text(PLUGIN)
    return site


def abandoned(**facts: Any) -> SandboxId:
    """Leave a sandbox whose owner is gone."""
    folder = RuntimeFolder.create("shelf", "im\x1b[31mage")
    folder.record(facts)
    path = folder.path / "record.json"
    content = json.loads(path.read_text())
    content["owner"]["started"] -= 1
    content["created"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps(content))
    return folder.sandbox_id


def problems(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the complaints, less those about engines that this machine may lack."""
    ours = re.compile(r"agentix: (provider (broken|deaf|vague|wild|shelf) |cannot remove )")
    return [line for line in done.stderr.splitlines() if ours.match(line)]


def test_without_sandboxes_it_says_so(agentix: Agentix) -> None:
    done = agentix("list")
    assert (done.returncode, done.stdout) == (0, "no sandboxes\n")
    assert json.loads(agentix("list", "--format", "json").stdout) == []
    assert agentix("prune").stdout == "nothing to remove\n"


def test_an_engine_that_was_chosen_and_cannot_be_reached_is_reported(agentix: Agentix) -> None:
    for command, status in (("list", 0), ("prune", 1)):
        done = agentix(command)
        assert done.returncode == status
        assert "agentix: provider docker was left out: no Docker engine at unix://" in done.stderr


def test_the_table_has_one_line_a_sandbox_and_nothing_that_acts_on_a_terminal(
    agentix: Agentix, plugins: Path
) -> None:
    left = abandoned()
    owned = RuntimeFolder.create("shelf", "debian:12")
    owned.record({})
    done = agentix("list", plugins=plugins)
    assert done.returncode == 0
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["SANDBOX", "STATUS", "IMAGE", "CREATED", "OWNER"]
    assert re.fullmatch(
        rf"{left}  exited  im\\x1b\[31mage  \d+ days ago  gone \(was .+ pid {os.getpid()}\)", first
    )
    assert re.match(rf"{owned.sandbox_id}  exited  debian:12 +(now|\d+ seconds? ago) +", second)
    assert f"pid {os.getpid()}" in second
    assert "gone" not in second
    column = head.index("IMAGE")
    assert first[column:].startswith("im")
    assert second[column:].startswith("debian")


def test_json_has_every_field_and_nothing_else_on_stdout(agentix: Agentix, plugins: Path) -> None:
    left = abandoned()
    (document,) = json.loads(agentix("list", "--format", "json", plugins=plugins).stdout)
    assert document == {
        "sandbox_id": left,
        "provider": "shelf",
        "image": "im\x1b[31mage",
        "status": "exited",
        "created": "2020-01-01T00:00:00+00:00",
        "owner": document["owner"],
        "abandoned": True,
    }
    assert document["owner"]["pid"] == os.getpid()


def test_providers_that_cannot_be_asked_are_named_and_stop_none_of_the_others(
    agentix: Agentix, plugins: Path
) -> None:
    left = abandoned()
    done = agentix("list", "--format", "json", plugins=plugins)
    assert [each["sandbox_id"] for each in json.loads(done.stdout)] == [left]
    assert done.returncode == 0
    said = problems(done)
    assert len(said) == 4
    assert "broken was left out: agentix-shelf does not load: ModuleNotFoundError" in said[0]
    assert said[1].endswith("deaf was left out: the engine of deaf does not answer; start it")
    assert "vague was left out: TypeError: " in said[2]
    assert said[3].endswith("wild was left out: ZeroDivisionError: no way")
    pruned = agentix("prune", plugins=plugins)
    assert pruned.stdout == f"removed {left} (im\\x1b[31mage, exited)\n"
    assert pruned.returncode == 1, "something may be left that could not be looked for"
    without = [line for line in problems(pruned) if "vague" not in line]
    assert without == [line for line in said if "vague" not in line]


def test_what_stays_is_named_and_fails_the_command(
    agentix: Agentix, plugins: Path, runtime: Path
) -> None:
    (plugins / "agentix_shelf-1.2.dist-info/entry_points.txt").write_text(
        "[agentix.provider]\nshelf = agentix_shelf:Shelf\n"
    )
    stuck, left = abandoned(stuck=True), abandoned()
    dry = agentix("prune", "--dry-run", plugins=plugins)
    assert sorted(line.split()[:3] for line in dry.stdout.splitlines()) == sorted(
        ["would", "remove", each] for each in (stuck, left)
    )
    assert {path.name for path in (runtime / "agentix").iterdir()} == {stuck, left}
    done = agentix("prune", "--format", "json", plugins=plugins)
    document = json.loads(done.stdout)
    assert [each["sandbox_id"] for each in document["removed"]] == [left]
    assert [each["error"] for each in document["failed"]] == [f"sandbox {stuck} is stuck"]
    assert done.returncode == 1
    assert problems(done) == [f"agentix: cannot remove {stuck}: sandbox {stuck} is stuck"]
    assert [path.name for path in (runtime / "agentix").iterdir()] == [stuck]


OWNER = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    async def main():
        config = SandboxConfig(image="host", bundle=sys.argv[1])
        print((await BubblewrapProvider().create(config)).sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


@pytest.mark.bubblewrap
def test_a_killed_hosts_sandbox_is_shown_and_pruned(
    agentix: Agentix, runtime: Path, tmp_path: Path
) -> None:
    owner = subprocess.Popen(
        python(OWNER, str(make_entry(tmp_path))), stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        sandbox_id = SandboxId(owner.stdout.readline().strip())
        try:
            (running,) = agentix("list").stdout.splitlines()[1:]
            assert running.split()[:3] == [sandbox_id, "running", "host"]
            assert agentix("prune", "--all").stdout == "nothing to remove\n"
        finally:
            owner.kill()
    first = RuntimeFolder.find(sandbox_id)[1]["first"]["pid"]
    eventually(lambda: not runs(first), "the sandbox ends", within=10)
    (left,) = agentix("list").stdout.splitlines()[1:]
    assert left.split()[:2] == [sandbox_id, "exited"]
    assert left.endswith(f" pid {owner.pid})")
    assert " gone (was " in left
    assert agentix("prune").stdout == f"removed {sandbox_id} (host, exited)\n"
    assert list((runtime / "agentix").iterdir()) == []
