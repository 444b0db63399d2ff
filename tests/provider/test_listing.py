"""Which sandboxes are shown, and which nobody will take away any more: by their records alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.base import (
    Owner,
    Sandbox,
    SandboxConfig,
    SandboxId,
    SandboxInfo,
    SandboxProvider,
)
from agentix.provider.processes import ProcessRef, here
from agentix.provider.runtime_folder import FORGOTTEN, RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shelf(SandboxProvider):
    """Sandboxes that are their folders; they live as long as those say so."""

    name = "shelf"

    async def create(self, config: SandboxConfig) -> Sandbox:
        folder = RuntimeFolder.create(self.name, config.image)
        folder.record({"lives": True})
        return await self.get(folder.sandbox_id)

    async def delete(self, sandbox_id: SandboxId) -> None:
        try:
            folder, facts = RuntimeFolder.find(sandbox_id, self.name)
        except SandboxNotFound:
            return
        if facts.get("stuck"):
            raise ProviderError(f"sandbox {sandbox_id} is stuck")
        folder.remove()

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        folder, facts = RuntimeFolder.find(sandbox_id, self.name)
        if not facts["lives"]:
            raise SandboxNotFound(f"sandbox {sandbox_id} has ended")
        return Sandbox(SandboxInfo(sandbox_id, folder.url, "running"), token=folder.token)


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short place for folders: pytest's own is too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder, "agentix")


def made(*, lives: bool = True, owner: dict[str, Any] | None = None, **facts: Any) -> RuntimeFolder:
    folder = RuntimeFolder.create("shelf", "some:image")
    folder.record({"lives": lives, **facts})
    if owner is not None:
        path = folder.path / "record.json"
        content = json.loads(path.read_text())
        content["owner"] |= owner
        path.write_text(json.dumps(content))
    return folder


def gone() -> dict[str, Any]:
    """Who was an owner: a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    reference = ProcessRef.of(ended.pid)
    ended.communicate(b"\n")
    return {"pid": reference.pid, "started": reference.started}


def aged(path: Path) -> None:
    before = path.stat().st_mtime - FORGOTTEN - 1
    os.utime(path, (before, before))


async def test_a_sandbox_is_shown_with_what_its_maker_knows() -> None:
    sandbox = await Shelf().create(SandboxConfig(image="debian:12", bundle="b"))
    (listed,) = await Shelf().list()
    assert (listed.sandbox_id, listed.provider) == (sandbox.sandbox_id, "shelf")
    assert (listed.image, listed.status, listed.abandoned) == ("debian:12", "running", False)
    assert listed.owner == Owner.current()
    assert listed.owner.pid == os.getpid()
    assert listed.created is not None
    assert listed.created.tzinfo is not None


async def test_only_its_own_are_a_providers() -> None:
    made()
    for other in ("shelf2", "my-shelf", "shelf-x"):
        RuntimeFolder.create(other).record({})
    assert len(await Shelf().list()) == 1

    class Nameless(Shelf):
        name = ""

    assert await Nameless().list() == []


@pytest.mark.parametrize(
    ("lives", "owner", "listed", "prunable", "prunable_with_running"),
    [
        (True, "this", ("running", False), False, False),
        (False, "this", ("exited", False), False, False),
        (True, "gone", ("running", True), False, True),
        (False, "gone", ("exited", True), True, True),
        (False, "its number is another's", ("exited", True), True, True),
        (False, "before this boot", ("exited", True), True, True),
        (True, "in another namespace", ("running", False), False, False),
        (False, "in another namespace", ("exited", False), False, True),
        (False, "on another machine", ("exited", False), False, True),
    ],
)
async def test_what_a_living_process_owns_is_never_pruned(
    lives: bool,
    owner: str,
    listed: tuple[str, bool],
    prunable: bool,
    prunable_with_running: bool,
) -> None:
    itself = Owner.current()
    folder = made(
        lives=lives,
        owner={
            "this": {},
            "gone": gone(),
            "its number is another's": {"started": itself.started - 1},
            "before this boot": {"boot": "another"},
            "in another namespace": {"namespace": 1},
            "on another machine": {"boot": "another", "host": "another"},
        }[owner],
    )
    (found,) = await Shelf().list()
    assert (found.status, found.abandoned) == listed
    for running, expected in ((False, prunable), (True, prunable_with_running)):
        would = await Shelf().prune(running=running, dry_run=True)
        assert would.removed == ((found,) if expected else ())
        assert folder.path.exists()
    done = await Shelf().prune(running=True)
    assert done.removed == ((found,) if prunable_with_running else ())
    assert folder.path.exists() is not prunable_with_running


