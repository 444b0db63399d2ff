"""Bundles are looked into where they are, and a tar is no better trusted for it."""

from __future__ import annotations

import os
import random
import tempfile
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from agentix.bundle import BundleCache, Manifest, write_bundle
from agentix.bundle.comparison import compare
from agentix.bundle.compression import Compressor
from agentix.bundle.tree import Kind
from agentix.bundle.verifying import check
from agentix.bundle.view import look_into, programs
from agentix.errors import BundleError
from bundle.handmade import END, Bundle, Part, Program, Workshop, block, parts, store_name

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.bundle.view import Item, View


def content(item: Item) -> bytes:
    return b"".join(item.read()) if item.kind is Kind.FILE else b""


def seen(view: View) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: [
            (item.parts, item.kind, item.executable, item.target, content(item))
            for item in view.items(name)
        ]
        for name in sorted(view.manifest.closure)
    }


@pytest.fixture
def rich(workshop: Workshop) -> Bundle:
    deep = "d" * 60 + "/" + "e" * 60
    long = {deep.split("/")[0]: {deep.split("/")[1]: {"f" * 90: b"deep"}}}
    return workshop.bundle({"large": {"data": os.urandom(3 * 1024 * 1024), **long}})


def test_a_tar_and_its_cache_entry_show_the_same(
    rich: Bundle, cache: BundleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = rich.write(tmp_path / "x.tar")
    entry = cache.deploy(written.path)
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(cache.root))
    found = []
    for ref in (written.path, entry.path, entry.ref):
        with look_into(ref) as view:
            found.append((view.manifest, view.digest(), seen(view)))
    assert found[0] == found[1] == found[2]
    assert found[0][1] == written.sha256
    items = found[0][2][store_name("large")]
    assert items[0] == ((), Kind.DIRECTORY, False, b"", b"")
    assert len(items[1][4]) == 3 * 1024 * 1024 or len(items[-1][4]) == 3 * 1024 * 1024


def test_a_store_path_may_have_the_longest_name_that_nix_admits(
    workshop: Workshop, cache: BundleCache, tmp_path: Path
) -> None:
    name = "n" * 211
    tar = workshop.bundle({name: {"file": b"x"}}).write(tmp_path / "x.tar").path
    entry = cache.deploy(tar)
    assert (entry.nix / "store" / store_name(name) / "file").read_bytes() == b"x"
    with look_into(tar) as view:
        assert store_name(name) in seen(view)


def test_a_compressed_tar_shows_what_is_in_it(rich: Bundle, tmp_path: Path) -> None:
    plain = rich.write(tmp_path / "x.tar")
    packed = write_bundle(rich.root, rich.closure, tmp_path / "y.tar.zst", compress=True)
    with look_into(plain.path) as one, look_into(packed.path) as other:
        assert seen(one) == seen(other)
        assert one.digest() == other.digest() == plain.sha256


def test_a_compressed_tar_is_unpacked_no_further_than_it_says(
    bundle: Bundle, tar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compressor = Compressor()
    bomb = compressor.compress(tar.read_bytes())
    bomb += b"".join(compressor.compress(bytes(1 << 20)) for _ in range(2048))
    (tmp_path / "bomb.tar.zst").write_bytes(bomb + compressor.finish())
    written: list[int] = []
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: nullcontext(Counting(written)))
    with (
        pytest.raises(BundleError, match=r"cannot read .*bomb.*: it has more data after its end"),
        look_into(tmp_path / "bomb.tar.zst"),
    ):
        pass
    assert sum(written) < 4 << 20


