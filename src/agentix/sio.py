"""Namespaces: events and requests between a sandbox and its host, beside the calls.

A plugin has one class on each side, under the same namespace name:

    class Progress(Namespace):                   # imported in the sandbox, where it is registered
        namespace = "/progress"

        async def on_pause(self, data): ...      # await host.emit("pause", data), host.call(...)

    progress = Progress()
    register_namespace(progress)                 # await progress.emit("step", {"done": 3})
                                                 # await progress.request("next", {})

    class Host(AsyncClientNamespace):            # on the host: sandbox.register_namespace(Host())
        def __init__(self):
            super().__init__("/progress")

        async def on_step(self, data): ...

        @request_handler("next")
        async def next_task(self, data):
            return {"task": 7}                   # what request() returns in the sandbox

Data are plain values: None, bool, int, float, str, bytes, lists, and dicts with text keys.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from agentix.wire.protocol import MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

RESERVED: Final = frozenset({"/rpc", "/log", "/trace"})
"""The namespaces of Agentix itself."""

CONNECTION_EVENTS: Final = frozenset({"connect", "disconnect", "connect_error"})
"""What happens to a connection; nobody can send these as events."""

__all__ = ["AsyncClientNamespace", "Namespace", "register_namespace", "request_handler"]

if TYPE_CHECKING:

    class AsyncClientNamespace:
        """The host's side of a namespace: python-socketio's class of this name."""

        namespace: str
        client: Any

        def __init__(self, namespace: str | None = None) -> None: ...

        async def trigger_event(self, event: str, *args: Any) -> Any:
            """Give an event to its handler."""

        async def emit(
            self,
            event: str,
            data: Any = None,
            namespace: str | None = None,
            callback: Callable[..., Any] | None = None,
        ) -> None:
            """Send an event to the sandbox."""

        async def send(
            self,
            data: Any,
            namespace: str | None = None,
            callback: Callable[..., Any] | None = None,
        ) -> None:
            """Send the event ``message`` to the sandbox."""

        async def call(
            self,
            event: str,
            data: Any = None,
            namespace: str | None = None,
            timeout: float | None = None,  # noqa: ASYNC109 - python-socketio's signature
        ) -> Any:
            """Send an event to the sandbox and give what its handler there returns."""


def __getattr__(name: str) -> object:
    if name != "AsyncClientNamespace":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import socketio

    return socketio.AsyncClientNamespace


class Port(Protocol):
    """What a worker offers its namespaces; usable in any of its threads."""

    async def emit(self, namespace: str, event: str, data: Any) -> None:
        """Send an event to the host."""

    async def request(self, namespace: str, event: str, data: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
        """Send an event to the host and give its handler's reply."""


class Namespace:
    """The sandbox's side of a namespace: subclass it, register one object with the worker.

    ``on_<event>`` methods handle what the host sends: async ones on the worker's loop, others in
    threads. What they return, or raise, is the answer when the host waits for one.

    :meth:`emit` and :meth:`request` belong to no loop. An async function awaits them; a sync one,
    which runs in a thread, has ``asyncio.run(progress.request("next", {}))``.
    """

    namespace: str

    async def emit(self, event: str, data: Any = None) -> None:
        """Send an event to the host.

        Events arrive in the order they were sent, also when the connection breaks meanwhile. They
        wait for the host in a bounded queue; while that is full, so does this.

        Raises:
            TypeError: the data are not plain values, or too much.
        """
        await _port(self).emit(_registered_name(self), _event(event), data)

    async def request(self, event: str, data: Any = None, *, timeout: float | None = 300) -> Any:  # noqa: ASYNC109
        """Send an event to the host, and return what its handler there returns.

        ``timeout`` bounds the wait, in seconds.

        Raises:
            RemoteSioError: the handler raised, or there is none, or the host went away.
            TimeoutError: no reply came in time.
            TypeError: the data are not plain values, or too much.
        """
        return await _port(self).request(_registered_name(self), _event(event), data, timeout)


_namespaces: dict[str, Namespace] = {}
_worker: Port | None = None


