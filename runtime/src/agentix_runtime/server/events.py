"""Events between the namespaces of hosts and those of the worker, and who is there to take them.

A guest is a client that is or was connected by Socket.IO. What is sent to it waits in its line,
also while its connection is broken; after :data:`ABSENT` seconds of that it is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import secrets
import sys
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from agentix.wire.errors import MalformedError
from agentix.wire.line import Line
from agentix.wire.messages import Reply, Signal
from agentix.wire.protocol import MAX_ID, MAX_INLINE, MAX_SIGNAL, MAX_TARGET, MAX_TEXT
from agentix_runtime.parcel import Parcel, contents
from agentix_runtime.server.calls import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentix_runtime.parcel import Payload
    from agentix_runtime.server.calls import Calls
    from agentix_runtime.server.sockets import Sockets
    from agentix_runtime.server.supervisor import Supervisor
    from agentix_runtime.server.worker import Worker

_OURS: Final = "/rpc"
_MOST_NOTES: Final = 100


class Guest:
    """A client, and what is on its way to it and from it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = secrets.token_hex(8)
        """Tells the client whether this is still the guest that it was before."""
        self.line = Line()
        self.namespaces: frozenset[str] = frozenset()
        self.wake = asyncio.Event()
        self.connection: object | None = None
        """What it is connected by, if it is."""
        self.gone: asyncio.TimerHandle | None = None

    def send(self, namespace: str, event: str, *arguments: Any, size: int = 0) -> None:
        """Put something into the line to it."""
        self.line.add(namespace, event, *arguments, size=size)
        self.wake.set()


