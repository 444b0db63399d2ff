"""A bubblewrap that this process started, and its output."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from agentix.provider.bubblewrap.process_ref import ProcessRef, SandboxProcesses

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentix.provider.output import OutputTail

_CLONE_BOUND = 20.0  # seconds until bubblewrap must have made its namespaces
_MAX_INFO = 64 * 1024

# Those that this process started, for as long as they live.
_started: WeakValueDictionary[ProcessRef, SandboxProcess] = WeakValueDictionary()


class SandboxProcess(asyncio.SubprocessProtocol):
    """A running bubblewrap. What it and the sandbox print is read for as long as they live."""

    def __init__(self, tail: OutputTail) -> None:
        self.tail = tail
        self.processes: SandboxProcesses | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def start(
        cls, program: Path, options: Sequence[str], command: Sequence[str], tail: OutputTail
    ) -> SandboxProcess:
        """Start *command* in the sandbox that *options* describe; *tail* gets what it prints.

        ``processes`` of the result is None when bubblewrap ended at once. The options go through a
        descriptor, since other users can read a command line. Do not cancel this: see
        :meth:`kill`.
        """
        listen, info = os.pipe2(os.O_CLOEXEC)
        file = os.memfd_create("bubblewrap-options", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(file), "wb") as content:
                content.writelines(os.fsencode(option) + b"\0" for option in options)
            os.lseek(file, 0, os.SEEK_SET)
            _, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: cls(tail),
                str(program),
                *("--args", str(file), "--info-fd", str(info)),
                *("--", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(file, info),
                start_new_session=True,  # Ctrl-C is for the host program; sandboxes end in order
                env={},  # the sandbox has what the options set, and nothing of the host's
                cwd="/",
            )
        except BaseException:
            os.close(listen)
            raise
        finally:
            os.close(file)
            os.close(info)
        try:
            async with asyncio.timeout(_CLONE_BOUND):
                found = process.processes = await process._identify(listen)
            if found is not None:
                _started[found.bubblewrap] = process
        except BaseException:
            process.kill()
            raise
        return process

    async def _identify(self, descriptor: int) -> SandboxProcesses | None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
        )
        try:
            content = await reader.read(_MAX_INFO)
            while content and not content.rstrip().endswith(b"}"):
                more = await reader.read(_MAX_INFO)
                content = content + more if more else b""
        finally:
            transport.close()
        if not content or self._transport is None:
            return None
        with suppress(ProcessLookupError):
            first = ProcessRef.of(json.loads(content)["child-pid"])
            return SandboxProcesses(first, ProcessRef.of(self._transport.get_pid()))
        return None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport; asyncio calls this before anything else."""
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101
        self._transport = transport

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

    async def ended(self) -> str:
        """Return how it ended, once it has and all its output was read."""
        code = await asyncio.shield(self._gone)
        number = -code if code < 0 else code - 128  # bubblewrap passes signals on as a shell does
        with suppress(ValueError):
            return f"killed by {signal.Signals(number).name}"
        return f"exit status {code}"

    @staticmethod
    async def settled(processes: SandboxProcesses) -> None:
        """Return once this loop, if it started these *processes*, has noticed their end."""
        process = _started.get(processes.bubblewrap)
        if process is not None and process._gone.get_loop() is asyncio.get_running_loop():
            await process.ended()

    def kill(self) -> None:
        """End it at once, and with it whatever runs in the sandbox."""
        if self._transport is not None:
            with suppress(ProcessLookupError):
                self._transport.kill()
