"""A collection takes what nobody uses and nothing else, whatever goes on, and however it ends."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from patience import eventually

from agentix.bundle import BundleCache, collecting, holding, staging, waiting
from agentix.bundle.collecting import collect
from agentix.bundle.holding import unused
from agentix.bundle.mounted import mounted
from agentix.bundle.notes import notes_size
from agentix.bundle.objects import Objects
from agentix.bundle.removal import erase
from agentix.bundle.usage import survey
from agentix.errors import BundleError
from bundle.handmade import listing, nar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentix.bundle import CachedBundle
    from bundle.handmade import Workshop

DAY = 86400.0

# Opens what it is told to, says so, and keeps it until its input ends.
HOLDER = """
import os, sys
from pathlib import Path
from agentix.bundle import BundleCache
held = BundleCache(Path(sys.argv[1])).open(sys.argv[2])
if len(sys.argv) > 3 and os.fork() == 0:
    os.close(1)
    os.read(0, 1)
    os._exit(0)
print("held", flush=True)
os.read(0, 1)
"""

# Stops where its argument says, says so, and waits to be killed.
STUCK = """
import sys
from pathlib import Path
from agentix.bundle import collecting, staging
def stop(*_):
    print("stuck", flush=True)
    sys.stdin.readline()
if sys.argv[2] == "removing":
    staging.remove = stop
elif sys.argv[2] == "objects":
    collecting._take_objects = stop
elif sys.argv[2] == "entry":
    move = Path.rename
    Path.rename = lambda path, to: stop() if path.parent.name == "bundles" else move(path, to)
else:
    collecting.mounted = stop
collecting.collect(Path(sys.argv[1]), older_than=0)
"""


def run(script: str, *words: object) -> subprocess.Popen[str]:
    """Start *script* and wait until it says where it is."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, words)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


@pytest.fixture
def tars(workshop: Workshop, tmp_path: Path) -> list[Path]:
    """Three bundles, each with 100,000 bytes of its own and 200,000 that all have."""
    common = {"common": os.urandom(200_000)}
    return [
        workshop.bundle(common | {f"own-{number}": os.urandom(100_000)})
        .write(tmp_path / f"{number}.tar")
        .path
        for number in range(3)
    ]


def deployed(cache: BundleCache, tar: Path, *, days: float = 0) -> str:
    """Deploy *tar* as if it had been used last so many days ago."""
    ref = cache.deploy(tar).ref
    then = time.time() - days * DAY
    os.utime(cache.root / "bundles" / ref / "lease", (then, then))
    return ref


def there(cache: BundleCache) -> set[str]:
    return {path.name for path in (cache.root / "bundles").iterdir()}


def litter(cache: BundleCache) -> list[Path]:
    return list((cache.root / "staging").iterdir())


def test_what_was_not_used_for_long_goes_and_its_own_bytes_with_it(
    cache: BundleCache, tars: list[Path]
) -> None:
    old = deployed(cache, tars[0], days=31)
    young = deployed(cache, tars[1], days=29)
    objects = set(Objects(cache.root / "store").all())
    done = collect(cache.root, older_than=30 * DAY)
    assert [each.ref for each in done.removed] == [old]
    assert there(cache) == {young}
    assert done.freed >= 100_000
    assert done.left == survey(cache.root).size
    gone = objects - set(Objects(cache.root / "store").all())
    assert [name[33:] for name in gone] == ["own-0"], "and what others have, stays"
    assert cache.open(young).ref == young
    assert litter(cache) == []


def test_opening_a_bundle_is_a_use_and_looking_at_it_is_none(
    cache: BundleCache, tars: list[Path]
) -> None:
    from agentix.bundle.verifying import check_cache

    opened, looked_at = (deployed(cache, tar, days=31) for tar in tars[:2])
    cache.open(opened)
    check_cache(cache.root)
    survey(cache.root)
    assert [each.ref for each in collect(cache.root, older_than=30 * DAY).removed] == [looked_at]


