"""The client against servers that are not what they should be."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Self
from urllib.parse import quote

import msgpack
import pydantic
import pytest
from aiohttp import web
from local_runtime import apart, far

from agentix import Failed, RuntimeClient
from agentix.client.url import RuntimeURL
from agentix.errors import CallTimeout, RemoteCallError, RuntimeUnreachable
from agentix.wire import messages
from agentix.wire.frames import MARK, body_prefix
from agentix.wire.messages import Call, Failure, Value
from agentix.wire.protocol import MAX_RESULT, PROTOCOL
from agentix.wire.values.encode import encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path


@contextlib.asynccontextmanager
async def answering(
    folder: Path, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
) -> AsyncIterator[RuntimeClient]:
    """Serve every request with one handler, and give a client of that."""
    runner = web.ServerRunner(web.Server(handler, access_log=None))
    await runner.setup()
    path = str(folder / "s")
    await web.UnixSite(runner, path).start()
    try:
        async with RuntimeClient(unix(path), timeout=20, token="t" * 32) as client:
            yield client
    finally:
        await runner.cleanup()


def unix(path: str) -> str:
    """Make a URL of a socket's path."""
    return f"http+unix://{quote(path, safe='')}"


def answer(make: Callable[[str], bytes]) -> Callable[[web.BaseRequest], Any]:
    """Answer calls with bytes made for their id."""

    async def handle(request: web.BaseRequest) -> web.Response:
        head, _ = apart(await request.read())
        return web.Response(body=make(messages.load(head, Call).id))

    return handle


def body(message: Any, payload: bytes = b"") -> bytes:
    """Put an answer together."""
    return MARK.pack(0) + body_prefix(messages.dump(message)) + payload


