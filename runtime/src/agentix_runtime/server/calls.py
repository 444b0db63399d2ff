"""The table of calls: what runs, what has ended and whose answer may still be asked for.

A call is begun once, by the first request that names it; every later one is another that waits for
the same outcome. It has one outcome: the worker's, or ``cancelled`` from the moment that is asked
for. Requests come and go with their connections, and leave the call alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agentix.wire import messages
from agentix.wire.messages import (
    Await,
    Call,
    Cancel,
    Failure,
    Follow,
    Leave,
    Next,
    Noted,
    Pending,
    Records,
)
from agentix_runtime.parcel import Parcel, drop
from agentix_runtime.server.call import Answer, Asking, Running, failure
from agentix_runtime.server.clients import Client, Clients, client_of
from agentix_runtime.server.kept import Bounds, Kept

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.wire.fields import FailureKind
    from agentix_runtime.parcel import Payload
    from agentix_runtime.server.journal import Journal
    from agentix_runtime.server.supervisor import Supervisor

Request: TypeAlias = Call | Await | Next | Cancel | Follow | Leave
REQUESTS: Final = (Call, Await, Next, Cancel, Follow, Leave)

ABSENT: Final = 30.0
"""Seconds without a request or a connection after which a client is taken for gone."""

_REMEMBERED: Final = 20_000
"""Ids of calls that are over and still known, so that none of them runs a second time."""

_BETWEEN_NOTES: Final = 10.0

_NOTED: Final = messages.dump(Noted())


class Calls:
    """Answers the requests of clients, each as if it had come once."""

    def __init__(
        self,
        supervisor: Supervisor,
        journal: Journal,
        *,
        absent: float = ABSENT,
        bounds: Bounds | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._supervisor = supervisor
        self._journal = journal
        self._absent = absent
        self._calls: dict[str, Running] = {}
        self._over: OrderedDict[str, FailureKind] = OrderedDict()
        self._clients = Clients()
        self._kept = Kept(bounds or Bounds(), self._pushed_out)
        self._noted = 0.0
        self._answers: dict[type, Callable[[Asking, bytes, Any, Payload], None]] = {
            Call: self._call,
            Await: self._await,
            Next: self._next,
            Cancel: self._cancel,
            Follow: self._follow,
            Leave: self._leave,
        }
        self._timer = self._loop.call_later(min(1.0, absent / 4), self._look_after)

    def close(self) -> None:
        """Stop looking after clients, and let go of all answers."""
        self._timer.cancel()
        for call in self._calls.values():
            call.let_go()

    # For those who carry requests

    def ask(
        self, head: bytes, request: Request, payload: Payload, done: Callable[[Answer], None]
    ) -> Asking:
        """Have a request answered: ``done`` is called once, now or later, unless one leaves.

        *head* is the request as it arrived. The payload is taken over.
        """
        name = request.client if isinstance(request, Follow | Leave) else client_of(request.id)
        asking = Asking(self, self._clients.enter(name), done)
        self._answers[type(request)](asking, head, request, payload)
        return asking

    async def answer(self, head: bytes, request: Request, payload: Payload = b"") -> Answer:
        """Answer a request."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        asking = self.ask(head, request, payload, future.set_result)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                for _, part in future.result().sections:
                    drop(part)
            raise
        finally:
            asking.leave()

    def arrived(self, call_id: str) -> None:
        """Know that a call's outcome has arrived: it need not be kept."""
        if (call := self._calls.get(call_id)) is not None and call.outcome is not None:
            self._forget(call, "forgotten")

    def sending(self, call_id: str, begins: bool) -> None:
        """Know that a large outcome begins, or ends, to be on its way."""
        if (call := self._calls.get(call_id)) is not None:
            call.sending += 1 if begins else -1
            call.since = time.monotonic()

    def connected(self, client: str) -> Callable[[], None]:
        """Know that a client has a connection; what is returned is called when it ends."""
        entered = self._clients.enter(client)
        return lambda: self._clients.leave(entered)

    def mark(self) -> int:
        """Say how far the journal goes, with all that was printed until now."""
        return self._journal.mark()

    # One for each request

    def _call(self, asking: Asking, head: bytes, request: Call, payload: Payload) -> None:
        call = self._calls.get(request.id)
        if call is not None:
            drop(payload)
        elif (kind := self._over.get(request.id)) is not None:
            drop(payload)
            asking.answer([failure(request.id, kind)])
            return
        elif self._clients.has_left(asking.client.name):
            drop(payload)
            asking.answer([failure(request.id, "cancelled")])
            return
        else:
            client = asking.client
            call = self._calls[request.id] = Running(self, request, client)
            client.calls.add(request.id)
            call.worker = self._supervisor.give(call, head, payload)
        self._wait(asking, call, request.wait)

    def _await(self, asking: Asking, head: bytes, request: Await, payload: Payload) -> None:
        if (call := self._calls.get(request.id)) is not None:
            self._wait(asking, call, request.wait)
        else:
            asking.answer([self._not_here(request.id)])

    def _wait(self, asking: Asking, call: Running, wait: int) -> None:
        if call.stream is not None:
            asking.answer([(messages.dump(Pending(call.id)), b"")])
        else:
            self._attach(asking, call, wait)

    def _attach(self, asking: Asking, call: Running, wait: int) -> None:
        """Answer with what there is, or wait for it."""
        asking.call = call
        call.waiting.append(asking)
        call.give(asking)
        if asking.call is not None:
            if wait:
                asking.timer = self._loop.call_later(wait / 1000, asking.late)
            else:
                asking.late()

    def _next(self, asking: Asking, head: bytes, request: Next, payload: Payload) -> None:
        call = self._calls.get(request.id)
        if call is None:
            asking.answer([self._not_here(request.id)])
        elif call.stream is None or request.after > call.stream.last:
            asking.answer([failure(request.id, "refused")])
        else:
            if call.stream.take(request.after) and call.worker is not None:
                call.worker.taken(call.id, call.stream.taken)
            asking.after = request.after
            self._attach(asking, call, request.wait)

    def _cancel(self, asking: Asking, head: bytes, request: Cancel, payload: Payload) -> None:
        if (call := self._calls.get(request.id)) is not None:
            self._give_up(call)
        elif request.id not in self._over:
            self._remember(request.id, "cancelled")  # it has overtaken its call
        asking.answer([(_NOTED, b"")])

    def _follow(self, asking: Asking, head: bytes, request: Follow, payload: Payload) -> None:
        asking.task = self._loop.create_task(self._records(asking, request))
        asking.client.following.append(asking)

    async def _records(self, asking: Asking, request: Follow) -> None:
        first, count, payload = await self._journal.follow(
            request.client, request.journal, request.after, request.wait / 1000
        )
        asking.task = None
        asking.client.following.remove(asking)
        records = Records(self._journal.id, first, count, (len(payload),))
        asking.answer([(messages.dump(records), payload)])

    def _leave(self, asking: Asking, head: bytes, request: Leave, payload: Payload) -> None:
        if (client := self._clients.remove(request.client)) is not None:
            self._abandon(client)
        asking.answer([(_NOTED, b"")])

    # What becomes of calls

    def ended(self, call: Running, head: bytes, payload: Payload) -> None:
        """Take over the outcome that a worker tells of a call."""
        if self._calls.get(call.id) is not call or call.outcome is not None:
            drop(payload)  # it was cancelled
            return
        if call.stream is not None and payload:
            drop(payload)
            text = "the stream ended with a value"
            head, payload = messages.dump(Failure(call.id, "refused", "MalformedError", text)), b""
        call.outcome = head, payload
        call.size = len(head) + (payload.size if isinstance(payload, Parcel) else len(payload))
        if call.stream is not None:
            call.size += call.stream.size
        for asking in call.waiting[:]:
            call.give(asking)
        self._kept.add(call)

    def _give_up(self, call: Running) -> None:
        """Have a call be cancelled, whatever the worker makes of it."""
        running = call.outcome is None
        waiting = call.waiting[:]
        self._forget(call, "cancelled" if running else "forgotten")
        for asking in waiting:
            asking.answer([failure(call.id, "cancelled")])
        if running and call.worker is not None:
            call.worker.cancel(call.id)

    def _abandon(self, client: Client) -> int:
        """End what a client has left behind; say how much of it was running."""
        calls = [self._calls[call_id] for call_id in client.calls]
        running = sum(call.outcome is None for call in calls)
        for call in calls:
            self._give_up(call)
        self._journal.forget(client.name)
        return running

    def _forget(self, call: Running, kind: FailureKind) -> None:
        del self._calls[call.id]
        call.client.calls.discard(call.id)
        self._kept.discard(call.id)
        self._remember(call.id, kind)
        call.let_go()

    def _pushed_out(self, call_id: str) -> None:
        self._forget(self._calls[call_id], "forgotten")

    def _remember(self, call_id: str, kind: FailureKind) -> None:
        self._over[call_id] = kind
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    def _not_here(self, call_id: str) -> tuple[bytes, Payload]:
        return failure(call_id, self._over.get(call_id, "unknown"))

    # From time to time

    def _look_after(self) -> None:
        now = time.monotonic()
        for client in self._clients.absent(now - self._absent):
            if running := self._abandon(client):
                calls = "its call was" if running == 1 else f"its {running} calls were"
                self._journal.note(
                    f"nothing was heard of a client for {self._absent:g} s; {calls} cancelled"
                )
        self._kept.trim()
        if self._kept.unfetched and now - self._noted >= _BETWEEN_NOTES:
            self._noted = now
            self._journal.note(
                f"{self._kept.unfetched} results were dropped that nobody had fetched"
            )
            self._kept.unfetched = 0
        self._timer = self._loop.call_later(min(1.0, self._absent / 4), self._look_after)
