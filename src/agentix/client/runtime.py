"""The client of a runtime: functions in, values or errors out."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import sys
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from agentix.callables import RemoteCallable
from agentix.client.call import Caller, Course
from agentix.client.connection import Connection
from agentix.client.deadlines import Deadlines
from agentix.client.events import Events
from agentix.client.job import Job, generates
from agentix.client.remote import Remote
from agentix.client.result import Failed, Ok, Result
from agentix.client.stream import items
from agentix.client.url import RuntimeURL
from agentix.errors import RemoteCallError
from agentix.wire.errors import MalformedError
from agentix.wire.frames import payload_size
from agentix.wire.messages import Call
from agentix.wire.protocol import MAX_INLINE, MAX_RESULT, MAX_WAIT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from agentix.client.health import Health
    from agentix.sio import AsyncClientNamespace

_FLUSH: Final = 10.0
"""Seconds that trace processors may take to write out what they hold back."""

_inherited: Final[list[object]] = []
"""What belongs to the process that this one was forked from."""


def check_knobs(timeout: float | None, http_sync_ms: int | None) -> None:
    """Raise ValueError for a timeout or an inline budget that cannot be."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}; it has to be a positive number of seconds")
    if http_sync_ms is not None and not (
        type(http_sync_ms) is int and 0 <= http_sync_ms <= MAX_WAIT
    ):
        raise ValueError(
            f"http_sync_ms is {http_sync_ms!r}; it has to be a number of milliseconds from 0 to "
            f"{MAX_WAIT:,}, or None"
        )


class RuntimeClient(Remote):
    """Calls functions in the sandbox behind a runtime URL.

    ``timeout`` bounds each call, and the wait for each item of a stream, in seconds; ``None``
    leaves it unbounded. Calls that end within ``http_sync_ms`` milliseconds are answered over HTTP;
    longer ones, or all of them if it is ``None``, over Socket.IO. ``token`` is the sandbox's
    secret. The client connects on first use and keeps connections until it is closed.

    Its connections belong to the event loop in which it is used: they are closed at the end of
    ``asyncio.run``, too, and when nobody has the client any more. It may be used again in the next
    loop, or in a forked process, but not in two loops at once.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float | None = 300,
        http_sync_ms: int | None = 1000,
        token: str | None = None,
    ) -> None:
        check_knobs(timeout, http_sync_ms)
        self._url = RuntimeURL.parse(url)
        self._token = token
        self._timeout = timeout
        self._wait = http_sync_ms
        self._sandbox = url
        self._namespaces: list[tuple[AsyncClientNamespace, contextvars.Context]] = []
        self._entered = False
        self._closed = False
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guard: AsyncGenerator[None, None] | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Be a client that the runtime does not know yet, and that belongs to no loop so far."""
        self._deadlines = Deadlines(self._timeout)
        # Unique among all clients of a runtime, without asking for randomness each time.
        self._name = os.urandom(12).hex()
        self._numbers = count(1)
        self._connection = Connection(self._url, self._token)
        self._events = Events(self._url, self._token, self._name, self._connection)
        self._caller = Caller(self._connection, self._events, self._name)
        self._caller.sandbox = self._sandbox
        for namespace, context in self._namespaces:
            context.run(self._events.register, namespace, self._events_here)

    def _be_here(self) -> None:
        """See that what there is belongs to this loop and process; begin anew where it does not.

        Raises RuntimeError where it belongs to another loop that is not closed.
        """
        loop = asyncio.get_running_loop()
        if (loop is self._loop and os.getpid() == self._process) or self._closed:
            return
        if os.getpid() != self._process:
            # Its connections are the parent's. If they were collected here, they would be taken
            # out of the parent's selector, too, which forked processes share.
            _inherited.append((self._caller, self._guard))
            self._begin_anew()
        elif self._loop is not None:
            if not self._loop.is_closed():
                raise RuntimeError(
                    f"the client of {self._url.text} is used in another event loop, which is not "
                    "closed; make a client for each loop"
                )
            self._begin_anew()
        self._loop, self._process = loop, os.getpid()
        self._guard = _close_at_the_end(self._caller)
        with contextlib.suppress(StopIteration):
            self._guard.__anext__().send(None)

    def _events_here(self) -> Events:
        self._be_here()
        return self._events

    async def __aenter__(self) -> Self:
        self._entered = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Calls under way fail, and are cancelled; more are refused.

        Trace processors are flushed: what the sandbox told of is written out.
        """
        self._be_here()
        self._closed = True
        await self._caller.close()
        self._deadlines.close()
        if self._guard is not None:
            await self._guard.aclose()
        trace = sys.modules.get("agentix.utils.trace")
        if trace is not None and trace.get_processors():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH):
                    await asyncio.to_thread(trace.force_flush)

    async def health(self) -> Health:
        """Ask the runtime for its versions and processes.

        Raises :class:`RuntimeUnreachable` when it does not answer, or in another protocol.
        """
        self._be_here()
        return await self._connection.health()

    def register_namespace(self, namespace: AsyncClientNamespace) -> None:
        """Have the host's side of a namespace get the sandbox's events; before entering only.

        Raises RuntimeError after that, and TypeError or ValueError for what is no namespace.
        """
        if self._entered:
            raise RuntimeError(
                f"cannot register {type(namespace).__qualname__}: the client is in use already; "
                "register namespaces before `async with` and before the first call"
            )
        self._events.register(namespace, self._events_here)
        self._namespaces.append((namespace, contextvars.copy_context()))

    def _speaks_for(self, sandbox: str) -> None:
        """Name the sandbox that records of its journal are from."""
        self._sandbox = self._caller.sandbox = sandbox

    def _begin(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = RemoteCallable.validate(fn)
        if not generates(fn):
            return self._call(Job(fn, target, stream=False), args, kwargs)
        job = Job(fn, target, stream=True)
        course = self._course(job, args, kwargs)
        return items(self, self._caller, course, job, self._deadlines)

    def _try(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Result[Any]]:
        target = RemoteCallable.validate(fn)
        if generates(fn):
            raise TypeError(
                f"cannot try {target}: it is a generator function; iterate over remote(…) instead"
            )
        return self._tried(self._call(Job(fn, target, stream=False), args, kwargs))

    async def _tried(self, call: Coroutine[Any, Any, Any]) -> Result[Any]:
        try:
            return Ok(await call)
        except RemoteCallError as error:
            return Failed(error)

    async def _call(self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        course = self._course(job, args, kwargs)
        try:
            with self._deadlines():
                return await job.result(await self._caller.finish(course))
        except TimeoutError:
            raise job.timed_out(f"no result within {self._deadlines.seconds:g} s") from None
        except MalformedError as exc:
            job.unreadable(exc)

    def _course(self, job: Job, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Course:
        """Put a call together."""
        self._be_here()
        self._connection.check_open()
        self._entered = True
        pickled = job.pickled(args, kwargs)
        segments = pickled.segments
        far = self._wait is None and payload_size(segments) <= MAX_INLINE
        call = Call(
            f"{self._name}-{next(self._numbers)}",
            job.target,
            job.form,
            MAX_RESULT,
            MAX_WAIT if far else self._wait or 0,
            job.stream,
            pickled.minor,
            segments,
        )
        return Course(call, pickled, far=far)


async def _close_at_the_end(caller: Caller) -> AsyncGenerator[None, None]:
    """Close it when the loop ends its generators, as it does at its end and where one is lost."""
    try:
        yield
    finally:
        await caller.close()