def test_a_use_lasts_until_it_ends(cache: BundleCache, tars: list[Path]) -> None:
    """A sandbox that ran for longer than bundles are kept has used its bundle just now."""
    ref = deployed(cache, tars[0])
    used = cache.open(ref)
    os.utime(used.path / "lease", (0, 0))
    del used
    assert collect(cache.root, older_than=30 * DAY).removed == ()


def test_a_limit_takes_the_longest_unused_first_and_no_more_than_needed(
    cache: BundleCache, tars: list[Path]
) -> None:
    first, second, third = (
        deployed(cache, tar, days=days) for tar, days in zip(tars, (1, 3, 2), strict=True)
    )
    size = survey(cache.root).size
    limit = size - 50_000
    dry = collect(cache.root, older_than=30 * DAY, max_size=limit, dry_run=True)
    assert there(cache) == {first, second, third}
    done = collect(cache.root, older_than=30 * DAY, max_size=limit)
    assert [each.ref for each in done.removed] == [second] == [each.ref for each in dry.removed]
    assert (done.freed, done.left) == (dry.freed, dry.left)
    assert done.left <= limit
    assert collect(cache.root, older_than=30 * DAY, max_size=limit).removed == ()
    collect(cache.root, older_than=30 * DAY, max_size=0)
    assert there(cache) == set()


def test_sizes_tell_what_is_shared_from_what_a_bundle_has_alone(
    cache: BundleCache, tars: list[Path]
) -> None:
    refs = [deployed(cache, tar) for tar in tars]
    usage = survey(cache.root)
    common, own = len(nar(b"x" * 200_000)), len(nar(b"x" * 100_000))
    alone = {each.ref: each.size - usage.shared(each) for each in usage.bundles}
    for ref in refs:
        assert own <= alone[ref] < own + 5000, "its root is its own, too"
    assert all(usage.shared(each) > common for each in usage.bundles)
    assert usage.size == sum(alone.values()) + usage.shared(usage.bundles[0])


def test_what_a_process_holds_stays_until_it_ends_however_it_ends(
    cache: BundleCache, tars: list[Path]
) -> None:
    ref = deployed(cache, tars[0])
    with run(HOLDER, cache.root, ref) as holder:
        done = collect(cache.root, older_than=0)
        assert (done.removed, [each.ref for each in done.kept]) == ((), [ref])
        assert survey(cache.root).bundles[0].in_use
        holder.kill()
    assert [each.ref for each in collect(cache.root, older_than=0).removed] == [ref]


def test_what_a_process_has_forked_holds_nothing(cache: BundleCache, tars: list[Path]) -> None:
    ref = deployed(cache, tars[0])
    with run(HOLDER, cache.root, ref, "fork") as holder:
        assert collect(cache.root, older_than=0).removed == ()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(30)
        assert there(cache) == {ref}
        assert [each.ref for each in collect(cache.root, older_than=0).removed] == [ref]


def test_this_process_holds_a_bundle_as_long_as_it_refers_to_it(
    cache: BundleCache, tars: list[Path]
) -> None:
    for tar in tars[:1]:
        first, second = cache.deploy(tar), cache.open(tar)
        del first
        assert collect(cache.root, older_than=0).removed == ()
        assert second.nix.is_dir()
        del second
    assert len(collect(cache.root, older_than=0).removed) == 1


def test_what_the_kernel_has_mounted_stays_though_nobody_holds_it(
    cache: BundleCache, tars: list[Path], tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    ref = deployed(cache, tars[0])
    place = tmp_path / "place"
    place.mkdir()
    mount = ["mount", "--bind", str(cache.root / "bundles" / ref / "nix"), str(place)]
    if subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("this machine forbids mounting")
    try:
        assert collect(cache.root, older_than=0).removed == ()
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=60)
    assert len(collect(cache.root, older_than=0).removed) == 1


