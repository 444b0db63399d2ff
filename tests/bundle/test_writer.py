"""The same store paths are the same bytes everywhere; after a failure nothing is left."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from agentix.bundle import staging, write_bundle, writer
from agentix.errors import BundleError
from agentix.nix import StorePath
from bundle.handmade import END, Link, Program, parts, root_tree

if TYPE_CHECKING:
    from pathlib import Path

    from bundle.handmade import Bundle, Workshop


def test_the_tar_is_byte_for_byte_what_the_format_says(bundle: Bundle, tmp_path: Path) -> None:
    written = bundle.write(tmp_path / "x.tar")
    assert written.path.read_bytes() == b"".join(part.raw for part in parts(bundle)) + END


def test_digest_and_size_are_those_of_the_file(bundle: Bundle, tmp_path: Path) -> None:
    written = bundle.write(tmp_path / "x.tar")
    output = subprocess.run(
        ["sha256sum", written.path], capture_output=True, check=True, text=True
    ).stdout
    assert output.split()[0] == written.sha256
    assert written.ref == f"sha256-{written.sha256}"
    assert written.size == written.path.stat().st_size


def test_only_content_counts(bundle: Bundle, workshop: Workshop, tmp_path: Path) -> None:
    """Another folder, times, modes, umask, order of the closure; files that are one hard link."""
    first = bundle.write(tmp_path / "one.tar")
    other = workshop.bundle()
    twin = other.folder.parent / "twin"
    for path in sorted(other.folder.rglob("*")):
        if path.is_symlink() or path.is_dir():
            continue
        executable = path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)
        if path.read_bytes() == b"" and not twin.exists():
            path.rename(twin)
            os.link(twin, path)
            os.link(twin, other.folder / "another name")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    other.closure.reverse()
    before = os.umask(0o077)
    try:
        second = other.write(tmp_path / "two.tar")
    finally:
        os.umask(before)
    assert second.path.read_bytes() == first.path.read_bytes()


def test_odd_names_survive(workshop: Workshop, tmp_path: Path) -> None:
    deep = {"d" * 90: {"e" * 90: {"f" * 90: {"schön": b"1", "long" * 30: Link("t" * 300)}}}}
    odd = {b"\xff\xfe": b"2", "new\nline": Program(b"3"), "-dash": {}, "spa ce": deep}
    written = workshop.bundle({"odd": odd}).write(tmp_path / "x.tar")
    with tarfile.open(written.path, errors="surrogateescape", encoding="utf-8") as tar:
        names = {os.fsencode(name).split(b"-odd/", 1)[-1] for name in tar.getnames()}
    assert {b"\xff\xfe", b"new\nline", b"-dash"} <= names
    assert (
        b"spa ce/" + b"d" * 90 + b"/" + b"e" * 90 + b"/" + b"f" * 90 + b"/" + b"long" * 30 in names
    )


def test_a_modified_store_path_is_named_and_nothing_is_left(bundle: Bundle, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    victim = bundle.closure[0].path / "lib/libc.so.6"
    victim.chmod(0o644)
    victim.write_bytes(b"y" * 5000)
    with pytest.raises(BundleError, match=r"python-3\.11 is not what Nix recorded") as caught:
        bundle.write(target / "x.tar")
    assert str(bundle.closure[0].path) in str(caught.value)
    assert list(target.iterdir()) == []


def test_a_failure_leaves_an_earlier_file_alone(bundle: Bundle, tmp_path: Path) -> None:
    target = tmp_path / "x.tar"
    target.write_bytes(b"earlier")
    bundle.closure[0] = StorePath(bundle.closure[0].path, "0" * 64, bundle.closure[0].size)
    with pytest.raises(BundleError):
        bundle.write(target)
    assert target.read_bytes() == b"earlier"
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_an_interruption_leaves_nothing(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        assert list((tmp_path / "out").iterdir()) != []
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    monkeypatch.setattr(writer, "write_all", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bundle.write(tmp_path / "out/x.tar")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_writer_left_is_used_up(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    script = """
import os, signal, sys
from agentix.bundle.staging import acquire
from pathlib import Path
os.write(acquire(Path(sys.argv[1]), 0, 0o666), b"half" * 100_000)
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", script, str(folder / ".x.tar.part")]
    assert subprocess.run(command, timeout=60).returncode == -9
    written = bundle.write(folder / "x.tar")
    assert list(folder.iterdir()) == [written.path]
    assert written.size == written.path.stat().st_size


def test_what_a_killed_writer_left_can_be_swept_and_what_another_writes_cannot(
    tmp_path: Path,
) -> None:
    draft = tmp_path / ".x.tar.part"
    at_work = staging.acquire(draft, 0)
    assert at_work is not None
    writer.sweep(tmp_path / "x.tar")
    assert draft.exists()
    os.close(at_work)
    writer.sweep(tmp_path / "x.tar")
    assert list(tmp_path.iterdir()) == []


def test_writers_of_one_file_come_one_after_the_other(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(bundle.write, folder / "x.tar") for _ in range(8)]
        digests = {future.result(60).sha256 for future in futures}
    assert list(folder.iterdir()) == [folder / "x.tar"]
    assert digests == {hashlib.sha256((folder / "x.tar").read_bytes()).hexdigest()}


def test_the_file_gets_the_mode_of_any_new_file(bundle: Bundle, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        written = bundle.write(tmp_path / "x.tar")
    finally:
        os.umask(before)
    assert stat.S_IMODE(written.path.stat().st_mode) == 0o640


def test_a_folder_that_is_missing_is_named(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"cannot write .*/missing/x.tar: No such file"):
        bundle.write(tmp_path / "missing/x.tar")


def test_what_is_no_built_bundle_is_named(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is not a built bundle: cannot read"):
        write_bundle(bundle.closure[0].path, bundle.closure, tmp_path / "x.tar")
    with pytest.raises(BundleError, match="root is not one of the closure"):
        write_bundle(bundle.root, bundle.closure[:1], tmp_path / "x.tar")


def test_what_could_not_be_read_back_is_not_written(workshop: Workshop, tmp_path: Path) -> None:
    deep: dict[str, object] = {}
    for _ in range(130):
        deep = {"d": deep}
    with pytest.raises(BundleError, match="too long or too deep"):
        workshop.bundle({"deep": deep}).write(tmp_path / "x.tar")


def test_an_info_of_a_newer_format_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    newer = workshop.bundle(root=root_tree() | {"info.json": b'{"format": 3}'})
    with pytest.raises(BundleError, match="newer than 2"):
        newer.write(tmp_path / "x.tar")
