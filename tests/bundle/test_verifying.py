"""Whatever is damaged in a cache is found, and called by its name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agentix.bundle.collecting import discard
from agentix.bundle.objects import Objects
from agentix.bundle.removal import erase
from agentix.bundle.verifying import check, check_cache
from agentix.errors import BundleError
from bundle.handmade import store_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentix.bundle import BundleCache, CachedBundle
    from agentix.bundle.verifying import Checked
    from bundle.handmade import Bundle, Workshop

PYTHON = store_name("python-3.11")
OS = "lib/python3.11/os.py"


def damaged(found: list[Checked]) -> dict[str, list[str]]:
    return {
        each.path.name: [f"{one.store_path}: {one.problem}" for one in each.differences]
        for each in found
        if each.differences
    }


@pytest.fixture
def entries(workshop: Workshop, cache: BundleCache, tmp_path: Path) -> list[CachedBundle]:
    """Two bundles, whose Python is the same files."""
    tars = [
        workshop.bundle({f"own-{number}": b"x" * 100_000}).write(tmp_path / f"{number}.tar").path
        for number in range(2)
    ]
    return [cache.deploy(tar) for tar in tars]


def edit(path: Path) -> None:
    """Change one byte, leaving no trace in size, mode or time."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, (1, 1))


def shrink(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"")


def replace(path: Path) -> None:
    path.unlink()
    path.symlink_to("a-b")


def add(path: Path) -> None:
    path.with_name("new.py").write_bytes(b"new")


def hide(path: Path) -> None:
    path.rename(path.with_name("other.py"))


def test_what_is_intact_is_said_to_be(cache: BundleCache, entries: list[CachedBundle]) -> None:
    found = check_cache(cache.root)
    assert sorted(each.path.name for each in found) == sorted(entry.ref for entry in entries)
    assert damaged(found) == {}


@pytest.mark.parametrize(
    ("change", "said", "everywhere"),
    [
        (edit, f"{OS} differs", True),
        (shrink, f"{OS} differs", True),
        (lambda path: path.chmod(0o555), f"{OS} differs", True),
        (lambda path: path.unlink(), f"{OS} is missing", False),
        (replace, f"{OS} differs", False),
        (add, "lib/python3.11/new.py was added", False),
        (hide, f"lib/python3.11/other.py was added, {OS} is missing", False),
    ],
    ids=["edited", "truncated", "mode", "removed", "replaced", "added", "renamed"],
)
def test_every_change_is_found_and_its_file_named(
    cache: BundleCache,
    entries: list[CachedBundle],
    change: Callable[[Path], None],
    said: str,
    everywhere: bool,
) -> None:
    """What changes a file changes it in every bundle that has it, and among the shared ones."""
    change(entries[0].nix / "store" / PYTHON / OS)
    found = damaged(check_cache(cache.root))
    assert found.pop(entries[0].ref) == [f"{PYTHON}: {said}"]
    if everywhere:
        assert found.pop(entries[1].ref) == [f"{PYTHON}: {said}"]
        [(_, problems)] = found.items()
        assert problems == [f"{PYTHON}: {said}"]
    else:
        assert found == {}


def test_a_large_file_is_named_as_well(cache: BundleCache, entries: list[CachedBundle]) -> None:
    name = store_name("own-0")
    edit(entries[0].nix / "store" / name)
    found = damaged(check_cache(cache.root))
    assert found[entries[0].ref] == [f"{name}: it differs"]


def test_what_is_only_in_the_shared_ones_is_found(
    cache: BundleCache, entries: list[CachedBundle]
) -> None:
    objects = Objects(cache.root / "store")
    tree = objects.tree(PYTHON, entries[0].manifest.closure[PYTHON])
    (tree / OS).unlink()
    (tree / OS).write_bytes(b"other")
    assert damaged(check_cache(cache.root)) == {tree.parent.name: [f"{PYTHON}: {OS} differs"]}
    (tree.parent / "members.json").unlink()
    assert "members.json is not what was written" in str(damaged(check_cache(cache.root)))


