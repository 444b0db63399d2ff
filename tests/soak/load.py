"""The calls of the soak, each with what has to come of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import time
import zlib
from collections import Counter, deque
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix import (
    AsyncClientNamespace,
    CallTimeout,
    RemoteCallError,
    RemoteSioError,
    RuntimeClient,
    WorkerExited,
    request_handler,
    trace,
)
from soak import far

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

_HUNG = 60.0
"""Seconds after which a call hangs that takes less than one."""

_KEPT = 20.0
"""Seconds for which a mark is kept that nobody has looked at: the call might run again."""


class Near(AsyncClientNamespace):
    """The host's half of the namespace; each request and event comes once."""

    def __init__(self) -> None:
        super().__init__("/soak")
        self.came: Counter[str] = Counter()

    @request_handler("double")
    async def double(self, data: Any) -> Any:
        name, number = data
        self.came[name] += 1
        return 2 * number

    async def on_note(self, name: str) -> None:
        self.came[f"note {name}"] += 1


class Said(logging.Handler):
    """Keeps what the sandbox logs and prints in the names of calls that are under way."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, list[tuple[str, str]]] = {}
        self.notices: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        name, _, rest = record.getMessage().partition(" ")
        if record.name.startswith("agentix") and record.name != "agentix.sandbox.stdout":
            self.notices[record.getMessage()[:60]] += 1
        elif name in self.lines:
            self.lines[name].append((record.name, rest))


class Spans(trace.Processor):
    """Keeps the spans that have ended, of calls that are under way."""

    def __init__(self) -> None:
        self.ended: dict[str, list[trace.Span]] = {}

    def on_span_end(self, s: trace.Span) -> None:
        name = s.name.partition(" ")[0]
        if name in self.ended:
            self.ended[name].append(s)


class Load:
    """Makes calls, and raises when one has not become what it has to."""

    def __init__(
        self,
        clients: dict[str, RuntimeClient],
        another: Callable[[], RuntimeClient],
        marks: Path,
        near: Near,
    ) -> None:
        self._clients = clients
        self._another = another
        self._marks = marks
        self._near = near
        self._numbers = count(1)
        self._loose: deque[tuple[float, str]] = deque()
        self._data = os.urandom(2 << 20)
        self.said = Said()
        self.spans = Spans()
        self.made: Counter[str] = Counter()
        self.kills = 0
        """Odd while a worker is being killed, which is nobody else's fault."""
        self.swaps = 0
        """Odd while it is being replaced, whereupon the next does not know the namespace at first.
        """
        self.exited = 0
        """How many calls have ended by that."""
        self.chance = random.Random(20)

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Hear what the sandbox logs, prints and traces, and let nobody else hear it."""
        names = ["soak", "agentix", "asyncio"]  # which warns of writing to what was cut
        loggers = [logging.getLogger(name) for name in names]
        before = [(one.level, one.propagate) for one in loggers]
        processors = trace.get_processors()
        for one in loggers:
            one.addHandler(self.said)
            one.setLevel(logging.INFO)
            one.propagate = False
        trace.set_processors([self.spans])
        try:
            yield
        finally:
            trace.set_processors(processors)
            for one, (level, propagate) in zip(loggers, before, strict=True):
                one.removeHandler(self.said)
                one.setLevel(level)
                one.propagate = propagate

    async def calls(self, going_on: Callable[[], bool]) -> None:
        """Make one call after the other."""
        kinds = [
            (20, self._value),
            (12, self._wait),
            (4, self._large),
            (4, self._checksum),
            (6, self._stream),
            (6, self._threaded_stream),
            (2, self._bulk_stream),
            (6, self._leave),
            (10, self._talk),
            (6, self._traced),
            (8, self._ask),
            (6, self._echo),
            (6, self._fail),
            (8, self._cancel),
            (2, self._time_out),
            (1, self._brief),
        ]
        weights = [weight for weight, _ in kinds]
        while going_on():
            [(_, kind)] = self.chance.choices(kinds, weights)
            await self.one(kind)
            await asyncio.sleep(self.chance.uniform(0, 0.02))

    async def one(self, kind: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Make one call; that its worker was killed excuses it."""
        name = kind.__name__.strip("_")
        kills, swaps = self.kills, self.swaps
        began = time.monotonic()
        try:
            async with asyncio.timeout(_HUNG):
                await kind()
        except TimeoutError as error:
            if time.monotonic() - began < _HUNG:
                raise
            raise AssertionError(f"{name} hung") from error
        except (WorkerExited, RemoteSioError) as error:
            killed = kills != self.kills or kills % 2
            swapped = swaps != self.swaps or swaps % 2
            if not killed and not (swapped and isinstance(error, RemoteSioError)):
                raise AssertionError(f"{name}: its worker ended by itself") from error
            self.exited += 1
        self.made[name] += 1
        self._sweep()

    def check(self) -> None:
        """See that no call has run twice, and none later than it was over."""
        loose = {Path(path).name for _, path in self._loose}
        left = {entry.name for entry in self._marks.iterdir()} - loose
        assert not left, f"calls ran again, or later: {sorted(left)[:10]}"

    def _sweep(self) -> None:
        now = time.monotonic()
        while self._loose and self._loose[0][0] < now - _KEPT:
            Path(self._loose.popleft()[1]).unlink(missing_ok=True)

    def _client(self) -> RuntimeClient:
        return self._clients[self.chance.choice(["near", "cut", "far"])]

    @contextlib.asynccontextmanager
    async def _once(self, *, whole: bool = True) -> AsyncGenerator[tuple[str, str], None]:
        """Give a mark's path and its name; if the call is to end well, it must have been left."""
        name = f"{next(self._numbers)}"
        path = str(self._marks / name)
        try:
            yield path, name
        except BaseException:
            whole = False
            raise
        finally:
            if whole:
                Path(path).unlink()
            else:
                self._loose.append((time.monotonic(), path))

    # Calls

    async def _value(self) -> None:
        value = {"n": self.chance.random(), "list": [*range(self.chance.randrange(50))], "b": b"x"}
        async with self._once() as (path, _):
            assert await self._client().remote(far.sync, path, value) == value

    async def _wait(self) -> None:
        fn = self.chance.choice([far.wait, far.block])
        async with self._once() as (path, name):
            seconds = self.chance.uniform(0, 0.3)
            assert await self._client().remote(fn, path, name, seconds) == name

    async def _large(self) -> None:
        size = self.chance.choice([70_000, 1_000_000, 1 << 20, (1 << 20) + 1])
        async with self._once() as (path, _):
            found = await self._client().remote(far.large, path, size)
            assert found == b"%d" % (size % 10) * size

    async def _checksum(self) -> None:
        data = self._data[self.chance.randrange(1 << 20) :]
        async with self._once() as (path, _):
            assert await self._client().remote(far.checksum, path, data) == zlib.crc32(data)

    async def _stream(self) -> None:
        many = self.chance.randrange(200)
        async with self._once() as (path, _):
            stream = self._client().remote(far.numbers, path, many)
            assert [number async for number, _ in stream] == [*range(many)]

    async def _threaded_stream(self) -> None:
        many = self.chance.randrange(200)
        async with self._once() as (path, _):
            stream = self._client().remote(far.threaded_numbers, path, many)
            assert [number async for number in stream] == [*range(many)]

    async def _bulk_stream(self) -> None:
        async with self._once() as (path, _):
            stream = self._client().remote(far.numbers, path, 4, 300_000)
            found = [item async for item in stream]
            assert found == [(number, bytes(300_000)) for number in range(4)]

    async def _leave(self) -> None:
        async with self._once(whole=False) as (path, _):
            fn: Any = self.chance.choice([far.numbers, far.threaded_numbers])
            stream = self._client().remote(fn, path, 1_000_000)
            leave = self.chance.randrange(40)
            async with contextlib.aclosing(stream):
                async for _ in stream:
                    leave -= 1
                    if leave < 0:
                        break

    async def _talk(self) -> None:
        lines = self.chance.randrange(1, 30)
        async with self._once() as (path, number):
            name = f"call-{number}"
            heard = self.said.lines[name] = []
            try:
                assert await self._client().remote(far.talk, path, name, lines) == name
            finally:
                del self.said.lines[name]
            for logger in ("soak", "agentix.sandbox.stdout"):
                found = [rest for who, rest in heard if who == logger]
                assert found == [str(line) for line in range(lines)], (name, logger, found)

    async def _traced(self) -> None:
        async with self._once() as (path, number):
            name = f"span-{number}"
            heard = self.spans.ended[name] = []
            try:
                with trace.trace("soak"), trace.span("here") as here:
                    assert await self._client().remote(far.traced, path, name) == name
            finally:
                del self.spans.ended[name]
            inner, outer = heard
            assert (outer.parent_id, inner.parent_id) == (here.span_id, outer.span_id)

    async def _ask(self) -> None:
        came = self._near.came
        async with self._once() as (path, name):
            try:
                client = self._clients["cut"]
                assert await client.remote(far.ask, path, name, 21) == 42
                found = came[name], came[f"note {name}"]
                assert found == (1, 1), f"request {name} and its event came {found} times"
            except RemoteCallError as error:
                # The worker that asked is not there any more, or it was the one that answers.
                if error.error.type.rpartition(".")[2] != "RemoteSioError":
                    raise
                raise RemoteSioError(error.error.type, str(error)) from error
            finally:
                came.pop(name, None)
                came.pop(f"note {name}", None)

    async def _echo(self) -> None:
        data = ["x", self.chance.random()]
        assert await self._near.call("echo", data) == data

    async def _fail(self) -> None:
        async with self._once() as (path, name):
            try:
                await self._client().remote(far.fail, path, name)
            except WorkerExited:
                raise
            except RemoteCallError as error:
                failed = error.error
            else:
                raise AssertionError("it did not fail")
            assert (failed.type, failed.message) == ("ValueError", name)

    async def _cancel(self) -> None:
        fn = self.chance.choice([far.wait, far.block])
        async with self._once(whole=False) as (path, name):
            call = asyncio.create_task(self._client().remote(fn, path, name, 30.0))
            await asyncio.wait([call], timeout=self.chance.uniform(0, 0.1))
            call.cancel()
            await asyncio.wait([call])
            if not call.cancelled():
                call.result()  # its worker was killed
                raise AssertionError("it ended before its time")

    async def _time_out(self) -> None:
        async with self._once(whole=False) as (path, name):
            began = time.monotonic()
            try:
                await self._clients["hasty"].remote(far.wait, path, name, 30.0)
            except CallTimeout:
                assert time.monotonic() - began < 10
            else:
                raise AssertionError("it ended before its time")

    async def _brief(self) -> None:
        async with self._once() as (path, name), self._another() as client:
            assert await client.remote(far.sync, path, name) == name

    async def deaf(self) -> None:
        """Cancel what does not hear of it: its worker is replaced, and no other call knows."""
        client = self._clients["near"]
        self.swaps += 1
        old = (await client.remote(far.counts))["pid"]
        async with self._once(whole=False) as (path, _):
            call = asyncio.create_task(client.remote(far.deaf, path, 13.0))
            await asyncio.wait([call], timeout=0.1)
            call.cancel()
            await asyncio.wait([call])
            await self._another_worker(old)
        self.swaps += 1

    async def kill(self) -> None:
        """Kill the worker, one way or another, and see that the next call has a new one."""
        client = self._clients["near"]
        self.kills += 1
        old = (await client.remote(far.counts))["pid"]
        how = self.chance.choice(["exit", "kill", "from outside"])
        if how == "from outside":
            os.kill(old, signal.SIGKILL)
        else:
            async with self._once(whole=False) as (path, _):
                found = await client.try_remote(far.die, path, how)
                assert isinstance(getattr(found, "error", None), WorkerExited), found
        await self._another_worker(old)
        self.kills += 1

    async def _another_worker(self, old: int) -> None:
        async with asyncio.timeout(_HUNG):
            while True:
                with contextlib.suppress(WorkerExited):
                    if (await self._clients["near"].remote(far.counts))["pid"] != old:
                        return
                await asyncio.sleep(0.05)