def register_namespace(namespace: Namespace) -> None:
    """Have a namespace's handlers called in this sandbox; elsewhere, remember it and do no more.

    Call it at the top of the module that defines the class: importing the module registers it.

    Raises:
        TypeError: it is not a :class:`Namespace`, or one of its ``on_<event>`` cannot be called.
        ValueError: its name is not one, is reserved, or is taken by another namespace.
    """
    given: object = namespace
    if not isinstance(given, Namespace):
        hint = "; register it with the sandbox" if hasattr(given, "trigger_event") else ""
        raise TypeError(
            f"cannot register {given!r}: it is not an object of an agentix.Namespace{hint}"
        )
    name = checked(namespace)
    known = _namespaces.get(name)
    if known is not None and known is not namespace and not _same_class(known, namespace):
        raise ValueError(
            f"cannot register {type(namespace).__qualname__}: {type(known).__qualname__} has the "
            f"namespace {name} already"
        )
    _namespaces[name] = namespace


def _same_class(one: Namespace, other: Namespace) -> bool:
    """Tell whether a module was merely loaded again."""
    a, b = type(one), type(other)
    return a is not b and (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def checked(namespace: Any) -> str:
    """Give a namespace's name, or raise for a name or a handler that cannot be used."""
    owner = type(namespace).__qualname__
    name = getattr(namespace, "namespace", None)
    if type(name) is not str or not name.startswith("/") or name == "/" or len(name) > MAX_NAME:
        raise ValueError(
            f'cannot register {owner}: its namespace is {name!r}, and has to be like "/name"'
        )
    if not name.isprintable() or any(c in name for c in " ,?"):
        raise ValueError(f"cannot register {owner}: {name!r} has a character that none may have")
    if name in RESERVED:
        raise ValueError(f"cannot register {owner}: the namespace {name} is reserved for Agentix")
    for attribute in dir(namespace):
        if attribute.startswith("on_") and not callable(getattr(namespace, attribute)):
            raise TypeError(f"cannot register {owner}: its {attribute} is not a function")
    return name


def find(name: str) -> Namespace | None:
    """Give the namespace that is registered here under a name."""
    return _namespaces.get(name)


def attach(port: Port) -> None:
    """Make this process a worker, whose namespaces can reach the host."""
    global _worker
    _worker = port


def _port(namespace: Namespace) -> Port:
    if _worker is None:
        raise RuntimeError(
            f"{type(namespace).__qualname__} can reach the host from inside a sandbox only"
        )
    return _worker


def _registered_name(namespace: Namespace) -> str:
    name = getattr(namespace, "namespace", None)
    if type(name) is not str or _namespaces.get(name) is not namespace:
        owner = type(namespace).__qualname__
        raise RuntimeError(f"{owner} is not registered; call register_namespace() with it first")
    return name


def _event(event: Any) -> str:
    if type(event) is not str or not 0 < len(event) <= MAX_NAME or event in CONNECTION_EVENTS:
        raise ValueError(f"{event!r:.300} cannot be the name of an event")
    return event


Handler = TypeVar("Handler", bound="Callable[..., Any]")


class _RequestHandler:
    """Stands for a method until its class is made, and puts it where its event is looked for."""

    def __init__(self, event: str, function: Callable[..., Any]) -> None:
        self._event = event
        self._function = function

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self._function)
        handler = f"on_{self._event}"
        if name != handler:
            if handler in vars(owner):
                raise TypeError(f"{owner.__qualname__} has two handlers of {self._event!r}")
            setattr(owner, handler, self._function)


def request_handler(event: str) -> Callable[[Handler], Handler]:
    """Make a method of an :class:`AsyncClientNamespace` answer a sandbox's requests.

    The method gets the request's data. What it returns is the reply; what it raises becomes a
    :class:`RemoteSioError` in the sandbox, with the exception's ``status_code`` if that is an
    integer.
    """
    if callable(event):
        raise TypeError('request_handler needs the event\'s name: @request_handler("event")')
    _event(event)

    def decorate(function: Handler) -> Handler:
        if not inspect.isfunction(function):
            raise TypeError(f"request_handler({event!r}) is for methods, not for {function!r}")
        return _RequestHandler(event, function)  # type: ignore[return-value]

    return decorate


def status_of(error: BaseException) -> int | None:
    """Give the status code that an exception carries, if it is one."""
    status = getattr(error, "status_code", None)
    return status if type(status) is int and 0 <= status <= 999 else None


def accepts_data(handler: Callable[..., Any]) -> bool:
    """Tell whether a handler takes the event's data; one of an event without any may not."""
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin, which tells nothing
        return True
    return True
