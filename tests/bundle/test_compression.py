"""A compressed tar is the same bundle: read by its first bytes, in bounded memory, or refused."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from agentix.bundle import BundleCache, write_bundle
from agentix.bundle.compression import Compressor, decompressed, zstd
from agentix.errors import BundleError
from bundle.handmade import listing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bundle.handmade import Bundle, Workshop


@pytest.fixture
def packed(bundle: Bundle, tmp_path: Path) -> Path:
    path = tmp_path / "hello.bundle.tar.zst"
    write_bundle(bundle.root, bundle.closure, path, compress=True)
    return path


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    stream = io.BytesIO(data)
    return iter(lambda: stream.read(size), b"")


def test_a_compressed_bundle_is_the_same_bundle(
    bundle: Bundle, tar: Path, tmp_path: Path, cache: BundleCache
) -> None:
    written = write_bundle(bundle.root, bundle.closure, tmp_path / "x.tar.zst", compress=True)
    assert written.sha256 == hashlib.sha256(tar.read_bytes()).hexdigest()
    assert written.size == written.path.stat().st_size < tar.stat().st_size
    assert zstd.decompress(written.path.read_bytes()) == tar.read_bytes()

    entry = cache.deploy(written.path)
    assert entry.digest == written.sha256
    other = BundleCache(tmp_path / "other").deploy(tar)
    assert listing(entry.path) == listing(other.path)
    assert cache.deploy(tar) == entry, "which is found again by its other form"
    assert cache.open(written.path) == entry


def test_the_same_bundle_is_compressed_into_the_same_bytes(
    workshop: Workshop, tmp_path: Path
) -> None:
    texts = b"".join(b"%d bottles\n" % n for n in range(500_000))
    for name in ("a.zst", "b.zst"):
        bundle = workshop.bundle({"texts": texts})
        write_bundle(bundle.root, bundle.closure, tmp_path / name, compress=True)
    assert (tmp_path / "a.zst").read_bytes() == (tmp_path / "b.zst").read_bytes()


def test_what_the_zstd_program_has_compressed_is_read(
    tar: Path, tmp_path: Path, cache: BundleCache
) -> None:
    path = tmp_path / "by-hand.tar"  # its name says nothing
    data = tar.read_bytes()
    half = len(data) // 2
    # Several frames, as parallel compressors write them, and one that is to be skipped.
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    path.write_bytes(zstd.compress(data[:half], 19) + skipped + zstd.compress(data[half:], 1))
    assert cache.deploy(path).digest == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_decompressing_does_not_depend_on_how_data_comes(size: int) -> None:
    data = bytes(range(256)) * 300
    whole = zstd.compress(data) + zstd.compress(b"") + zstd.compress(b"end")
    assert b"".join(decompressed(pieces(whole, size))) == data + b"end"


@pytest.mark.parametrize("kept", [4, 100, -1])
def test_a_truncated_file_is_refused(packed: Path, cache: BundleCache, kept: int) -> None:
    packed.write_bytes(packed.read_bytes()[:kept])
    with pytest.raises(BundleError, match="truncated") as caught:
        cache.deploy(packed)
    assert "\n" not in str(caught.value)
    assert not list((cache.root / "bundles").glob("*")) if cache.root.exists() else True


def test_a_damaged_file_is_refused(packed: Path, cache: BundleCache) -> None:
    data = packed.read_bytes()
    for at in range(5, len(data), 97):
        packed.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        with pytest.raises(BundleError, match="cannot deploy") as caught:
            cache.deploy(packed)
        assert "\n" not in str(caught.value)


def test_data_behind_the_end_is_refused(packed: Path, cache: BundleCache) -> None:
    whole = packed.read_bytes()
    packed.write_bytes(whole + b"more")
    with pytest.raises(BundleError, match="compressed data is damaged"):
        cache.deploy(packed)
    packed.write_bytes(whole + zstd.compress(b"more"))
    with pytest.raises(BundleError, match="more data after its end"):
        cache.deploy(packed)


def test_a_few_bytes_that_become_many_are_left_where_the_bundle_should_have_ended(
    tar: Path, tmp_path: Path, cache: BundleCache
) -> None:
    compressor = Compressor()
    bomb = compressor.compress(tar.read_bytes())
    for _ in range(4096):
        bomb += compressor.compress(bytes(1 << 20))
    path = tmp_path / "bomb.tar.zst"
    path.write_bytes(bomb + compressor.finish())
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(BundleError, match="more data after its end"):
        cache.deploy(path)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_a_frame_that_asks_for_much_memory_is_refused(tmp_path: Path, cache: BundleCache) -> None:
    path = tmp_path / "wide.tar.zst"
    # A frame without a content size whose window is of 2 GiB.
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\0\0" * 3)
    with pytest.raises(BundleError, match="needs too much memory"):
        cache.deploy(path)


def test_endless_empty_frames_are_refused() -> None:
    empty = zstd.compress(b"") * 5000
    with pytest.raises(BundleError, match="more than 4096 pieces"):
        list(decompressed(pieces(empty, 1 << 20)))


def test_a_compressed_file_that_cannot_be_written_leaves_nothing(
    bundle: Bundle, tmp_path: Path
) -> None:
    bundle.closure[0].path.joinpath("more").write_bytes(b"not what was recorded")
    with pytest.raises(BundleError, match="not what Nix recorded"):
        write_bundle(bundle.root, bundle.closure, tmp_path / "x.tar.zst", compress=True)
    assert not list(tmp_path.glob("*.zst*")) + list(tmp_path.glob(".*"))


def test_other_tools_read_it(packed: Path, tar: Path) -> None:
    try:
        result = subprocess.run(["zstd", "-dc", packed], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("the zstd program is not installed")
    assert result.stdout == tar.read_bytes()