def test_what_is_shared_is_read_where_the_bundle_that_has_it_could_not_be(
    cache: BundleCache, entries: list[CachedBundle]
) -> None:
    """Else the next deploy would take what is damaged."""
    edit(entries[0].nix / "store" / PYTHON / OS)
    for entry in entries:
        (entry.nix / "runtime").unlink()
    found = damaged(check_cache(cache.root))
    assert [found.pop(entry.ref) for entry in entries]
    assert list(found.values()) == [[f"{PYTHON}: {OS} differs"]]


@pytest.mark.parametrize("damage", ["manifest", "store path", "extra", "run", "runtime", "root"])
def test_the_entry_itself_is_looked_at(
    cache: BundleCache, entries: list[CachedBundle], damage: str
) -> None:
    entry = entries[0]
    match damage:
        case "manifest":
            manifest = entry.path / "manifest.json"
            text = manifest.read_text().replace("hello-world", "hello-wurld")
            manifest.chmod(0o644)
            manifest.write_text(text)
        case "store path":
            erase(entry.nix / "store" / PYTHON)
        case "extra":
            (entry.nix / "store" / store_name("extra")).mkdir()
        case "run":
            (entry.nix / "run/token").touch()
        case "runtime":
            (entry.nix / "runtime").unlink()
        case "root":
            edit(entry.nix / "store" / entry.manifest.root / "info.json")
    found = damaged(check_cache(cache.root))
    assert list(found) == [entry.ref]
    [said] = found[entry.ref]
    expected = {
        "manifest": "manifest.json is not the one that came",
        "store path": "is not a complete bundle",
        "extra": f"nix/store/{store_name('extra')} was added",
        "run": "nix/run/token was added",
        "runtime": "is not a complete bundle",
        "root": "which of its files does is not known",
    }
    assert expected[damage] in said


def test_some_bundles_are_verified_when_named(
    cache: BundleCache, entries: list[CachedBundle]
) -> None:
    edit(entries[0].nix / "store" / store_name("own-0"))
    assert damaged(check_cache(cache.root, [entries[1].ref])) == {}
    assert len(check_cache(cache.root, [entries[1].ref])) == 1
    assert len(check_cache(cache.root, [f"sha256:{entries[1].digest}"])) == 1, (
        "as commands print it"
    )
    with pytest.raises(BundleError, match=r"is not deployed in .*agentix cache list"):
        check_cache(cache.root, ["sha256-" + "0" * 64])


def test_what_is_damaged_is_removed_but_not_from_who_uses_it_and_comes_again(
    cache: BundleCache, entries: list[CachedBundle], tmp_path: Path
) -> None:
    edit(entries[0].nix / "store" / PYTHON / OS)
    ref, other = entries[0].ref, entries[1].ref
    paths = [each.path for each in check_cache(cache.root) if each.differences]
    del entries[0]
    stayed = discard(cache.root, paths)
    assert stayed == [cache.root / "bundles" / other]
    assert not (cache.root / "bundles" / ref).exists()
    kept = {place.name[33:] for place in Objects(cache.root / "store").all().values()}
    assert {"own-0", "own-1"} <= kept, "what is intact need not come again"
    assert "python-3.11" not in kept
    again = cache.deploy(tmp_path / "0.tar")
    assert damaged(check_cache(cache.root, [again.ref])) == {}


def test_every_form_of_a_bundle_is_verified(
    bundle: Bundle, tar: Path, cache: BundleCache, tmp_path: Path
) -> None:
    entry = cache.deploy(tar)
    for ref in (tar, entry.path):
        found = check(ref)
        assert (found.digest, found.differences) == (entry.digest, ())
    before = set(tmp_path.rglob("*"))
    cut = tmp_path / "cut.tar"
    cut.write_bytes(tar.read_bytes()[:-1000])
    [difference] = check(cut).differences
    assert difference.problem == "it is truncated"
    assert set(tmp_path.rglob("*")) == {*before, cut}, "nothing is written"
    edit(entry.nix / "store" / PYTHON / OS)
    [difference] = check(entry.path).differences
    assert difference.problem == f"{OS} differs"
    with pytest.raises(BundleError, match="cannot read"):
        check(tmp_path / "missing")