BAD: dict[str, Callable[[str], bytes]] = {
    "nothing": lambda _: b"",
    "noise": lambda _: b"\xff" * 100,
    "no message": lambda _: MARK.pack(0) + body_prefix(b"\xc0"),
    "another call's": lambda _: body(Value("other", "values", "", (3,)), b"\x92\x90\x01"),
    "another call's failure": lambda _: body(Failure("other", "raised", "T", "m")),
    "a pickle": lambda id_: body(Value(id_, "pickle", "", (3,)), b"\x92\x90\x01"),
    "too short": lambda id_: body(Value(id_, "values", "", (30,)), b"\x92\x90\x01"),
    "too long": lambda id_: body(Value(id_, "values", "", (3,)), b"\x92\x90\x01\x01"),
    "no value": lambda id_: body(Value(id_, "values", "", (3,)), b"\xff\xff\xff"),
    "large and short": lambda id_: body(Value(id_, "values", "a", (3, 1 << 30)), bytes(2 << 20)),
    "large and long": lambda id_: body(Value(id_, "values", "", (1 << 20,)), bytes(2 << 20)),
    "large noise": lambda _: b"\xff" * (2 << 20),
    "of more bytes than are accepted": lambda id_: body(
        Value(id_, "values", "b", (3, MAX_RESULT)), bytes(2 << 20)
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_answer_is_one_typed_error(tmp_path: Path, what: str) -> None:
    async with answering(tmp_path, answer(BAD[what])) as client:
        with pytest.raises(RemoteCallError) as caught:
            await client.remote(far.noop)
        assert caught.value.error.type == "MalformedResult"


async def test_more_than_is_accepted_is_refused_before_it_comes(tmp_path: Path) -> None:
    read: list[int] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        head, _ = apart(await request.read())
        call = messages.load(head, Call)
        response = web.StreamResponse()
        response.content_length = call.limit + 1000
        await response.prepare(request)
        await response.write(body(Value(call.id, "values", "b", (3, call.limit))))
        with contextlib.suppress(OSError):
            while True:  # nobody reads this for long
                await response.write(bytes(1 << 20))
                read.append(1 << 20)
        return response

    async with answering(tmp_path, handle) as client:
        with pytest.raises(RemoteCallError, match="are accepted"):
            await client.remote(far.noop)
    assert sum(read) < 64 << 20


async def test_a_document_of_far_too_many_values_holds_nobody_up(tmp_path: Path) -> None:
    """It would take a hundred times its size in memory, and as long to make."""
    count = 40 << 20
    document = b"\x92\x90\x92\x01\x9f" + b"\xdd\x00\x28\x00\x00".join(
        [b""] + [b"\x90" * (5 << 19)] * 15
    )
    assert len(document) > count * 0.9
    make = answer(lambda id_: body(Value(id_, "values", "", (len(document),)), document))
    async with answering(tmp_path, make) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        longest = await _longest_turn(client.try_remote(far.noop))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "values" in str(longest[1])
    assert after - before < 700 << 10  # KiB
    assert longest[0] < 5


class Seen(pydantic.BaseModel):
    """Notes in which thread it was made."""

    threads: ClassVar[list[threading.Thread]] = []
    text: str

    @pydantic.model_validator(mode="after")
    def note(self) -> Self:
        self.threads.append(threading.current_thread())
        return self


def seen() -> Seen:
    """Return one."""
    raise NotImplementedError


@pytest.mark.parametrize(("size", "here"), [(1000, True), (2 << 20, False)])
async def test_a_long_document_is_read_beside_the_loop(
    tmp_path: Path, size: int, here: bool
) -> None:
    document, _ = encode(Seen(text="x" * size))
    Seen.threads.clear()
    make = answer(lambda id_: body(Value(id_, "values", "", (len(document),)), document))
    async with answering(tmp_path, make) as client:
        assert await client.remote(seen) == Seen(text="x" * size)
    assert (Seen.threads[0] is threading.main_thread()) == here


async def _longest_turn(call: Awaitable[Any]) -> tuple[float, Any]:
    """Say how long the loop was held up at most, meanwhile, and what came of the call."""
    task = asyncio.ensure_future(call)
    longest = 0.0
    while not task.done():
        start = time.perf_counter()
        await asyncio.sleep(0)
        longest = max(longest, time.perf_counter() - start)
    return longest, task.result()


async def test_a_pickle_that_cannot_be_rebuilt_is_a_failure_like_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTIX_PICKLE_TRUST", "1")
    for pickled in (b"cnot_there\nClass\n.", b"noise", b""):
        make = answer(lambda id_, p=pickled: body(Value(id_, "pickle", "", (len(p),)), p))  # type: ignore[misc]
        async with answering(tmp_path, make) as client:
            result = await client.try_remote(far.noop)
        assert isinstance(result, Failed)
        assert result.error.error.type == "UnpicklingError"
        assert "cannot be rebuilt here" in result.error.error.message


ESCAPES = "\x1b]0;title\x07 \x1b[2J\r\u202e"


@pytest.mark.parametrize(
    "make",
    [
        lambda id_: Failure(id_, "raised", ESCAPES, ESCAPES, ESCAPES),
        lambda id_: Failure(id_, "exited", ESCAPES, ESCAPES, returncode=1),
        lambda id_: Value(id_, "values", "", (0,)),
    ],
)
async def test_nothing_that_a_sandbox_says_controls_the_terminal(
    tmp_path: Path, make: Callable[[str], Value | Failure]
) -> None:
    document = msgpack.packb([[[1, "m", ESCAPES, []]], 1])

    def answered(id_: str) -> bytes:
        message = make(id_)
        if isinstance(message, Value):
            return body(Value(id_, "values", "", (len(document),)), document)
        return body(message)

    async with answering(tmp_path, answer(answered)) as client:
        with pytest.raises(RemoteCallError) as caught:
            await client.remote(far.noop)
    info = caught.value.error
    for text in (str(caught.value), info.type, info.message, info.traceback):
        assert text.replace("\n", "").isprintable()
    assert "title" in str(caught.value)


async def test_nothing_that_a_server_says_controls_the_terminal(tmp_path: Path) -> None:
    facts = {
        "status": "ok",
        "protocol": PROTOCOL,
        "agentix": "0",
        "python": ESCAPES,
        "libc": ESCAPES,
    }
    facts |= {"pid": 1, "worker": {"pid": None}}

    async def handle(request: web.BaseRequest) -> web.Response:
        if request.path == "/health":
            return web.json_response(facts)
        return web.Response(status=500, text=ESCAPES)

    async with answering(tmp_path, handle) as client:
        health = await client.health()
        assert "title" in health.libc
        assert (health.libc + health.python).isprintable()
        with pytest.raises(RuntimeUnreachable, match="title") as caught:
            await client.remote(far.noop)
    assert str(caught.value).isprintable()


async def test_an_answer_may_come_in_many_pieces(tmp_path: Path) -> None:
    facts = {"status": "ok", "protocol": PROTOCOL, "agentix": "0", "python": "3", "libc": "c"}
    facts |= {"pid": 1, "worker": {"pid": None}}

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=200 if request.path == "/health" else 500)
        response.content_length = len(json.dumps(facts))
        await response.prepare(request)
        for letter in json.dumps(facts):
            await response.write(letter.encode())
            await asyncio.sleep(0)
        return response

    async with answering(tmp_path, handle) as client:
        assert (await client.health()).libc == "c"
        with pytest.raises(RuntimeUnreachable, match='"libc": "c"'):
            await client.remote(far.noop)


@pytest.mark.parametrize("status", [204, 302, 404, 413, 500, 502])
async def test_an_unexpected_status_is_a_typed_error(tmp_path: Path, status: int) -> None:
    async def handle(_: web.BaseRequest) -> web.Response:
        text = None if status == 204 else "sorry\n"
        return web.Response(status=status, text=text, headers={"Location": "http://127.0.0.1:9/"})

    async with answering(tmp_path, handle) as client:
        for call in (client.remote(far.noop), client.health()):
            with pytest.raises(RuntimeUnreachable, match=f"HTTP {status}"):
                await call


async def test_another_protocol_is_told_in_one_line_with_both_versions(tmp_path: Path) -> None:
    about = {"protocol": 7, "agentix": "9.9", "status": "ok", "python": "3", "libc": "", "pid": 1}

    async def handle(request: web.BaseRequest) -> web.Response:
        status = 200 if request.path == "/health" else 426
        return web.json_response(about | {"worker": {"pid": None}}, status=status)

    async with answering(tmp_path, handle) as client:
        for call in (client.remote(far.noop), client.health()):
            with pytest.raises(RuntimeUnreachable) as caught:
                await call
            text = str(caught.value)
            assert "protocol 7 (agentix 9.9)" in text
            assert f"protocol {PROTOCOL} (agentix 0.1.0)" in text
            assert "\n" not in text


DESCRIBED = {"status": "ok", "protocol": PROTOCOL, "agentix": "0", "python": "3", "libc": "c"}
DESCRIBED |= {"pid": 1}
ODD: list[dict[str, Any]] = [
    {},
    {"worker": {"pid": "1"}},
    {"worker": {"pid": ""}},
    {"worker": {"pid": []}},
    {"worker": {"pid": -1}},
    {"worker": {"pid": 1}, "pid": 1 << 40},
    {"worker": {"pid": 1}, "libc": 5},
]


@pytest.mark.parametrize(
    "told",
    [
        *("", "[]", "{}", '{"worker": {}}', "x", "[" * 50_000),
        *(json.dumps(DESCRIBED | odd) for odd in ODD),
    ],
)
async def test_health_that_is_none_is_a_typed_error(tmp_path: Path, told: str) -> None:
    async def handle(_: web.BaseRequest) -> web.Response:
        return web.Response(text=told)

    async with answering(tmp_path, handle) as client:
        with pytest.raises(RuntimeUnreachable, match="MalformedAnswer"):
            await client.health()


async def test_a_server_that_hangs_up_is_unreachable_at_once(tmp_path: Path) -> None:
    async def handle(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with answering(tmp_path, handle) as client:
        start = time.perf_counter()
        with pytest.raises(RuntimeUnreachable):
            await client.remote(far.noop)
        assert time.perf_counter() - start < 3


async def test_a_server_that_never_answers_meets_the_timeout(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def handle(_: web.BaseRequest) -> web.Response:
        await gone.wait()
        return web.Response()

    async with answering(tmp_path, handle) as client:
        client._deadlines.seconds = 0.2
        with pytest.raises(CallTimeout):
            await client.remote(far.noop)
        gone.set()


async def test_nobody_there_is_said_with_the_reason(tmp_path: Path) -> None:
    for url, reason in (
        (unix(str(tmp_path / "none")), "No such file"),
        ("http://127.0.0.1:9", "Connection refused|Connect call failed"),
    ):
        async with RuntimeClient(url) as client:
            for call in (client.remote(far.noop), client.health()):
                with pytest.raises(RuntimeUnreachable, match=reason):
                    await call
            result = await client.try_remote(far.noop)
            assert type(result).__name__ == "Failed"


async def test_a_function_that_cannot_be_called_is_refused_before_anything_is_sent() -> None:
    async with RuntimeClient("http://127.0.0.1:9") as client:
        with pytest.raises(TypeError, match="a lambda"):
            await client.remote(lambda: 1)
        with pytest.raises(TypeError, match="a lambda"):
            await client.try_remote(lambda: 1)


@pytest.mark.parametrize(
    ("url", "base", "path"),
    [
        ("http://127.0.0.1:80", "http://127.0.0.1:80", None),
        ("http://[::1]:8000/", "http://[::1]:8000", None),
        ("http+unix://%2Frun%2Fa%20b%2Fs", "http://runtime", "/run/a b/s"),
        ("http+unix:///run/s", "http://runtime", "/run/s"),
    ],
)
def test_urls(url: str, base: str, path: str | None) -> None:
    found = RuntimeURL.parse(url)
    assert (found.base, found.socket) == (base, path)


@pytest.mark.parametrize(
    "url",
    ["", "x", "https://host", "http://", "http+unix://relative", "http://u:p@host", "http://h/x",
     "http://h:99999999", "ftp://h", "http://h?x=1"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="runtime URL"):
        RuntimeClient(url)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_has_to_be_positive(timeout: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        RuntimeClient("http://127.0.0.1:9", timeout=timeout)