def test_another_who_only_looks_at_a_bundle_does_not_use_it(
    cache: BundleCache, tars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = deployed(cache, tars[0])
    looking = ExitStack()
    looking.enter_context(unused(cache.root / "bundles" / ref))
    monkeypatch.setattr("agentix.bundle.waiting.time.sleep", lambda _: looking.close())
    assert not survey(cache.root).bundles[0].in_use


def test_who_begins_to_use_a_bundle_that_was_chosen_keeps_it(
    cache: BundleCache, tars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = deployed(cache, tars[0], days=31)
    held: list[CachedBundle] = []

    def survey_then_open(root: Path) -> object:
        found = survey(root)
        if not held:
            held.append(cache.open(ref))
        return found

    monkeypatch.setattr(collecting, "survey", survey_then_open)
    done = collect(cache.root, older_than=DAY)
    assert (done.removed, [each.ref for each in done.kept]) == ((), [ref])
    held.clear()
    gc.collect()
    monkeypatch.undo()
    assert collect(cache.root, older_than=DAY).removed == (), "it was used just now"


def test_an_opening_that_meets_a_removal_finds_the_bundle_or_does_not(
    cache: BundleCache, tars: list[Path]
) -> None:
    """Never one that is on its way out."""
    ref = deployed(cache, tars[0])
    entry = cache.root / "bundles" / ref
    with ThreadPoolExecutor(1) as pool:
        with unused(entry) as free:
            assert free
            opening = pool.submit(cache.open, ref)
            entry.rename(cache.root / "gone")
        with pytest.raises(BundleError, match="is not"):
            opening.result(60)
    erase(cache.root / "gone")


def assert_whole(entry: CachedBundle, tar: Path, folder: Path) -> None:
    assert listing(entry.path) == listing(BundleCache(folder).deploy(tar).path)


def test_a_new_entry_is_not_taken_for_one_that_was_gone_when_it_was_locked(
    cache: BundleCache, tars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another collection was faster, and somebody has deployed the same bundle again."""
    ref = deployed(cache, tars[0], days=-1)  # of a clock that was wrong, so no time tells
    held: list[CachedBundle] = []

    def locking(*args: Any) -> bool:
        monkeypatch.undo()
        erase(cache.root / "bundles" / ref)
        held.append(cache.deploy(tars[0]))
        return waiting.lock(*args)

    take = collecting._take

    def taking(*args: Any) -> bool:
        monkeypatch.setattr(holding, "lock", locking)
        return take(*args)

    monkeypatch.setattr(collecting, "_take", taking)
    assert collect(cache.root, older_than=0).removed == ()
    assert_whole(held[0], tars[0], tmp_path / "fresh")


def test_a_new_entry_is_not_taken_for_one_that_was_gone_before(
    cache: BundleCache, tars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = deployed(cache, tars[0])
    held: list[CachedBundle] = []
    take = collecting._take

    def looking() -> set[str]:
        held.append(cache.deploy(tars[0]))
        return mounted()

    def taking(*args: Any) -> bool:
        erase(cache.root / "bundles" / ref)
        return take(*args)

    monkeypatch.setattr(collecting, "mounted", looking)
    monkeypatch.setattr(collecting, "_take", taking)
    collect(cache.root, older_than=0)
    assert_whole(held[0] if held else cache.deploy(tars[0]), tars[0], tmp_path / "fresh")


def test_nothing_is_put_in_the_place_of_what_is_not_whole_while_that_is_taken(
    cache: BundleCache, tars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = cache.root / "bundles" / deployed(cache, tars[0])
    (entry / "lease").unlink()
    (entry / "manifest.json").unlink()
    monkeypatch.setattr("agentix.bundle.objects._PATIENCE", 0.0)
    looked = []

    def looking() -> set[str]:
        with pytest.raises(BundleError, match="has been removing store paths"):
            cache.deploy(tars[0])
        looked.append(True)
        return mounted()

    monkeypatch.setattr(collecting, "mounted", looking)
    assert len(collect(cache.root, older_than=0).removed) == 1
    assert looked


@pytest.mark.parametrize("where", ["removing", "objects", "taking", "entry"])
def test_a_killed_collection_harms_nothing_and_the_next_one_finishes(
    cache: BundleCache, tars: list[Path], where: str
) -> None:
    for tar in tars[:2]:
        (cache.root / "uv" / f"{deployed(cache, tar)}-3.11/lib").mkdir(parents=True)
    with run(STUCK, cache.root, where) as process:
        process.kill()
    for ref in there(cache):
        cache.open(ref)
    again = cache.deploy(tars[2])
    fresh = BundleCache(cache.root.parent / "fresh").deploy(tars[2])
    assert listing(again.path) == listing(fresh.path)
    assert litter(cache) == [], "a deploy tidies up as well"
    del again
    collect(cache.root, older_than=0)
    assert there(cache) == set()
    assert Objects(cache.root / "store").all() == {}
    assert list((cache.root / "uv").iterdir()) == []


def test_what_killed_deploys_have_left_goes_with_any_collection(
    cache: BundleCache, tars: list[Path]
) -> None:
    deployed(cache, tars[0])
    left = cache.root / "staging/left"
    (left / "new/nix").mkdir(parents=True)
    (cache.root / "staging/left.lock").touch()
    loose = cache.root / "store/loose"
    (loose / "tree").mkdir(parents=True)
    collect(cache.root, older_than=DAY)
    assert litter(cache) == []
    assert not loose.exists()
    assert len(there(cache)) == 1


def test_nothing_shared_is_taken_from_a_deploy_under_way(
    cache: BundleCache, tars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed(cache, tars[0])
    arrived, go_on = threading.Event(), threading.Event()
    place = Objects.place

    def slowly(self: Objects, *args: object) -> None:
        arrived.set()
        assert go_on.wait(60)
        place(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Objects, "place", slowly)
    with ThreadPoolExecutor(1) as pool:
        deploying = pool.submit(BundleCache(cache.root).deploy, tars[1])
        assert arrived.wait(60)
        done = collect(cache.root, older_than=0)
        assert len(done.removed) == 1, "a whole bundle that nobody uses goes all the same"
        go_on.set()
        entry = deploying.result(60)
    fresh = BundleCache(cache.root.parent / "fresh").deploy(tars[1])
    assert listing(entry.path) == listing(fresh.path)


def test_collections_deploys_and_openings_at_once_harm_nobody(
    cache: BundleCache, tars: list[Path]
) -> None:
    whole = {
        (entry := BundleCache(cache.root.parent / "fresh").deploy(tar)).ref: listing(entry.nix)
        for tar in tars
    }
    end = time.monotonic() + 60
    removed = threading.Semaphore(0)
    enough = threading.Event()
    problems: list[str] = []

    def use(number: int) -> None:
        while not enough.is_set():
            number += 1
            entry = BundleCache(cache.root).deploy(tars[number % 3])
            if listing(entry.nix) != whole[entry.ref]:
                problems.append(f"{entry.ref} is not whole while it is held")

    def clear() -> None:
        while not enough.is_set():
            for _ in collect(cache.root, older_than=0).removed:
                removed.release()

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(use, 0), pool.submit(use, 1), pool.submit(clear), pool.submit(clear)]
        try:
            for _ in range(6):
                assert removed.acquire(timeout=max(0, end - time.monotonic()))
        finally:
            enough.set()
        for each in work:
            each.result(60)
    assert problems == []
    gc.collect()
    collect(cache.root, older_than=0)
    assert there(cache) == set()
    assert Objects(cache.root / "store").all() == {}
    assert litter(cache) == []


def test_what_was_made_of_a_bundle_goes_with_it(cache: BundleCache, tars: list[Path]) -> None:
    old, young = (deployed(cache, tar, days=days) for tar, days in zip(tars, (31, 1), strict=False))
    for ref in (old, young):
        (cache.root / "uv" / f"{ref}-3.11/lib").mkdir(parents=True)
        (cache.root / "uv" / f"{ref}-3.11").chmod(0o555)
    collect(cache.root, older_than=30 * DAY)
    assert [path.name for path in (cache.root / "uv").iterdir()] == [f"{young}-3.11"]


def test_files_whose_bundles_are_gone_are_forgotten(cache: BundleCache, tars: list[Path]) -> None:
    for tar in tars[:2]:
        changed = tar.stat().st_ctime_ns
        eventually(lambda at=changed: time.time_ns() - at > 200_000_000, "old enough", within=10)  # type: ignore[misc]
    gone, kept = (deployed(cache, tar, days=days) for tar, days in zip(tars, (31, 1), strict=False))
    notes = [json.loads(note.read_bytes()) for note in (cache.root / "memory").iterdir()]
    assert {f"sha256-{note['sha256']}" for note in notes} == {gone, kept}
    collect(cache.root, older_than=30 * DAY)
    notes = [json.loads(note.read_bytes()) for note in (cache.root / "memory").iterdir()]
    assert [f"sha256-{note['sha256']}" for note in notes] == [kept]


def test_notes_that_only_save_time_go_with_their_age(cache: BundleCache, tars: list[Path]) -> None:
    deployed(cache, tars[0])
    then = time.time() - 31 * DAY
    for folder in ("builds", "pushed"):
        (cache.root / folder).mkdir()
        for name in ("old.json", "young.json"):
            (cache.root / folder / name).write_bytes(b"x" * 50_000)
        os.utime(cache.root / folder / "old.json", (then, then))
    assert 200_000 <= notes_size(cache.root) < 201_000
    collect(cache.root, older_than=30 * DAY, dry_run=True)
    assert notes_size(cache.root) >= 200_000
    collect(cache.root, older_than=30 * DAY)
    for folder in ("builds", "pushed"):
        assert [path.name for path in (cache.root / folder).iterdir()] == ["young.json"]
    collect(cache.root, older_than=0)
    assert notes_size(cache.root) == 0


def test_everything_is_everything_though_a_clock_was_wrong(
    cache: BundleCache, tars: list[Path]
) -> None:
    deployed(cache, tars[0], days=-400)
    assert collect(cache.root, older_than=DAY).removed == ()
    assert len(collect(cache.root, older_than=0).removed) == 1


@pytest.mark.parametrize("what", ["folder", "file", "no manifest", "no lease"])
def test_what_is_no_whole_bundle_goes_too(cache: BundleCache, tars: list[Path], what: str) -> None:
    ref = deployed(cache, tars[0])
    entry = cache.root / "bundles" / ref
    if what in {"folder", "file"}:
        erase(entry)
        entry.touch() if what == "file" else (entry / "nix").mkdir(parents=True, mode=0o555)
    else:
        (entry / ("lease" if what == "no lease" else "manifest.json")).unlink()
    assert [each.ref for each in survey(cache.root).bundles] == [ref]
    collect(cache.root, older_than=0)
    assert there(cache) == set()


def test_an_empty_or_missing_cache_is_no_problem(tmp_path: Path) -> None:
    done = collect(tmp_path / "none", older_than=0)
    assert (done.removed, done.freed, done.left) == ((), 0, 0)
    assert not (tmp_path / "none").exists()


def test_a_cache_that_cannot_be_written_is_said_in_one_line(
    workshop: Workshop, shared_folder: Path, as_user: Callable[[Callable[[], None]], None]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    cache = BundleCache(shared_folder / "cache")
    cache.deploy(workshop.bundle().write(shared_folder / "x.tar").path)

    def user() -> None:
        assert len(survey(cache.root).bundles) == 1
        with pytest.raises(BundleError, match=r"cannot remove anything from the cache .*AGENTIX"):
            collect(cache.root, older_than=0)

    as_user(user)
    assert len(there(cache)) == 1


def test_collections_at_once_do_not_wait_for_one_another(
    cache: BundleCache, tars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = {deployed(cache, tar) for tar in tars}
    monkeypatch.setattr(staging, "PATIENCE", 0.0)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(collect, cache.root, older_than=0) for _ in range(4)]
        results = [each.result(60) for each in runs]
    assert {each.ref for done in results for each in done.removed} == refs
    assert there(cache) == set()
    assert litter(cache) == []
