"""Processes known by number, also in another process than the one that started them.

A provider whose sandboxes are processes of this machine records :meth:`SandboxProcesses.facts`
with the sandbox, so that whichever process deletes it knows what to end.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_POLL = 0.002
_REAP_BOUND = 2.0
_FREEZE_BOUND = 1.0


@dataclass(frozen=True, slots=True)
class ProcessRef:
    """A process that may have ended: the number alone could be another one's by now."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the process that has the number *pid* now; ProcessLookupError when none has."""
        return cls(pid, _stat(pid).started)

    def exists(self) -> bool:
        """Tell whether it runs, or has ended and its parent has not noticed."""
        with suppress(ProcessLookupError):
            return _stat(self.pid).started == self.started
        return False

    def runs(self) -> bool:
        """Tell whether it has not ended."""
        with suppress(ProcessLookupError):
            state = _stat(self.pid)
            return state.started == self.started and state.letter not in "ZX"
        return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process and no other; nothing happens when it has ended."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.exists():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def children(self) -> list[ProcessRef]:
        """Return the processes that it started and that still belong to it."""
        found = []
        for pid in self._below():
            with suppress(ProcessLookupError):
                state = _stat(pid)
                if state.parent == self.pid and self.exists():
                    found.append(ProcessRef(pid, state.started))
        return found

    def _below(self) -> list[int]:
        """Return who may be its children: those, or everybody where the kernel does not tell."""
        listed: list[str] = []
        try:
            for task in Path(f"/proc/{self.pid}/task").iterdir():  # a thread has its own children
                with suppress(FileNotFoundError, ProcessLookupError):
                    listed += (task / "children").read_text().split()
        except OSError:
            return []  # it has ended
        if not listed and not Path("/proc/self/task", str(os.getpid()), "children").exists():
            listed = [folder.name for folder in Path("/proc").iterdir()]
        return [int(name) for name in listed if name.isdecimal()]

    def heads_a_namespace(self) -> bool:
        """Tell whether it is the first of a PID namespace: with it, the kernel ends all in that."""
        with suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text(errors="replace").splitlines():
                if line.startswith("NSpid:"):
                    numbers = line.split()[1:]
                    return len(numbers) > 1 and numbers[-1] == "1" and self.exists()
        return False

    async def kill_tree(self) -> None:
        """End it and every process below it, and return once none of them runs.

        Each is stopped before its children are looked for, so that none is started meanwhile. One
        that has left the tree (its parent ended before) is not found: where tasks may do that, a
        PID namespace or the runtime's own end has to take it.
        """
        found, waiting = [], [self]
        while waiting:
            process = waiting.pop()
            found.append(process)
            if not process.heads_a_namespace():
                await process.freeze()
                waiting += process.children()
        for process in reversed(found):
            process.send(signal.SIGKILL)
        for process in found:
            await process.ended()

    async def freeze(self) -> None:
        """Stop it where it is, and return when it does nothing more."""
        self.send(signal.SIGSTOP)
        with suppress(ProcessLookupError, TimeoutError):
            async with asyncio.timeout(_FREEZE_BOUND):
                while _stat(self.pid).letter not in "TtZX" and self.exists():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL)

    async def ended(self) -> None:
        """Return once it has ended, whether or not its parent has noticed."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if not self.runs():
                return
            loop = asyncio.get_running_loop()
            ready = asyncio.Event()
            loop.add_reader(descriptor, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)


_NOBODY = ProcessRef(2**31 - 1, -1)  # more than the numbers that a kernel gives


class Place(NamedTuple):
    """Where the number of a process means anything: a machine until it stops, and a namespace."""

    boot: str
    namespace: int


@functools.cache
def here() -> Place:
    """Return the place of this process, which it never leaves."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return Place(boot, Path("/proc/self/ns/pid").stat().st_ino)


@dataclass(frozen=True, slots=True)
class SandboxProcesses:
    """The processes by which a sandbox is known outside of it.

    ``first`` is the one whose end ends the sandbox: the first of its PID namespace, or the runtime
    where there is none. ``launcher`` is what the host started and what waits for it; the same
    process where nothing lies between. ``helpers`` end with the launcher, but not if that is
    killed.
    """

    first: ProcessRef
    launcher: ProcessRef
    helpers: tuple[ProcessRef, ...] = ()

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Self:
        """Read what :meth:`facts` gave, maybe before this machine was started anew.

        Raises ProviderError when the numbers are those of another PID namespace, or make no sense.
        """
        try:
            first, launcher, *helpers = (
                ProcessRef(int(each["pid"]), int(each["started"]))
                for each in (facts["first"], facts["launcher"], *facts.get("helpers", ()))
            )
            place = Place(str(facts["boot"]), int(facts["namespace"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProviderError("the record of its processes makes no sense") from error
        boot, namespace = here()
        if place.boot != boot:
            return cls(_NOBODY, _NOBODY)
        if place.namespace != namespace:
            raise ProviderError(
                "its processes are in another PID namespace (that of a container, perhaps), "
                "from which alone they can be seen and ended"
            )
        return cls(first, launcher, tuple(helpers))

    def facts(self) -> dict[str, Any]:
        """Return this as plain values."""
        return {**asdict(self), **here()._asdict()}

    async def stop(self, grace: float) -> None:
        """Ask the sandbox to end, kill it after *grace* seconds, and return when all is gone."""
        if grace > 0:
            self.first.send(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self.first.ended()
        # The kernel kills and reaps everything in a PID namespace before its first process is gone;
        # where there is none, what is left of the runtime is a tree.
        await self.first.kill_tree()
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_BOUND):
                await self.launcher.ended()
        await self.launcher.kill_tree()
        # Its parent reaps it: this process in another thread, or the one that created it.
        with suppress(TimeoutError):
            async with asyncio.timeout(_REAP_BOUND):
                while self.launcher.exists():  # noqa: ASYNC110 - only a parent is told
                    await asyncio.sleep(_POLL)
        for helper in self.helpers:
            await helper.kill_tree()


class _State(NamedTuple):
    letter: str
    parent: int
    started: int


def _stat(pid: int) -> _State:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}") from None
    fields = text.rpartition(")")[2].split()
    return _State(fields[0], int(fields[1]), int(fields[19]))
