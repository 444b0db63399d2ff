"""A sandbox that is a program on this machine, started by this process.

Nothing here belongs to an event loop: a sandbox made in one ``asyncio.run`` is used and deleted in
the next. What it prints is read, and its end noticed, by a thread of its own.

A provider (:mod:`.local`) starts the program, waits until it answers, and records which processes
to end; :mod:`.recorded` does that, in this process or in another one of the same user.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from agentix.provider.processes import ProcessRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from agentix.provider.output import OutputTail

_UMASK: Final = 0o022  # as engines have it
_CHUNK = 1 << 16
_LINGER = 0.5  # seconds; how long after the end of a process its last output may take

# Those that this process started, until their end has been noticed.
_started: dict[ProcessRef, HostedProcess] = {}
_guard = threading.Lock()


class HostedProcess:
    """A program that this process started, and that ends with it.

    Its standard input is a pipe into which nothing is ever written. The kernel closes it when this
    process ends, however that happens, and the runtime takes the end for the message to go, if it
    was started with ``--end-with-stdin``. Processes forked from this one do not keep it open.
    """

    def __init__(self, process: subprocess.Popen[bytes], tail: OutputTail) -> None:
        self.itself = ProcessRef.of(process.pid)  # a zombie, at worst: only we wait for it
        self.tail = tail
        self._process = process
        self._descriptor = os.pidfd_open(process.pid)
        self._lock = threading.Lock()
        self._over = False
        self._waiting: list[Callable[[], object]] = []

    @classmethod
    def start(
        cls,
        command: Sequence[str | os.PathLike[str]],
        *,
        tail: OutputTail,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        cwd: str | os.PathLike[str] = "/",
    ) -> Self:
        """Start *command*, whose first word is a path; *tail* gets all that it prints.

        It gets *env* and nothing of the host's environment, the umask 022, the descriptors
        *pass_fds*, and a session of its own: Ctrl-C is for the host program, whose sandboxes end
        in order. Raises OSError when it cannot be started.

        This returns as soon as the program runs, about a millisecond, and awaits nothing: so no
        cancellation comes between the start and the handle by which to :meth:`kill` it.
        """
        process = subprocess.Popen(
            [os.fspath(word) for word in command],
            stdin=subprocess.PIPE,  # its end is the message
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            pass_fds=pass_fds,
            start_new_session=True,
            env=dict(env or {}),
            cwd=cwd,
            umask=_UMASK,
        )
        try:
            hosted = cls(process, tail)
            with _guard:
                _started[hosted.itself] = hosted
            try:
                hosted._attended()
            except BaseException:
                os.close(hosted._descriptor)
                with _guard:
                    del _started[hosted.itself]
                raise
        except BaseException:
            _abort(process)
            raise
        return hosted

    @property
    def returncode(self) -> int | None:
        """Its exit status, or minus the signal that killed it; None until its end was noticed."""
        with self._lock:
            return self._process.returncode if self._over else None

    async def ended(self) -> str:
        """Return how it ended, once it has, and its output was read.

        What ``until_ready`` takes for ``death``. Any loop may wait for it.
        """
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(over.set)

        with self._lock:
            if self._over:
                over.set()
            else:
                self._waiting.append(wake)
        try:
            await over.wait()
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(wake)
        return _manner(self._process.returncode)

    async def kill(self) -> None:
        """End it and all below it, however far it has come; return when nothing of it is left.

        Killed alone while it sets a sandbox up, a launcher may leave a child that waits for it.
        """
        await self.itself.kill_tree()
        await self.ended()

    def _attended(self) -> None:
        name = f"agentix-output-{self.itself.pid}"
        try:
            threading.Thread(target=self._attend, name=name, daemon=True).start()
        except RuntimeError as error:
            raise BlockingIOError(errno.EAGAIN, "no thread can be started") from error

    def _attend(self) -> None:
        """Read what it prints as long as anybody can print, and collect it when it ends."""
        process = self._process
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        output = process.stdout.fileno()
        reading = self._until_it_ends(output)
        deadline = time.monotonic() + _LINGER
        process.wait()
        process.stdin.close()  # for whoever outlives it
        while reading and (left := deadline - time.monotonic()) > 0:
            reading = self._read(output, left)
        if not reading:
            process.stdout.close()
        self._finish()
        while reading:  # somebody outlives it who may go on printing, and must not get stuck
            reading = self._read(output, None)
        process.stdout.close()

    def _until_it_ends(self, output: int) -> bool:
        """Read until the process has ended, and tell whether there may be more to read."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(output, select.POLLIN)
        reading = True
        while True:
            ready = {number for number, _ in poll.poll()}
            if output in ready and not self._feed(output):
                poll.unregister(output)
                reading = False
            if self._descriptor in ready:
                # Forgotten first: a process forked from here on must not close its successor.
                descriptor, self._descriptor = self._descriptor, -1
                os.close(descriptor)
                return reading

    def _read(self, output: int, within: float | None) -> bool:
        """Read once, waiting *within* seconds at most; False when nothing can come any more."""
        poll = select.poll()
        poll.register(output, select.POLLIN)
        ready = poll.poll(None if within is None else within * 1000)
        return self._feed(output) if ready else True

    def _feed(self, output: int) -> bool:
        data = os.read(output, _CHUNK)
        self.tail.feed(data)
        return bool(data)

    def _finish(self) -> None:
        with _guard:
            _started.pop(self.itself, None)
        with self._lock:
            self._over = True
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            with suppress(RuntimeError):  # that loop is closed: nobody waits there
                wake()

    def _forget(self) -> None:
        """Let go of it in a process forked from the one that started it."""
        with suppress(OSError):
            os.close(self._descriptor)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.returncode = 0  # it is not for this process to wait for


async def settled(process: ProcessRef) -> None:
    """Return once this process, if it started *process*, has noticed its end and tidied up."""
    with _guard:
        hosted = _started.get(process)
    if hosted is not None:
        await hosted.ended()


def _abort(process: subprocess.Popen[bytes]) -> None:
    """End what has just been started and cannot be looked after."""
    with process, suppress(ProcessLookupError):  # which closes its pipes, and waits
        os.killpg(process.pid, signal.SIGKILL)


def _manner(code: int) -> str:
    number = -code if code < 0 else code - 128  # launchers pass signals on as a shell does
    with suppress(ValueError):
        return f"killed by {signal.Signals(number).name}"
    return f"exit status {code}"


def _forget_all() -> None:
    """Close what a forked process inherits: the sandboxes are its parent's, and end with that."""
    global _guard
    _guard = threading.Lock()  # a thread that is not here may have held the other
    for hosted in _started.values():
        hosted._forget()
    _started.clear()


os.register_at_fork(after_in_child=_forget_all)