async def test_what_is_just_being_made_is_not_shown_until_its_maker_is_gone() -> None:
    folder = RuntimeFolder.create("shelf", "some:image")
    assert await Shelf().list() == []
    with pytest.raises(SandboxNotFound):
        await Shelf().get(folder.sandbox_id)
    path = folder.path / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"owner": other_owner()}))
    (listed,) = await Shelf().list()
    assert (listed.status, listed.abandoned, listed.image) == ("exited", True, "some:image")
    assert (await Shelf().prune()).removed == (listed,)
    assert not folder.path.exists()


def other_owner() -> dict[str, Any]:
    return Owner.current().model_dump() | gone()


def spoil(path: Path, how: str) -> None:
    whole = path.read_text()
    path.unlink()
    match how:
        case "missing":
            pass
        case "half":
            path.write_text(whole[: len(whole) // 2])
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a link":
            target = path.with_name("elsewhere")
            target.write_text(whole)
            path.symlink_to(target)
        case "a loop":
            path.symlink_to(path)
        case "endless":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "closed":
            path.touch(mode=0)
        case text:
            path.write_text(text)


def open_files() -> list[str]:
    """Return the names of what this process has open."""
    found = []
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(file.readlink()))
    return found


HOSTILE = [
    *("missing", "half", "a pipe", "a folder", "a link", "a loop", "endless", "closed"),
    *("", "null", "[]", "{}", '{"format": 2}', "\0" * 4096, "[" * 100_000, "é" * 9),
]


@pytest.mark.parametrize("how", HOSTILE, ids=lambda how: repr(how[:12]))
async def test_a_record_that_makes_no_sense_hides_nothing_and_stops_nobody(how: str) -> None:
    sound = made()
    folder = made()
    spoil(folder.path / "record.json", how)
    assert {each.sandbox_id for each in await Shelf().list()} == {sound.sandbox_id}, "may be new"
    aged(folder.path)
    listed = {each.sandbox_id: each for each in await Shelf().list()}
    assert set(listed) == {sound.sandbox_id, folder.sandbox_id}
    broken = listed[folder.sandbox_id]
    assert (broken.status, broken.owner, broken.abandoned) == ("exited", None, True)
    assert (await Shelf().prune()).removed == (broken,)
    assert not folder.path.exists()
    assert sound.path.exists()
    assert [name for name in open_files() if folder.sandbox_id in name or "/.leaving" in name] == []


@pytest.mark.parametrize(
    "change",
    [
        {"token": 5},
        {"created": "yesterday"},
        {"created": "2026-01-01T00:00:00"},
        {"owner": {"pid": 1}},
        {"owner": None},
        {"facts": []},
        {"format": 1},
        {"more": 1},
    ],
    ids=str,
)
async def test_every_field_of_a_record_is_checked(change: dict[str, Any]) -> None:
    folder = made()
    path = folder.path / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert folder.read_record() is None
    with pytest.raises(SandboxNotFound):
        RuntimeFolder.find(folder.sandbox_id)


async def test_without_a_record_it_runs_while_somebody_listens() -> None:
    folder = made()
    spoil(folder.path / "record.json", "half")
    aged(folder.path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder.socket))
        server.listen(1)
        (listed,) = await Shelf().list()
        assert (listed.status, listed.abandoned) == ("running", False)
        assert (await Shelf().prune(running=True)).removed == ()
    (listed,) = await Shelf().list()
    assert (listed.status, listed.abandoned) == ("exited", True)


async def test_a_link_in_place_of_the_socket_is_not_followed(tmp_path: Path) -> None:
    folder = made()
    with tempfile.TemporaryDirectory(prefix="ax") as short, socket.socket(socket.AF_UNIX) as server:
        other = Path(short, "s")
        server.bind(str(other))
        server.listen(1)
        folder.socket.symlink_to(other)
        assert not folder.listens()


async def test_files_and_links_beside_the_folders_are_no_sandboxes(
    base: Path, tmp_path: Path
) -> None:
    made()
    (base / "shelf-000000000000").touch()
    (base / "shelf-111111111111").symlink_to(tmp_path)
    (base / "podman.sock").touch()
    assert len(await Shelf().list()) == 1


