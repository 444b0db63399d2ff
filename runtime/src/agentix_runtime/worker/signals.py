"""Events between the namespaces of this worker and the host."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from agentix import sio
from agentix.errors import RemoteSioError
from agentix.wire import plain
from agentix.wire.errors import UnencodableError
from agentix.wire.fields import shorten
from agentix.wire.messages import Reply, Signal
from agentix_runtime.parcel import contents
from agentix_runtime.worker import forks
from agentix_runtime.worker.failures import text_of, type_name
from agentix_runtime.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix_runtime.parcel import Payload

_log = logging.getLogger("agentix.sio")

ROOM: Final = ("/rpc", "room")
"""The namespace and name of the signal that asks the server whether more events may be sent."""

_EVENTS: Final = 256
_BYTES: Final = 8 << 20
"""What may be sent before the server is asked."""

_MOST_WARNINGS: Final = 100
_NO_ROOM: Final = ("OSError", "the sandbox has too many open files to take the data of an event")


class Signals:
    """Sends what namespaces emit, and calls their handlers; a :class:`agentix.sio.Port`.

    ``say`` sends a message from any thread, and tells whether it could.
    """

    def __init__(self, say: Callable[[Signal | Reply, bytes], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._threads = Threads()
        self._say = say
        # A worker's numbers are not those of the worker before it.
        self._numbers = count(time.monotonic_ns())
        self._waiting: dict[int, _Waiter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned: set[tuple[str, str]] = set()
        self._begun: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._events = 0
        self._bytes = 0
        sio.attach(self)

    # To the host; in any thread and on any loop

    async def emit(self, namespace: str, event: str, data: Any) -> None:
        """Send an event."""
        payload = plain.dump(data)
        await self._room(len(payload))
        self._post(namespace, event, 0, payload)

    async def request(self, namespace: str, event: str, data: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
        """Send an event and wait for its reply."""
        payload = plain.dump(data)
        try:
            async with asyncio.timeout(timeout):
                await self._room(len(payload))
                reply, answer = await self._ask(namespace, event, payload)
        except TimeoutError:
            raise TimeoutError(
                f"no reply from the host to {event!r} of {namespace} within {timeout:g} s"
            ) from None
        if reply.type:
            raise RemoteSioError(reply.type, reply.message, reply.status)
        return plain.load(answer)

    async def _ask(self, namespace: str, event: str, payload: bytes) -> tuple[Reply, bytes]:
        number = next(self._numbers)
        waiter = self._waiting[number] = _Waiter()
        try:
            self._post(namespace, event, number, payload)
            return await waiter.future
        finally:
            self._waiting.pop(number, None)

    async def _room(self, size: int) -> None:
        """Wait while the host does not keep up."""
        while True:
            with self._lock:
                if self._events < _EVENTS and self._bytes < _BYTES:
                    self._events += 1
                    self._bytes += size
                    return
            await self._ask(*ROOM, b"")
            with self._lock:
                self._events = self._bytes = 0

    def _post(self, namespace: str, event: str, request: int, payload: bytes) -> None:
        if forks.in_child():
            raise RuntimeError(
                "a forked process cannot reach the host; send events from its parent"
            )
        if not self._say(Signal(namespace, event, request, (len(payload),)), payload):
            raise RemoteSioError("QueueFullError", "the runtime does not keep up with the events")

    # From the host; on the worker's loop

    def heard(self, message: Signal | Reply, payload: Payload | None) -> None:
        """Take what the host has to say."""
        if isinstance(message, Signal):
            self._on_signal(message, payload)
        else:
            self._on_reply(message, payload)

    def _on_reply(self, reply: Reply, payload: Payload | None) -> None:
        data = contents(payload)
        if data is None:
            reply, data = Reply(reply.request, *_NO_ROOM, None, (0,)), b""
        if (waiter := self._waiting.pop(reply.request, None)) is not None:
            waiter.settle((reply, data))

    def _on_signal(self, signal: Signal, payload: Payload | None) -> None:
        if (data := contents(payload)) is None:
            self._unhandled(signal, *_NO_ROOM)
            return
        namespace = sio.find(signal.namespace)
        if namespace is None:
            why = f"the sandbox has no namespace {signal.namespace}; import its module there"
            self._unhandled(signal, "NoHandlerError", why)
            return
        handler = getattr(namespace, f"on_{signal.event}", None)
        if handler is None:
            owner = type(namespace).__qualname__
            why = f"{owner} in the sandbox has no on_{signal.event}"
            self._unhandled(signal, "NoHandlerError", why)
            return
        context = self._context.copy()
        if inspect.iscoroutinefunction(handler):
            task = self._loop.create_task(self._await(signal, handler, data), context=context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        before, begun = self._begun.get(signal.namespace), threading.Event()
        self._begun[signal.namespace] = begun
        job = functools.partial(self._call, signal, handler, data, before, begun)
        try:
            self._threads.run(functools.partial(context.run, job))
        except RuntimeError as error:  # the sandbox may have no threads
            begun.set()
            self._failed(signal, error)

    async def _await(self, signal: Signal, handler: Callable[..., Any], data: bytes) -> None:
        try:
            self._answer(signal, await _invoke(handler, data))
        except BaseException as error:  # it is the user's code: whatever it is, the worker lives on
            self._failed(signal, error)

    def _call(
        self,
        signal: Signal,
        handler: Callable[..., Any],
        data: bytes,
        before: threading.Event | None,
        begun: threading.Event,
    ) -> None:
        """Call a handler in a thread, once that of the event before has begun."""
        if before is not None:
            before.wait()
        begun.set()
        try:
            value = _invoke(handler, data)
            if inspect.iscoroutine(value):
                raise TypeError(f"on_{signal.event} gave a coroutine; define it with async def")
            self._answer(signal, value)
        except BaseException as error:
            self._failed(signal, error)

    def _answer(self, signal: Signal, value: Any) -> None:
        if forks.in_child():
            forks.leave(None)
        if signal.request:
            payload = plain.dump(value)
            self._say(Reply(signal.request, "", "", None, (len(payload),)), payload)

    def _failed(self, signal: Signal, error: BaseException) -> None:
        if forks.in_child():
            forks.leave(error)
        if signal.request:
            self._refuse(signal, *described(error))
        elif not isinstance(error, asyncio.CancelledError):
            _log.error(
                "the handler of %r of %s failed", signal.event, signal.namespace, exc_info=error
            )

    def _refuse(self, signal: Signal, name: str, text: str, status: int | None = None) -> None:
        self._say(Reply(signal.request, name, text, status, (0,)), b"")

    def _unhandled(self, signal: Signal, name: str, why: str) -> None:
        if signal.request:
            self._refuse(signal, name, why)
        elif len(self._warned) < _MOST_WARNINGS:
            key = (signal.namespace, signal.event)
            if key not in self._warned:
                self._warned.add(key)
                _log.warning("events %r of %s are dropped: %s", signal.event, signal.namespace, why)


class _Waiter:
    """Somebody who waits on some loop in some thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[tuple[Reply, bytes]] = self._loop.create_future()

    def settle(self, result: tuple[Reply, bytes]) -> None:
        """Wake it up; it may be gone already, with its loop."""

        def wake() -> None:
            if not self.future.done():
                self.future.set_result(result)

        try:
            self._loop.call_soon_threadsafe(wake)
        except RuntimeError:
            return


def _invoke(handler: Callable[..., Any], data: bytes) -> Any:
    value = plain.load(data)
    return handler() if value is None and not sio.accepts_data(handler) else handler(value)


def described(error: BaseException) -> tuple[str, str, int | None]:
    """Describe a handler's failure as a reply does: type, message, status code."""
    if isinstance(error, RemoteSioError):
        name, text = error.type, error.message
    elif isinstance(error, UnencodableError):
        name, text = "TypeError", f"the handler's value cannot be sent: {error}"
    else:
        name, text = type_name(type(error)), text_of(error)
    return shorten(str(name), 1024), shorten(str(text)), sio.status_of(error)
