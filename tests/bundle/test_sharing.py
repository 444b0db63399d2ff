"""Store paths that bundles share are stored once, whoever brings them, and never mixed up."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentix.bundle import BundleCache
from agentix.bundle.folder import Folder
from agentix.bundle.manifest import StoreObject
from agentix.bundle.members import Members, MembersNote
from agentix.bundle.nar import nar_hash
from agentix.bundle.objects import Objects
from agentix.errors import BundleError
from bundle.handmade import END, Link, Program, listing, parts, root_tree, store_name

if TYPE_CHECKING:
    from agentix.bundle import CachedBundle
    from bundle.handmade import Workshop

PYTHON = store_name("python-3.11")
MORE: dict[str, Any] = {
    "odd": {b"\xff\xfe": b"no text", "a b": b"", "x": Program(b"#!x"), "to": Link("/nowhere")},
    "one-file": b"a store path may be a file",
    "one-link": Link(f"/nix/store/{PYTHON}"),
    "large": {"blob": bytes(range(256)) * 1000},
}


def two(workshop: Workshop, tmp_path: Path) -> tuple[Path, Path]:
    """Two bundles that differ in their roots and in one store path."""
    one = workshop.bundle(MORE | {"first": b"1"}, root_tree() | {"first": b"1"})
    other = workshop.bundle(MORE | {"second": b"2"}, root_tree() | {"second": b"2"})
    return one.write(tmp_path / "one.tar").path, other.write(tmp_path / "other.tar").path


def files(entry: CachedBundle) -> dict[str, int]:
    """The inodes of everything in store paths but the root, folders left out."""
    store = entry.nix / "store"
    return {
        str(path.relative_to(store)): path.lstat().st_ino
        for path in sorted(store.rglob("*"))
        if (path.is_symlink() or not path.is_dir())
        and entry.manifest.root not in path.relative_to(store).parts
    }


def assert_sound(entry: CachedBundle) -> None:
    for name, content in entry.manifest.closure.items():
        found = nar_hash(entry.nix / "store" / name)
        assert (found.sha256, found.size) == (content.sha256, content.size), name


def fresh(tar: Path, folder: Path) -> dict[str, tuple[int, str]]:
    return listing(BundleCache(folder).deploy(tar).path)


def test_a_second_bundle_has_the_files_of_the_first(
    workshop: Workshop, cache: BundleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two(workshop, tmp_path)
    first = cache.deploy(one)
    made: list[list[bytes]] = []
    file = Folder.file

    def counted(self: Folder, parts: list[bytes], *args: Any, **kwargs: Any) -> None:
        made.append(parts)
        file(self, parts, *args, **kwargs)

    monkeypatch.setattr(Folder, "file", counted)
    second = cache.deploy(other)
    alone = {name for name in files(second) if name not in files(first)}
    assert alone == {store_name("second")}
    assert {name: files(first)[name] for name in files(first).keys() & files(second).keys()} == {
        name: files(second)[name] for name in files(first).keys() & files(second).keys()
    }
    new = {parts[2].decode() for parts in made if len(parts) > 2}
    assert new == {store_name("second"), second.manifest.root}, "nothing else was unpacked"
    assert_sound(second)
    assert listing(second.path) == fresh(other, tmp_path / "fresh")
    for path in second.nix.joinpath("store").rglob("*"):
        assert path.lstat().st_mtime == 1, path


def test_the_second_costs_only_its_own_bytes_on_disk(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    large = {"large": os.urandom(3_000_000)}
    one = workshop.bundle(large).write(tmp_path / "one.tar").path
    other = workshop.bundle(large | {"own": os.urandom(500_000)}).write(tmp_path / "other.tar").path

    def used() -> int:
        seen = {}
        for path in cache.root.rglob("*"):
            status = path.lstat()
            seen[status.st_ino] = status.st_blocks * 512
        return sum(seen.values())

    cache.deploy(one)
    before = used()
    cache.deploy(other)
    assert 500_000 <= used() - before < 700_000


def test_a_result_of_nix_shares_with_what_came_as_a_tar(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    first = cache.deploy(two(workshop, tmp_path)[0])
    built = workshop.bundle(MORE | {"third": b"3"})
    second = cache.deploy_store_path(built.root, built.closure)
    assert files(first)[f"{PYTHON}/bin/python3"] == files(second)[f"{PYTHON}/bin/python3"]
    assert_sound(second)
    through = BundleCache(tmp_path / "through").deploy(built.write(tmp_path / "third.tar").path)
    assert through.digest == second.digest
    assert listing(through.path) == listing(second.path)


def test_a_store_path_of_nix_that_was_modified_is_refused_though_the_cache_has_it(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    cache.deploy(two(workshop, tmp_path)[0])
    built = workshop.bundle(MORE | {"third": b"3"})
    victim = built.closure[0].path / "lib/libc.so.6"
    victim.chmod(0o644)
    victim.write_bytes(b"y" * 5000)
    with pytest.raises(BundleError, match=r"does not have the content .*libc.so.6. differs"):
        cache.deploy_store_path(built.root, built.closure)


def test_the_same_name_with_other_content_is_another_store_path(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    one = workshop.bundle({"tool": {"run": Program(b"good")}}).write(tmp_path / "one.tar").path
    liar = workshop.bundle({"tool": {"run": Program(b"evil")}}).write(tmp_path / "liar.tar").path
    first, second = cache.deploy(one), cache.deploy(liar)
    tool = Path("nix/store", store_name("tool"), "run")
    assert (first.path / tool).read_bytes() == b"good"
    assert (second.path / tool).read_bytes() == b"evil"
    third = workshop.bundle({"tool": {"run": Program(b"good")}, "more": b""})
    assert (cache.deploy(third.write(tmp_path / "3.tar").path).path / tool).read_bytes() == b"good"


def test_a_tar_that_lies_about_a_known_store_path_is_refused(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    """It promises the content that the cache has, and brings another."""
    first = cache.deploy(two(workshop, tmp_path)[0])
    whole = listing(first.path)
    honest = parts(workshop.bundle(MORE | {"third": b"3"}))
    for place, part in enumerate(honest):
        if part.path.startswith(f"nix/store/{PYTHON}".encode()) and part.path.count(b"/") > 2:
            raw = bytearray(part.raw)
            raw[-513 if len(raw) > 1024 else 0] ^= 1
            members = [*honest[:place], part._replace(raw=bytes(raw)), *honest[place + 1 :]]
            bad = tmp_path / "bad.tar"
            bad.write_bytes(b"".join(member.raw for member in members) + END)
            with pytest.raises(BundleError, match="cannot deploy"):
                cache.deploy(bad)
    missing = [part for part in honest if not part.path.endswith(b"/libc.so.6")]
    (tmp_path / "bad.tar").write_bytes(b"".join(member.raw for member in missing) + END)
    with pytest.raises(BundleError, match=r"libc.so.6' differs"):
        cache.deploy(tmp_path / "bad.tar")
    cut = b"".join(part.raw for part in honest)[: len(honest[0].raw) + 3000]
    (tmp_path / "bad.tar").write_bytes(cut)
    with pytest.raises(BundleError, match="truncated"):
        cache.deploy(tmp_path / "bad.tar")
    assert [path.name for path in (cache.root / "bundles").iterdir()] == [first.ref]
    assert list((cache.root / "staging").iterdir()) == []
    assert listing(first.path) == whole


@pytest.mark.parametrize("damage", ["members", "tree", "nothing left", "a file"])
def test_a_shared_store_path_that_is_not_whole_is_not_used(
    workshop: Workshop, cache: BundleCache, tmp_path: Path, damage: str
) -> None:
    one, other = two(workshop, tmp_path)
    cache.deploy(one)
    for place in Objects(cache.root / "store").all().values():
        if damage == "members":
            (place / "members.json").unlink()
            (place / "members.json").write_text('{"name": 1}')
        elif damage == "tree":
            (place / "members.json").unlink()
        else:
            shutil.rmtree(place)
            place.touch() if damage == "a file" else place.mkdir()
    second = cache.deploy(other)
    assert_sound(second)
    third = workshop.bundle(MORE | {"third": b"3"}).write(tmp_path / "third.tar").path
    assert (
        files(cache.deploy(third))[f"{PYTHON}/bin/python3"]
        == (files(second)[f"{PYTHON}/bin/python3"])
    ), "what was not whole has been replaced"


@pytest.mark.parametrize("faster", [False, True])
def test_who_replaces_what_is_not_whole_may_meet_others_who_do(
    workshop: Workshop,
    cache: BundleCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    faster: bool,
) -> None:
    """Another process has just moved it away, and perhaps put a whole one in its place."""
    one, other = two(workshop, tmp_path)
    first = cache.deploy(one)
    shared = Objects(cache.root / "store")
    broken = list(shared.all().values())
    for place in broken:
        (place / "members.json").rename(place / "kept")
    find = Objects.find

    def meanwhile(self: Objects, name: str, content: StoreObject) -> Members | None:
        place = self.tree(name, content).parent
        found = find(self, name, content)
        if found is None and (place / "kept").exists() and share_began:
            if faster:
                (place / "kept").rename(place / "members.json")
            else:
                place.rename(tmp_path / place.name)
        return found

    share, share_began = Objects.share, []

    def begin(self: Objects, *args: Any) -> None:
        share_began.append(True)
        share(self, *args)

    monkeypatch.setattr(Objects, "find", meanwhile)
    monkeypatch.setattr(Objects, "share", begin)
    second = cache.deploy(other)
    assert_sound(first)
    assert_sound(second)
    for name, content in second.manifest.closure.items():
        assert name == second.manifest.root or find(shared, name, content)


def test_bundles_deployed_at_once_share_as_well(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    tars = [
        workshop.bundle(MORE | {f"own-{number}": b"x"}).write(tmp_path / f"{number}.tar").path
        for number in range(4)
    ]
    barrier = threading.Barrier(len(tars))

    def deploy(tar: Path) -> CachedBundle:
        barrier.wait(30)
        return BundleCache(cache.root).deploy(tar)

    with ThreadPoolExecutor(len(tars)) as pool:
        entries = [future.result(60) for future in [pool.submit(deploy, tar) for tar in tars]]
    shared = [
        {name: inode for name, inode in files(entry).items() if "own-" not in name}
        for entry in entries
    ]
    assert all(each == shared[0] for each in shared)
    for entry, tar in zip(entries, tars, strict=True):
        assert_sound(entry)
        assert listing(entry.path) == fresh(tar, tmp_path / f"fresh-{tar.stem}")


def test_what_an_interrupted_deploy_has_verified_is_not_unpacked_again(
    workshop: Workshop, cache: BundleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = two(workshop, tmp_path)
    data = one.read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: len(data) * 9 // 10])
    with pytest.raises(BundleError, match="truncated"):
        cache.deploy(tmp_path / "cut.tar")
    kept = set(Objects(cache.root / "store").all())
    assert kept
    made: list[bytes] = []
    directory = Folder.directory

    def counted(self: Folder, parts: list[bytes]) -> None:
        made.append(parts[-1])
        directory(self, parts)

    monkeypatch.setattr(Folder, "directory", counted)
    entry = cache.deploy(one)
    assert_sound(entry)
    assert not {name.decode() for name in made} & {store_name(called[33:]) for called in kept}


def test_a_file_that_cannot_be_linked_any_more_is_copied(
    workshop: Workshop, cache: BundleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two(workshop, tmp_path)
    first = cache.deploy(one)
    link = os.link

    def refuse(source: str, target: str, **options: Any) -> None:
        if source in {"python3", "python", "blob"}:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        link(source, target, **options)

    monkeypatch.setattr(os, "link", refuse)
    second = cache.deploy(other)
    assert_sound(second)
    assert listing(second.path) == fresh(other, tmp_path / "fresh")
    program = f"{PYTHON}/bin/python3"
    assert files(first)[program] != files(second)[program]
    assert (second.nix / "store" / program).stat().st_mtime == 1


@pytest.mark.parametrize("reason", [errno.EPERM, errno.EXDEV, errno.ENOTSUP])
def test_a_file_system_without_links_shares_nothing_and_works(
    workshop: Workshop,
    cache: BundleCache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: int,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "link", refuse)
    for tar in two(workshop, tmp_path):
        assert_sound(cache.deploy(tar))
    assert Objects(cache.root / "store").all() == {}
    assert list((cache.root / "staging").iterdir()) == []


def test_a_shared_file_cannot_be_written_and_everybody_reads_it(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    before = os.umask(0o077)
    try:
        entries = [cache.deploy(tar) for tar in two(workshop, tmp_path)]
    finally:
        os.umask(before)
    for entry in entries:
        for path in entry.nix.rglob("*"):
            if not path.is_symlink():
                mode = path.stat().st_mode & 0o777
                assert mode in ((0o755,) if path.is_dir() else (0o444, 0o555)), path


def test_a_note_of_too_many_members_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentix.bundle.members._ROOM", 1000)
    from agentix.bundle.lane import Lane

    with Lane("test") as lane:
        note = MembersNote(lane)
        for _ in range(10):
            note.begin([b"x" * 100], b"header", 3)
            note.content(b"abc")
        content = StoreObject(sha256="a" * 64, size=1)
        assert note.finish(store_name("x"), content) is None
        assert not note._paths[5:]


def test_a_bundle_stays_whole_when_the_others_are_removed(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    one, other = two(workshop, tmp_path)
    first, second = cache.deploy(one), cache.deploy(other)
    shutil.rmtree(first.path)
    shutil.rmtree(cache.root / "store")
    assert_sound(second)
    assert cache.open(second.ref) == second


def test_an_ordinary_user_shares(
    workshop: Workshop, shared_folder: Path, tmp_path: Path, as_user: Any
) -> None:
    tars = [Path(shutil.copy(tar, shared_folder)) for tar in two(workshop, tmp_path)]

    def user() -> None:
        mine = BundleCache(shared_folder / "mine")
        first, second = (mine.deploy(tar) for tar in tars)
        assert files(first)[f"{PYTHON}/bin/python3"] == files(second)[f"{PYTHON}/bin/python3"]

    as_user(user)
    shutil.rmtree(shared_folder / "mine")


def test_who_may_not_link_anothers_files_has_copies(
    workshop: Workshop, shared_folder: Path, tmp_path: Path, as_user: Any
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    if Path("/proc/sys/fs/protected_hardlinks").read_text().strip() != "1":
        pytest.skip("this kernel lets everybody link what is not theirs")
    one, other = (Path(shutil.copy(tar, shared_folder)) for tar in two(workshop, tmp_path))
    cache = BundleCache(shared_folder / "cache")
    first = cache.deploy(one)
    for folder in (cache.root, *cache.root.iterdir()):
        folder.chmod(0o777)
    (cache.root / "store/lock").chmod(0o666)

    def user() -> None:
        second = cache.deploy(other)
        assert_sound(second)
        program = f"{PYTHON}/bin/python3"
        assert files(first)[program] != files(second)[program]

    as_user(user)
