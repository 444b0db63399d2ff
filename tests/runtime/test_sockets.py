"""Socket.IO on the runtime's side, where the network has not told yet what has become of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from agentix.wire.messages import Signal
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
    sockets._sio.manager.eio_sid_from_sid = lambda sid, namespace: sid
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