class Counting:
    """Says how much was written to it."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes

    def write(self, data: bytes) -> None:
        self._sizes.append(len(data))


def test_paths_are_read_in_any_order_and_side_by_side(rich: Bundle, tmp_path: Path) -> None:
    with look_into(rich.write(tmp_path / "x.tar").path) as view:
        names = sorted(view.manifest.closure)
        turns = [view.items(name) for name in reversed(names)]
        mixed: dict[str, list[tuple[bytes, ...]]] = {name: [] for name in names}
        while turns:
            for name, items in zip(reversed(names), list(turns), strict=False):
                item = next(items, None)
                if item is None:
                    turns.remove(items)
                    names = [other for other in names if other != name]
                else:
                    mixed[name].append(item.parts)
        alone = {name: [item[0] for item in items] for name, items in seen(view).items()}
    assert mixed == alone


def test_programs_are_those_that_a_sandbox_has(bundle: Bundle, tmp_path: Path) -> None:
    with look_into(bundle.write(tmp_path / "x.tar").path) as view:
        assert programs(view) == ["hello"]


def test_what_is_no_bundle_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("text")
    os.mkfifo(tmp_path / "fifo")
    for name in ("absent", "folder", "text", "fifo"):
        with pytest.raises(BundleError) as caught, look_into(tmp_path / name):
            pass
        assert str(caught.value).isprintable()
        assert name in str(caught.value)


def test_no_name_is_not_the_folder_that_this_runs_in(
    tar: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a script's empty variable gives."""
    monkeypatch.chdir(cache.deploy(tar).path)
    for ask in (cache.open, check, lambda ref: look_into(ref).__enter__()):
        with pytest.raises(BundleError, match="no bundle was given"):
            ask("")


def raw(members: list[Part]) -> bytes:
    return b"".join(part.raw for part in members) + END


@pytest.mark.parametrize("cut", [100, 1536, -600, -1024])
def test_a_tar_that_is_cut_off_is_refused(bundle: Bundle, tmp_path: Path, cut: int) -> None:
    (tmp_path / "x.tar").write_bytes(raw(parts(bundle))[:cut])
    with pytest.raises(BundleError), look_into(tmp_path / "x.tar") as view:
        seen(view)


def test_a_declared_path_that_is_missing_is_named(bundle: Bundle, tmp_path: Path) -> None:
    name = store_name("python-3.11")
    good = parts(bundle)
    (tmp_path / "x.tar").write_bytes(raw([p for p in good if name.encode() not in p.path]))
    missing = pytest.raises(BundleError, match=f"{name} is declared but missing")
    with missing, look_into(tmp_path / "x.tar"):
        pass


def test_members_out_of_order_are_refused(workshop: Workshop, tmp_path: Path) -> None:
    bundle = workshop.bundle({"two": {"a": b"1", "b": b"2"}})
    good = parts(bundle)
    where = [i for i, part in enumerate(good) if part.path.endswith((b"-two/a", b"-two/b"))]
    good[where[0]], good[where[1]] = good[where[1]], good[where[0]]
    (tmp_path / "x.tar").write_bytes(raw(good))
    with look_into(tmp_path / "x.tar") as view, pytest.raises(BundleError, match="out of order"):
        seen(view)


def test_a_hostile_header_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    device = block(b"nix/store/" + store_name("python-3.11").encode() + b"/zz", b"3")
    good = parts(bundle)
    (tmp_path / "x.tar").write_bytes(raw([good[0], Part(b"", device), *good[1:]]))
    with pytest.raises(BundleError, match="character device"), look_into(tmp_path / "x.tar"):
        pass


def test_a_manifest_is_all_that_an_executable_bit_says(workshop: Workshop, tmp_path: Path) -> None:
    bundle = workshop.bundle({"p": {"x": Program(b"1"), "y": b"1"}})
    with look_into(bundle.write(tmp_path / "x.tar").path) as view:
        assert isinstance(view.manifest, Manifest)
        found = {item.parts: item.executable for item in view.items(store_name("p"))}
    assert (found[(b"x",)], found[(b"y",)]) == (True, False)


def test_a_tar_with_any_byte_changed_is_read_or_refused(bundle: Bundle, tmp_path: Path) -> None:
    """Neither looking into a damaged tar nor comparing it ends in anything but a BundleError."""
    good, chance = raw(parts(bundle)), random.Random(7)
    (tmp_path / "good.tar").write_bytes(good)
    refused: list[str] = []
    with look_into(tmp_path / "good.tar") as one:
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(chance.choice((1, 1, 3))):
                bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            (tmp_path / "bad.tar").write_bytes(bad[: chance.choice((None, None, len(bad) // 2))])
            try:
                with look_into(tmp_path / "bad.tar") as other:
                    seen(other)
                    assert not compare(one, other).same
            except BundleError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert all(map(str.isprintable, refused))
