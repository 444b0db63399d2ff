"""Files come into the store once: whole, together, interrupted, offline."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from mirror.fetching import bring, left_in_cache, stored
from mirror.offers import content, package
from mirror.server import cut, good, slow, whole
from patience import eventually, eventually_async

from agentix import nix
from agentix.build.artifact import Artifact
from agentix.build.fetch import Fetched
from agentix.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.server import Server

pytestmark = pytest.mark.nix


def test_a_file_is_fetched_once_and_then_is_there(server: Server) -> None:
    data = content()
    file = package(server, data)
    assert bring(file) == Fetched(files=1, size=len(data), present=0)
    assert stored(file) == data
    assert left_in_cache() == []
    assert bring(file) == Fetched(files=0, size=0, present=1)
    assert bring(file, thorough=True, offline=True).files == 0
    assert len(server.requests) == 1


def test_progress_counts_every_byte_once_however_often_it_is_sent(server: Server) -> None:
    data = content()
    counted: list[int] = []

    class Counting:
        @contextlib.contextmanager
        def step(
            self, title: str, *, total: int | None = None, unit: str = "items"
        ) -> Iterator[object]:
            if unit == "bytes":
                assert total == len(data)
                yield type(
                    "Step",
                    (),
                    {"advance": lambda _, n=1: counted.append(n), "outcome": lambda *_: None},
                )()
            else:
                yield type("Step", (), {"advance": lambda *_: None, "outcome": lambda *_: None})()

    bring(package(server, data, cut, cut, whole, good), progress=Counting())
    assert sum(counted) == len(data)


def test_files_come_at_the_same_time_but_not_all_at_once(server: Server) -> None:
    files = [package(server, content(2000), slow(0.02), name=f"tool{n}") for n in range(24)]
    bring(*files)
    assert all(stored(file) for file in files)
    assert 4 <= server.busiest <= 8


def test_what_the_mirror_calls_otherwise_is_stored_under_the_name_that_nix_admits(
    server: Server,
) -> None:
    data = content(1000)
    pool = "pool/main/o/odd/odd_1%3a2~rc1_amd64.deb"
    server.offer("/debian/pool/main/o/odd/odd_1:2~rc1_amd64.deb", data)
    server.offer(f"/debian/{pool}", data)
    file = Artifact(
        file="odd_1-3a2-rc1_amd64.deb",
        package="odd",
        version="1:2~rc1",
        sha256=hashlib.sha256(data).hexdigest(),
        pool=pool,
    )
    bring(file)
    assert stored(file) == data


def test_a_proxy_of_the_user_is_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    data = content(1000)
    file = package(server, data)
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setenv("http_proxy", server.address)
    bring(file)
    assert stored(file) == data
    assert server.requests[0].headers["Host"] == "mirror.invalid"


def test_one_wrong_file_keeps_the_right_ones_for_the_next_run(server: Server) -> None:
    data = content(5000)
    right = package(server, data, name="right")

    async def wrong_at_last(request: web.Request, content: bytes) -> web.StreamResponse:
        await eventually_async(lambda: right.file in left_in_cache(), "the right one is there")
        return web.Response(body=content[::-1])

    wrong = package(server, content(5000), wrong_at_last, good, name="wrong")
    server.behaviours[f"/debian/{wrong.pool}"].pop()
    with pytest.raises(FetchError, match=r"wrong_1\.0-1"):
        bring(right, wrong)
    assert stored(right) is None
    assert stored(wrong) is None
    server.behaviours[f"/debian/{wrong.pool}"] = [good]
    bring(right, wrong)
    assert stored(right) == data
    assert len(server.asked(f"/debian/{right.pool}")) == 1


def test_rubbish_from_an_earlier_run_does_no_harm(server: Server, tmp_path: Path) -> None:
    data = content(5000)
    file = package(server, data)
    place = tmp_path / "cache/downloads" / file.sha256
    place.mkdir(parents=True)
    (place / f"{file.file}.partial").write_bytes(content(2000))
    (place / file.file).write_bytes(content(5000))
    bring(file)
    assert stored(file) == data


def test_what_others_take_away_meanwhile_is_not_missed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = tmp_path / "cache/downloads/lock-of-somebody"
    others.mkdir(parents=True)
    (others / "file").touch()
    real = nix.fixed_path

    def meanwhile(name: str, sha256: str, *, recursive: bool = False) -> str:
        if sha256 == others.name:
            shutil.rmtree(others)
        return real(name, sha256, recursive=recursive)

    monkeypatch.setattr("agentix.build.fetch.arrivals.nix.fixed_path", meanwhile)
    bring(package(server, content(1000)))
    assert not others.exists()


def test_a_path_left_behind_by_a_crash_is_fetched_by_a_thorough_run(server: Server) -> None:
    data = content(5000)
    file = package(server, data)
    if not os.access("/nix/store", os.W_OK):
        pytest.skip("the store belongs to somebody else, who alone can leave something behind")
    Path(file.store_path).write_bytes(b"half")
    assert bring(file).files == 0  # a look is not enough to tell
    assert bring(file, thorough=True).files == 1
    assert stored(file) == data


def test_offline_names_what_is_missing_and_asks_nobody(server: Server, tmp_path: Path) -> None:
    files = [package(server, content(1000), name=f"tool{n}") for n in range(8)]
    bring(files[0])
    server.requests.clear()
    with pytest.raises(FetchError) as caught:
        bring(*files, offline=True, project=tmp_path)
    assert "7 artifacts" in str(caught.value)
    assert "tool1_1.0-1_amd64.deb" in str(caught.value)
    assert "tool0" not in str(caught.value)
    assert f"agentix fetch {tmp_path}" in str(caught.value)
    assert server.requests == []


def test_offline_uses_what_an_interrupted_run_had_completed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = content(5000)
    file = package(server, data)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(nix, "add_fixed", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bring(file)
    bring(file, offline=True)
    assert stored(file) == data
    assert len(server.requests) == 1


def elsewhere(*files: Artifact) -> subprocess.Popen[bytes]:
    """Fetch in another process."""
    code = f"""
        from pathlib import Path
        from agentix.build.artifact import Artifact
        from agentix.build.fetch import fetch
        from agentix.build.fetch import Needs
        fetch(Needs({files!r}, ()), project=Path.cwd(), python="3.11")
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_fetch_is_taken_up_by_the_next(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    data = content(4_000_000)
    file = package(server, data, slow(0.1), good)
    process = elsewhere(file)
    partial = tmp_path / "cache/downloads" / file.sha256 / f"{file.file}.partial"
    begun = "a quarter of the file is there"
    eventually(lambda: partial.exists() and partial.stat().st_size > 1_000_000, begun, within=30)
    process.send_signal(number)
    process.communicate(timeout=30)
    kept = partial.stat().st_size
    assert stored(file) is None
    bring(file)
    assert stored(file) == data
    assert server.requests[-1].headers["Range"] == f"bytes={kept}-"


def test_two_at_once_fetch_each_file_once(server: Server) -> None:
    files = [package(server, content(400_000), slow(0.01), name=f"tool{n}") for n in range(4)]
    processes = [elsewhere(*files), elsewhere(*files)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    assert all(stored(file) for file in files)
    assert len(server.requests) == len(files)


def test_a_fetch_that_never_ends_is_not_waited_for_forever(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.build.fetch.arrivals._WAIT_FOR_OTHERS", 0.1)
    (tmp_path / "cache" / "downloads").mkdir(parents=True)
    with (tmp_path / "cache" / "downloads" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match="another agentix has been fetching"):
            bring(package(server, content(1000)))


def test_a_cache_that_cannot_be_is_named(server: Server, tmp_path: Path) -> None:
    file = package(server, content(1000))
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(FetchError, match=r"cache.*AGENTIX_CACHE_DIR"):
        bring(file)


def test_a_cache_of_somebody_else_is_one_line(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "cache/downloads"
    folder.mkdir(parents=True)
    (folder / ".lock").symlink_to("/nonexistent")  # which is not followed
    with pytest.raises(FetchError, match=f"cannot write the cache {folder}: "):
        bring(package(server, content()))
