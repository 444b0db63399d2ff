"""The host's namespaces: python-socketio's objects, and their handlers at work.

Handlers begin in the order of their events and run as tasks of their own, so that none delays
another. What arrives for them has been written by the sandbox.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agentix import sio
from agentix.errors import RemoteSioError
from agentix.text import plain as printable
from agentix.wire import plain
from agentix.wire.errors import MalformedError, UnencodableError
from agentix.wire.fields import shorten
from agentix.wire.protocol import MAX_TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger("agentix.sio")

Reply: TypeAlias = tuple[str, str, int | None, bytes]
"""Of an error its type, message and status code, else three times nothing and the data."""

_BUSY: Final = 1000
_BUSY_BYTES: Final = 128 << 20
"""Handlers at work, and the bytes of their data, from which on no more events are asked for."""

_MOST: Final = 3
"""So many times as much a sandbox cannot have sent unasked."""

_MOST_WARNINGS: Final = 100


class Namespaces:
    """The namespaces of one client. ``reply`` is called with what a handler makes of a request."""

    def __init__(self, reply: Callable[[int, Reply], None], idle: Callable[[], None]) -> None:
        self._reply = reply
        self._idle = idle
        self._all: dict[str, sio.AsyncClientNamespace] = {}
        self._context = contextvars.copy_context()
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0
        self._bytes = 0
        self._warned: set[tuple[str, str]] = set()

    @property
    def names(self) -> list[str]:
        """The names of all."""
        return list(self._all)

    @property
    def busy(self) -> bool:
        """Whether no more events should come for the time being."""
        return self._count >= _BUSY or self._bytes >= _BUSY_BYTES

    def add(self, namespace: sio.AsyncClientNamespace, client: object) -> None:
        """Register a namespace; *client* is what it sends by.

        Raises TypeError or ValueError for what cannot be one.
        """
        self._all[admitted(namespace, self._all)] = namespace
        namespace._set_client(client)  # type: ignore[attr-defined]

    def begin(self, name: str, event: str, request: int, data: bytes) -> None:
        """Begin the handler of an event. Raises MalformedError for what no sandbox may send."""
        namespace = self._all.get(name)
        if namespace is None or event in sio.CONNECTION_EVENTS:
            raise MalformedError("an event came that nobody can have asked for")
        if self._count >= _MOST * _BUSY or self._bytes >= _MOST * _BUSY_BYTES:
            raise MalformedError("more events came than may be sent without being asked for")
        value = plain.load(data)
        handler = _handler(namespace, event)
        if handler is None:
            owner = type(namespace).__qualname__
            why = f"{owner} on the host has no handler of {printable(event)!r}"
            if request:
                self._reply(request, ("NoHandlerError", why, None, b""))
            else:
                self._warn(name, event, why)
            return
        self._count += 1
        self._bytes += len(data)
        self._start(self._handle(handler, name, event, request, value, len(data)))

    def tell(self, event: str, *arguments: Any) -> None:
        """Call the handlers of what happens to the connection."""
        for namespace in self._all.values():
            if (handler := getattr(namespace, f"on_{event}", None)) is not None:
                self._start(_told(handler, event, arguments))

    async def close(self, grace: float) -> None:
        """End the handlers, those last begun with some time to finish."""
        await asyncio.sleep(0)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)

    def cancel(self) -> None:
        """Cancel the handlers at work."""
        for task in self._tasks:
            task.cancel()

    def _start(self, coroutine: Any) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(coroutine, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(
        self,
        handler: Callable[..., Any],
        name: str,
        event: str,
        request: int,
        value: Any,
        size: int,
    ) -> None:
        try:
            made = handler() if value is None and not sio.accepts_data(handler) else handler(value)
            if inspect.isawaitable(made):
                made = await made
            reply: Reply = ("", "", None, plain.dump(made) if request else b"")
        except (Exception, asyncio.CancelledError) as error:
            reply = _described(error)
            if not request and isinstance(error, Exception):
                _log.exception("the handler of %r of %s failed", printable(event), name)
        finally:
            self._count -= 1
            self._bytes -= size
            self._idle()
        if request:
            self._reply(request, reply)

    def _warn(self, name: str, event: str, why: str) -> None:
        if (name, event) not in self._warned and len(self._warned) < _MOST_WARNINGS:
            self._warned.add((name, event))
            _log.warning("events %r of %s are dropped: %s", printable(event), name, why)


def admitted(namespace: object, others: Mapping[str, object]) -> str:
    """Give the name of a host's namespace that can be registered beside others.

    Raises TypeError or ValueError for what cannot be.
    """
    if not isinstance(namespace, sio.AsyncClientNamespace):
        hint = "; register it in the sandbox" if isinstance(namespace, sio.Namespace) else ""
        raise TypeError(
            f"cannot register {namespace!r}: it is not an object of an "
            f"agentix.AsyncClientNamespace{hint}"
        )
    name = sio.checked(namespace)
    if name in others:
        raise ValueError(
            f"cannot register {type(namespace).__qualname__}: "
            f"{type(others[name]).__qualname__} has the namespace {name} already"
        )
    return name


def _handler(namespace: Any, event: str) -> Callable[..., Any] | None:
    """Find the handler of an event, as python-socketio does."""
    if type(namespace).trigger_event is not sio.AsyncClientNamespace.trigger_event:
        return lambda value: namespace.trigger_event(event, value)
    return getattr(namespace, f"on_{event}", None)


async def _told(handler: Callable[..., Any], event: str, arguments: tuple[Any, ...]) -> None:
    try:
        if arguments and not sio.accepts_data(handler):
            arguments = ()
        made = handler(*arguments)
        if inspect.isawaitable(made):
            await made
    except Exception:
        _log.exception("a handler of %r failed", event)


def _described(error: BaseException) -> Reply:
    """Describe a handler's failure for the sandbox."""
    if isinstance(error, RemoteSioError):
        name, text = error.type, error.message
    elif isinstance(error, UnencodableError):
        name, text = "TypeError", f"the handler's value cannot be sent: {error}"
    else:
        cls = type(error)
        name = f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
        try:
            text = str(error)
        except Exception as exc:
            text = f"<its text cannot be had: {type(exc).__name__}>"
    return shorten(str(name), MAX_TARGET), shorten(str(text)), sio.status_of(error), b""
