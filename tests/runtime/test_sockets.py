"""Socket.IO on the runtime's side, where the network has not told yet what has become of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import engineio
import pytest

from agentix.wire.messages import Signal
from agentix.wire.packets import event_packet
from agentix_runtime.server.events import Events
from agentix_runtime.server.sockets import Sockets

if TYPE_CHECKING:
    from agentix_runtime.server.calls import Calls
    from agentix_runtime.server.supervisor import Supervisor


async def test_a_clients_new_connection_takes_the_place_of_one_that_it_has_lost() -> None:
    present: list[str] = []
    sent: list[tuple[str, str]] = []

    class Told(Sockets):
        async def _send(self, connection: Any, namespace: str, event: str, *_: Any) -> None:
            sent.append((connection.sid, event))

    def connected(name: str) -> Any:
        present.append(name)
        return lambda: present.remove(name)

    worker = cast("Any", None)
    calls = cast("Calls", SimpleNamespace(connected=connected))
    events = Events(calls, cast("Supervisor", SimpleNamespace()), lambda *_: None)
    sockets = Told(events)
    sockets._hello("old", "client", "", 0, ["/plugin"])
    await asyncio.sleep(0)
    guest = sockets._connections["old"].guest

    # In one turn, so that whatever waited on the old connection would be first to see it.
    events.on_signal(worker, Signal("/plugin", "progress", 0, (1,)), b"\xc0")
    sockets._hello("new", "client", guest.id, 0, ["/plugin"])
    for _ in range(3):
        await asyncio.sleep(0)
    assert sent == [("old", "hello"), ("new", "hello"), ("new", "progress")]
    assert present == ["client"], "it is there once"
    await sockets.close()
    await asyncio.sleep(0)
    assert present == []


async def test_what_the_runtime_itself_does_wrong_is_told_and_ends_the_connection() -> None:
    def connected(name: str) -> Any:
        raise TypeError("a mistake of ours")

    notes: list[tuple[str, int]] = []
    raised: list[Any] = []
    calls = cast("Calls", SimpleNamespace(connected=connected))
    events = Events(calls, cast("Supervisor", SimpleNamespace()), lambda *note: notes.append(note))
    sockets = Sockets(events)

    await sockets._sio.manager.pre_connect("sid", "/rpc")
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    hello = event_packet("/rpc", "hello", "client", "", 0, [])
    with pytest.raises(engineio.exceptions.SocketIsClosedError):
        await sockets._sio.eio._trigger_event("message", "sid", hello)
    assert notes == [
        ("a client's connection was ended: the runtime failed: TypeError: a mistake of ours", 40)
    ]
    assert [str(error) for error in raised] == ["a mistake of ours"]
    assert not sockets._connections
    await sockets.close()
