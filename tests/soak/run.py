"""One soak: three parts of the same load, and what is held after the first and the last."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from local_runtime import LocalRuntime
from local_runtime.proxy import Proxy

from soak import far
from soak.load import Load, Near
from soak.measure import Held, children, held, of_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

_AT_ONCE = 12
_TOLD = 10.0


async def soak(seconds: float, say: Callable[[str], None]) -> list[str]:
    """Make calls for so long, and tell what has grown; raise for a call gone wrong."""
    with tempfile.TemporaryDirectory(prefix="agentix-soak-") as folder:
        report, marks = Path(folder, "report"), Path(folder, "marks")
        marks.mkdir()
        spy = f"**__import__('soak.spy', fromlist=['spy']).install({str(report)!r})"
        # Ten minutes, as it is, would be too long for a third of a soak to come to rest.
        with LocalRuntime(settings=f"bounds=Bounds(age=10.0), {spy}") as runtime:
            async with Proxy(runtime) as proxy:
                soaking = _Soak(runtime, proxy, report, marks, say)
                with soaking.load.heard():
                    return await soaking.run(seconds)


class _Soak:
    def __init__(
        self,
        runtime: LocalRuntime,
        proxy: Proxy,
        report: Path,
        marks: Path,
        say: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._proxy = proxy
        self._report = report
        self._say = say
        self._began = time.monotonic()
        self._cuts = 0
        near = Near()
        self._clients = {
            "near": runtime.client(),
            "cut": proxy.client(http_sync_ms=20),
            "far": proxy.client(http_sync_ms=None),
            "hasty": runtime.client(timeout=0.2),
        }
        self._clients["cut"].register_namespace(near)
        self.load = Load(self._clients, runtime.client, marks, near)

    async def run(self, seconds: float) -> list[str]:
        """Run the three parts. In the last one no worker is killed, so that one grows old."""
        part = seconds / 3
        async with contextlib.AsyncExitStack() as stack:
            for client in self._clients.values():
                await stack.enter_async_context(client)
            # Whichever call is the first: the namespace is there.
            await self._clients["near"].remote(far.counts)
            await self._part(part, killing=part)
            first = await self._look("after a third")
            await self._part(part, killing=part / 2)
            second = await self._look("after two")
            await self._part(part, killing=0)
            last = await self._look("at the end")
        self._say(f"made: {self._counted()}")
        for notice, number in self.load.said.notices.most_common():
            self._say(f"told {number} times: {notice}")
        grown = [f"{who}: {what}" for who in first for what in last[who].grown(first[who])]
        assert second["worker"].pid == last["worker"].pid, "the worker ended by itself"
        grown += [f"worker: {what}" for what in last["worker"].grown(second["worker"])]
        left = asyncio.all_tasks() - {asyncio.current_task()}
        mine = [task for task in left if "Proxy" not in repr(task)]
        return grown + [f"host: a task is left: {task}" for task in mine]

    async def _part(self, seconds: float, killing: float) -> None:
        now = time.monotonic()
        end = now + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self.load.calls(lambda: time.monotonic() < end))
            group.create_task(self._cut(end))
            group.create_task(self._tell(end))
            pause = min(6.0, seconds / 4)
            group.create_task(self._often(self.load.kill, now + killing - pause, pause))
            if seconds > 60:
                group.create_task(self._often(self.load.deaf, now + killing - 20, 30))

    async def _cut(self, end: float) -> None:
        chance = self.load.chance
        while time.monotonic() < end:
            await asyncio.sleep(chance.uniform(0.05, 1.0))
            if chance.random() < 0.5:
                self._proxy.cut()
            else:
                self._proxy.cut_after(chance.choice(["there", "back"]), chance.randrange(200_000))
            self._cuts += 1

    async def _often(
        self, trouble: Callable[[], Coroutine[Any, Any, None]], end: float, pause: float
    ) -> None:
        while time.monotonic() < end:
            await asyncio.sleep(pause)
            await trouble()

    async def _tell(self, end: float) -> None:
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(_TOLD, left))
            self._say(self._counted())

    def _counted(self) -> str:
        load = self.load
        total = sum(load.made.values())
        return (
            f"{time.monotonic() - self._began:.0f} s: {total:,} calls, {self._cuts} cuts, "
            f"{load.kills // 2} kills and {load.swaps // 2} replacements, which ended "
            f"{load.exited} calls"
        )

    async def _look(self, when: str) -> dict[str, Held]:
        """See what the processes hold while nothing happens."""
        self.load.check()
        server = self._runtime.process.pid
        async with asyncio.timeout(40):
            while len(children(server)) != 1:  # a worker that was replaced
                await asyncio.sleep(0.05)
        for client in self._clients.values():
            # How many connections are kept is a matter of chance.
            client._connection._pool.cut()
        self._proxy.cut()
        for client in self._clients.values():
            await client.remote(far.counts)
        async with asyncio.timeout(20):
            while not self._clients["cut"]._events.connected:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        counts = await self._clients["near"].remote(far.counts)
        found = {
            "server": await of_server(server, self._report),
            "host": held(os.getpid(), far.held()),
        }
        worker = held(counts.pop("pid"), counts)
        for who, what in {**found, "worker": worker}.items():
            self._say(f"{when}, {who}: {what}")
        return {**found, "worker": worker} if when != "after a third" else found
