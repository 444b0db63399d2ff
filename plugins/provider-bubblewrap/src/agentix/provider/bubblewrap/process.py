"""A bubblewrap that this process started, and its output."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakValueDictionary

from agentix.provider.bubblewrap.options import Content
from agentix.provider.bubblewrap.process_ref import ProcessRef, SandboxProcesses

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agentix.provider.kit import OutputTail

_UMASK: Final = 0o022

# Those that this process started, for as long as they live.
_started: WeakValueDictionary[ProcessRef, SandboxProcess] = WeakValueDictionary()


class SandboxProcess(asyncio.SubprocessProtocol):
    """A running bubblewrap. What it and the sandbox print is read for as long as they live."""

    def __init__(self, tail: OutputTail) -> None:
        self.tail = tail
        self._transport: asyncio.SubprocessTransport | None = None
        self._itself: ProcessRef | None = None
        self._gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls,
        program: Path,
        options: Sequence[str | Content],
        command: Sequence[str],
        tail: OutputTail,
    ) -> SandboxProcess:
        """Start *command* in the sandbox that *options* describe; *tail* gets what it prints.

        The options go through a descriptor, since other users can read a command line. Do not
        cancel this: asyncio would kill bubblewrap alone, see :meth:`kill`.
        """
        with ExitStack() as files:
            words, given = bytearray(), []
            for option in options:
                if isinstance(option, Content):
                    given.append(files.enter_context(_in_memory(option.text.encode())))
                    words += b"%d\0" % given[-1]
                else:
                    words += os.fsencode(option) + b"\0"
            file = files.enter_context(_in_memory(words))
            loop = asyncio.get_running_loop()
            _, process = await loop.subprocess_exec(
                lambda: cls(tail),
                str(program),
                *("--args", str(file), "--", *command),
                stdin=asyncio.subprocess.PIPE,  # nothing is written; its end is the message
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(file, *given),
                start_new_session=True,  # Ctrl-C is for the host program; sandboxes end in order
                env={},  # the sandbox has what the options set, and nothing of the host's
                cwd="/",
                **_umask(loop),
            )
        return process

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the process; asyncio calls this before anything else."""
        started = self._transport = cast("asyncio.SubprocessTransport", transport)
        with suppress(ProcessLookupError):
            self._itself = ProcessRef.of(started.get_pid())
            _started[self._itself] = self

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the end of what the sandbox prints."""
        self.tail.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end: of the process, and of all that it printed."""
        assert self._transport is not None  # noqa: S101
        if not self._gone.done():
            code = self._transport.get_returncode()
            self._gone.set_result(-signal.SIGKILL if code is None else code)
        self._transport.close()

    def processes(self) -> SandboxProcesses | None:
        """Return the processes of a sandbox that answers; None when it has ended."""
        below = self._itself.children() if self._itself else []
        return SandboxProcesses(below[0], self._itself) if below and self._itself else None

    async def ended(self) -> str:
        """Return how it ended, once it has and all its output was read."""
        code = await asyncio.shield(self._gone)
        number = -code if code < 0 else code - 128  # bubblewrap passes signals on as a shell does
        with suppress(ValueError):
            return f"killed by {signal.Signals(number).name}"
        return f"exit status {code}"

    async def kill(self) -> None:
        """End it, and with it whatever runs in the sandbox, however far that has come.

        Killed alone while it is at work, bubblewrap leaves a child that waits for it for ever.
        """
        if self._itself is not None:
            await self._itself.freeze()
            for child in self._itself.children():
                child.send(signal.SIGKILL)
            self._itself.send(signal.SIGKILL)
        await self.ended()

    @staticmethod
    async def settled(processes: SandboxProcesses) -> None:
        """Return once this loop, if it started these *processes*, has noticed their end."""
        process = _started.get(processes.bubblewrap)
        if process is not None and process._gone.get_loop() is asyncio.get_running_loop():
            await process.ended()


def _umask(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Say how to start a process with the umask that engines have; the host's is none of its."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return {"umask": _UMASK}
    return {"preexec_fn": partial(os.umask, _UMASK)}  # uvloop knows no other way


@contextmanager
def _in_memory(content: bytes | bytearray) -> Iterator[int]:
    """Give a descriptor from which *content* can be read, by a child too."""
    file = os.memfd_create("bubblewrap", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as writing:
            writing.write(content)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)