class Events:
    """Passes events and replies on, each to where it belongs."""

    def __init__(
        self,
        calls: Calls,
        supervisor: Supervisor,
        note: Callable[[str, int], None],
        *,
        absent: float = ABSENT,
    ) -> None:
        self.calls = calls
        self._supervisor = supervisor
        self.note = note
        self._absent = absent
        self._loop = asyncio.get_running_loop()
        self._guests: dict[str, Guest] = {}
        self._numbers = count(1)
        # Requests of workers that a guest is to answer: by whom, to whom, its number there.
        self._of_workers: dict[int, tuple[Guest, Worker, int]] = {}
        # Requests of guests that a worker is to answer.
        self._of_guests: dict[int, tuple[Worker, Guest, int]] = {}
        # Those who wait until all lines have room again.
        self._crowding: list[tuple[Worker, int]] = []
        self._noted: set[str] = set()
        self._sockets: Sockets | None = None
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._loading: asyncio.Task[None] | None = None
        supervisor.on_signal = self.on_signal
        supervisor.on_reply = self.on_reply
        supervisor.on_gone = self.on_gone

    # Connections

    def hand_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over a connection that has asked for Socket.IO, and what has arrived on it."""
        if self._sockets is not None:
            self._sockets.take_over(transport, data)
            return
        transport.pause_reading()
        self._waiting.append((transport, data))
        if self._loading is None:
            self._loading = self._loop.create_task(self._load())

    async def _load(self) -> None:
        """Load what few sandboxes need, in a thread: it takes longer than anybody should wait."""
        module = await asyncio.to_thread(_load)
        self._sockets = module.Sockets(self)
        waiting, self._waiting = self._waiting, []
        for transport, data in waiting:
            transport.resume_reading()
            self._sockets.take_over(transport, data)

    async def close(self) -> None:
        """End all connections."""
        if self._loading is not None:
            self._loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loading
        for transport, _ in self._waiting:
            transport.abort()
        if self._sockets is not None:
            await self._sockets.close()
        for guest in self._guests.values():
            if guest.gone is not None:
                guest.gone.cancel()

    # Guests

    def arrive(
        self, connection: object, name: Any, known: Any, seen: Any, namespaces: Any
    ) -> Guest:
        """Begin a guest's connection. Raises MalformedError for what no client says."""
        if type(name) is not str or not 1 <= len(name) <= MAX_ID or type(namespaces) is not list:
            raise MalformedError("a client does not say who it is")
        if not all(type(one) is str for one in namespaces):
            raise MalformedError("a client has a namespace that is none")
        guest = self._guests.get(name)
        if guest is not None and guest.id != known:
            self._forget(guest)  # it has forgotten us
            guest = None
        if guest is None:
            guest = Guest(name)
        else:
            guest.line.resume(seen)
            del self._guests[name]  # the last one to arrive comes last
        self._guests[name] = guest
        guest.namespaces = frozenset(namespaces)
        guest.connection = connection
        if guest.gone is not None:
            guest.gone.cancel()
            guest.gone = None
        self._look_for_room()
        return guest

    def leave(self, guest: Guest, connection: object, *, for_good: bool) -> None:
        """End a guest's connection, which may have been replaced by another one."""
        if guest.connection is not connection:
            return
        guest.connection = None
        if for_good:
            self._forget(guest)
        elif self._guests.get(guest.name) is guest and guest.gone is None:
            guest.gone = self._loop.call_later(self._absent, self._forget, guest)

    def _forget(self, guest: Guest) -> None:
        if self._guests.get(guest.name) is guest:
            del self._guests[guest.name]
        if guest.gone is not None:
            guest.gone.cancel()
        for number in [n for n, (other, *_) in self._of_workers.items() if other is guest]:
            _, worker, request = self._of_workers.pop(number)
            self._refuse(worker, request, "HostGoneError", "the host went away without a reply")
        for number in [n for n, (_, other, _) in self._of_guests.items() if other is guest]:
            del self._of_guests[number]
        self._look_for_room()

    # From the worker

    def on_signal(self, worker: Worker, signal: Signal, payload: Payload | None) -> None:
        """Take an event of the worker's."""
        data = contents(payload)
        if signal.namespace == _OURS:
            self._crowding.append((worker, signal.request))
            self._look_for_room()
            return
        guests = [one for one in self._guests.values() if signal.namespace in one.namespaces]
        if signal.request:
            why = self._ask(worker, signal, data, guests[-1] if guests else None)
            if why:
                self._refuse(worker, signal.request, *why)
            return
        if not guests:
            self._note_once(f"events of {signal.namespace} are dropped: no host has registered it")
        for guest in guests:
            if data is None or guest.line.full:
                self._note_once(f"events of {signal.namespace} are dropped: too many wait")
            else:
                guest.send(signal.namespace, signal.event, 0, data, size=len(data))

    def _ask(
        self, worker: Worker, signal: Signal, data: bytes | None, guest: Guest | None
    ) -> tuple[str, str] | None:
        """Pass a request on; say why not, if it is not."""
        if guest is None:
            text = f"no host has registered {signal.namespace}; register it before the first call"
            return "NoHandlerError", text
        if data is None or guest.line.full:
            return "QueueFullError", "too many events wait for the host"
        number = next(self._numbers)
        self._of_workers[number] = guest, worker, signal.request
        guest.send(signal.namespace, signal.event, number, data, size=len(data))
        return None

    def on_reply(self, worker: Worker, reply: Reply, payload: Payload | None) -> None:
        """Take the worker's reply to a guest's request."""
        data = contents(payload)
        asked = self._of_guests.get(reply.request)
        if asked is None or asked[0] is not worker:
            return
        del self._of_guests[reply.request]
        _, guest, request = asked
        if data is None or guest.line.full:
            error = ("OSError", "the sandbox has no room for the reply", None, b"")
            guest.send(_OURS, "reply", request, *error)
        else:
            told = (reply.type, reply.message, reply.status, data)
            guest.send(_OURS, "reply", request, *told, size=len(data))

    def on_gone(self, worker: Worker) -> None:
        """Fail what a worker has left unanswered."""
        for number in [n for n, (one, *_) in self._of_guests.items() if one is worker]:
            _, guest, request = self._of_guests.pop(number)
            guest.send(_OURS, "reply", request, *_WORKER_GONE)
        for number in [n for n, (_, one, _) in self._of_workers.items() if one is worker]:
            del self._of_workers[number]
        self._crowding = [waiting for waiting in self._crowding if waiting[0] is not worker]

    # From guests

    def event(
        self, guest: Guest, namespace: str, event: str, number: Any, request: Any, data: Any
    ) -> None:
        """Take an event of a guest's. Raises MalformedError for what is none."""
        if type(request) is not int or type(data) is not bytes or len(data) > MAX_SIGNAL:
            raise MalformedError("an event is not valid")
        if not guest.line.arrived(number):
            return
        ours = next(self._numbers) if request else 0
        worker = self._supervisor.send_signal(
            Signal(namespace, event, ours, (len(data),)), _packed(data)
        )
        if not request:
            return
        if worker is None:
            guest.send(_OURS, "reply", request, *_WORKER_GONE)
        else:
            self._of_guests[ours] = worker, guest, request

    def reply(self, guest: Guest, number: Any, told: Iterable[Any]) -> None:
        """Take a guest's reply to a worker's request. Raises MalformedError for what is none."""
        request, name, text, status, data = checked_reply(told)
        if not guest.line.arrived(number):
            return
        asked = self._of_workers.get(request)
        if asked is None or asked[0] is not guest:
            return
        del self._of_workers[request]
        _, worker, request = asked
        worker.send(Reply(request, name, text, status, (len(data),)), _packed(data))

    def taken(self, guest: Guest, number: Any) -> None:
        """Know what has arrived at a guest."""
        guest.line.taken(number)
        self._look_for_room()

    def _refuse(self, worker: Worker, request: int, name: str, text: str) -> None:
        worker.send(Reply(request, name, text, None, (0,)), b"")

    def _look_for_room(self) -> None:
        if self._crowding and not any(guest.line.crowded for guest in self._guests.values()):
            for worker, request in self._crowding:
                worker.send(Reply(request, "", "", None, (0,)), b"")
            self._crowding.clear()

    def _note_once(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < _MOST_NOTES:
            self._noted.add(text)
            self.note(text, logging.INFO)


_WORKER_GONE: Final = ("WorkerExited", "the worker ended before it replied", None, b"")


def _load() -> Any:
    importlib.import_module("aiohttp.web")
    # The server does without TLS, which is slow to load. python-socketio imports it, unused; of
    # HTTP clients that a project may have brought along, it takes what it finds.
    if sys.modules.get("ssl", ...) is None:
        del sys.modules["ssl"]
    for client in ("requests", "websocket"):
        sys.modules.setdefault(client, None)  # type: ignore[arg-type]
    return importlib.import_module("agentix_runtime.server.sockets")


def checked_reply(told: Iterable[Any]) -> tuple[int, str, str, int | None, bytes]:
    """Read a reply: request, type, message, status, data. Raises MalformedError."""
    try:
        request, name, text, status, data = told
    except ValueError:
        raise MalformedError("a reply is not one") from None
    if not (
        type(request) is int
        and type(name) is str
        and len(name) <= MAX_TARGET
        and type(text) is str
        and len(text) <= MAX_TEXT
        and (status is None or (type(status) is int and 0 <= status <= 999))
        and type(data) is bytes
        and len(data) <= MAX_SIGNAL
    ):
        raise MalformedError("a reply is not valid")
    return request, name, text, status, data


def _packed(data: bytes) -> Payload:
    return data if len(data) <= MAX_INLINE else Parcel.of([data])