async def test_folders_in_a_place_that_others_could_have_prepared_are_not_looked_at(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(lives=False, owner=gone())
    base.chmod(0o777)
    assert await Shelf().list() == []
    assert (await Shelf().prune(running=True)).removed == ()
    base.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert await Shelf().list() == []


async def test_one_that_cannot_be_removed_stops_none_of_the_others() -> None:
    owner = gone()
    stuck = made(lives=False, owner=owner, stuck=True)
    others = {made(lives=False, owner=owner).sandbox_id for _ in range(3)}
    done = await Shelf().prune()
    assert {each.sandbox_id for each in done.removed} == others
    ((listed, error),) = done.failed
    assert listed.sandbox_id == stuck.sandbox_id
    assert "is stuck" in str(error)


async def test_a_provider_that_fails_in_its_own_way_stops_none_of_the_others() -> None:
    owner = gone()
    odd = made(lives=False, owner=owner).sandbox_id
    others = {made(lives=False, owner=owner).sandbox_id for _ in range(3)}

    class Odd(Shelf):
        async def delete(self, sandbox_id: SandboxId) -> None:
            if sandbox_id == odd:
                raise KeyError("no such thing")
            await super().delete(sandbox_id)

    done = await Odd().prune()
    assert {each.sandbox_id for each in done.removed} == others
    ((listed, error),) = done.failed
    assert listed.sandbox_id == odd
    assert "raised KeyError: 'no such thing'" in str(error)


async def test_those_that_take_long_do_not_wait_for_one_another() -> None:
    class Slow(Shelf):
        """All of them have to be on their way before one is gone."""

        together = asyncio.Barrier(4)

        async def delete(self, sandbox_id: SandboxId) -> None:
            async with asyncio.timeout(30):
                await self.together.wait()
            await super().delete(sandbox_id)

    owner = gone()
    ids = {made(lives=False, owner=owner).sandbox_id for _ in range(4)}
    assert {each.sandbox_id for each in (await Slow().prune()).removed} == ids


async def test_prunes_and_deletions_at_once_get_along(base: Path) -> None:
    owner = gone()
    for _ in range(20):
        ids = [made(lives=False, owner=owner).sandbox_id for _ in range(5)]
        provider = Shelf()
        results = await asyncio.gather(
            *(provider.prune() for _ in range(3)), *(provider.delete(each) for each in ids)
        )
        assert all(not each.failed for each in results if each is not None)
        assert list(base.iterdir()) == []


def test_a_folder_is_removed_by_one_of_all_who_try(base: Path) -> None:
    for _ in range(20):
        folder = made()
        for name in range(50):
            (folder.mount / f"d{name}").mkdir()
            (folder.mount / f"d{name}" / "file").touch()
        errors: list[Exception] = []

        def remove(folder: RuntimeFolder = folder, errors: list[Exception] = errors) -> None:
            try:
                folder.remove()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=remove) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert list(base.iterdir()) == []


async def test_what_a_killed_process_had_begun_to_remove_is_removed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(lives=False, owner=gone())
    with monkeypatch.context() as patch:
        patch.setattr("agentix.provider.runtime_folder.remove", lambda _: None)
        with pytest.raises(ProviderError, match="cannot remove"):
            folder.remove()
    assert len(list(base.iterdir())) == 1
    assert await Shelf().list() == []
    await Shelf().prune()
    assert len(list(base.iterdir())) == 1, "somebody may be at work on it"
    monkeypatch.setattr("agentix.provider.runtime_folder.FORGOTTEN", -1.0)
    await Shelf().prune()
    assert list(base.iterdir()) == []


async def test_a_record_is_not_written_for_what_was_taken_away() -> None:
    folder = RuntimeFolder.create("shelf")
    folder.remove()
    with pytest.raises(ProviderError, match="was taken away"):
        folder.record({})
    assert not folder.path.exists()


def test_an_owner_is_the_same_on_one_line() -> None:
    owner = Owner.current()
    assert "\n" not in owner.text()
    assert Owner.parse(owner.text()) == owner
    assert owner.lives() is True
    for wrong in ("", "0@host", "{}", b"\xff", owner.text()[:-1]):
        assert Owner.parse(wrong) is None


def test_a_place_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    boot, namespace = here()
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert str(namespace) in str(Path("/proc/self/ns/pid").readlink())
