"""What workers and their children write to standard output and error, line by line, to the journal.

The server holds the reading ends of the pipes, so nothing that was written is lost with a worker,
and a child that outlives its worker can go on writing.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import time
from typing import TYPE_CHECKING, Final, Literal

from agentix.wire import records
from agentix.wire.records import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix_runtime.server.journal import Journal

_CHUNK: Final = 16 << 10
"""Bytes that are read in one turn of the loop: it may be a line every two bytes."""

_PIPE: Final = 64 << 10
"""Bytes that a pipe holds, and so all that can have been written before an answer."""

_LONGEST_LINE: Final = 1 << 20
_IDLE: Final = 0.2
"""An unfinished line is given out when nothing has followed for so long: it may be a question."""

_MOST_PIPES: Final = 32

_ENDS: Final = re.compile(rb"\r\n|\n|\r")


class Lines:
    r"""Makes lines of bytes, whichever way they are cut into chunks.

    A line ends with ``\n``, ``\r\n`` or ``\r``, as progress bars write it. Bytes that are no UTF-8
    become escapes.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._after_return = False
        self._given = False

    @property
    def unfinished(self) -> bool:
        """Whether there is a line without an end."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Take a chunk; give the lines that it ends."""
        if self._given and not self._rest and data.startswith(b"\r\n"):
            data = data[2:]
        elif (self._after_return or self._given) and not self._rest and data.startswith(b"\n"):
            data = data[1:]
        self._given = False
        if self._rest and (b"\r" in data or b"\n" in data):
            data = bytes(self._rest) + data
            self._rest.clear()
        self._after_return = data[-1:] == b"\r" and data[-2:-1] not in (b"", b"\r", b"\n")
        lines = data.split(b"\n") if b"\r" not in data else _split(data)
        rest = lines.pop()
        found: list[str] = []
        for line in lines:
            if len(line) > _LONGEST_LINE:
                found += _pieces(line)
            else:
                found.append(line.decode("utf-8", "backslashreplace"))
        self._rest += rest
        while len(self._rest) > _LONGEST_LINE:
            end = _whole(self._rest[:_LONGEST_LINE])
            found.append(self._rest[:end].decode("utf-8", "backslashreplace"))
            del self._rest[:end]
        return found

    def give(self, *, final: bool) -> list[str]:
        """Give out the unfinished line, up to a character that may yet be completed."""
        end = len(self._rest) if final else _whole(self._rest)
        text = self._rest[:end].decode("utf-8", "backslashreplace")
        del self._rest[:end]
        self._given = bool(text)
        return [text] if text else []


def _split(data: bytes) -> list[bytes]:
    r"""Split at all ends of lines; a ``\r`` that has nothing before it ends nothing."""
    lines: list[bytes] = []
    at = 0
    for end in _ENDS.finditer(data):
        if end.end() > end.start() + 1 or end[0] == b"\n" or end.start() > at:
            lines.append(data[at : end.start()])
        at = end.end()
    lines.append(data[at:])
    return lines


def _pieces(line: bytes) -> list[str]:
    found = []
    at = 0
    while at < len(line):
        end = at + _LONGEST_LINE
        if end < len(line):
            end = at + _whole(line[at:end])
        found.append(line[at:end].decode("utf-8", "backslashreplace"))
        at = end
    return found


def _whole(data: bytes | bytearray) -> int:
    """Say where the last character begins, if it is not complete; else where the data ends."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            size = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF8 else 1
            return len(data) - back if size > back else len(data)
        if byte < 0x80:
            break
    return len(data)


class _Pipe:
    """The reading end of one pipe."""

    def __init__(
        self,
        fd: int,
        stream: Literal["stdout", "stderr"],
        append: Callable[[bytes], None],
        ended: Callable[[_Pipe], None],
    ) -> None:
        self.fd = fd
        self._stream: Final = stream
        self._append = append
        self._ended = ended
        self._lines = Lines()
        self._read_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self.read)

    def read(self, most: int = _CHUNK) -> int:
        """Read once, without waiting; tell how much there was."""
        try:
            data = os.read(self.fd, most)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            self._ended(self)
            return 0
        self._take(self._lines.feed(data))
        if self._lines.unfinished:
            self._read_at = self._loop.time()
            if self._timer is None:
                self._timer = self._loop.call_later(_IDLE, self._idle)
        return len(data)

    def drain(self) -> None:
        """Read all that has been written by now."""
        left = _PIPE
        while left > 0 and self.fd >= 0 and (count := self.read(left)):
            left -= count

    def give(self) -> None:
        """Give out a line that its writer will not finish any more."""
        self._take(self._lines.give(final=True))

    def close(self) -> None:
        """Give out what is left, and let go of the pipe."""
        if self.fd >= 0:
            self.give()
            self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _idle(self) -> None:
        self._timer = None
        if not self._lines.unfinished:
            return
        if (wait := self._read_at + _IDLE - self._loop.time()) > 0.001:
            self._timer = self._loop.call_later(wait, self._idle)
        else:
            self._take(self._lines.give(final=False))

    def _take(self, lines: list[str]) -> None:
        if lines:
            now = time.time_ns()
            for line in lines:
                self._append(records.dump(Output(now, self._stream, line)))


class Outputs:
    """The two pipes of one worker."""

    def __init__(self, pipes: list[_Pipe]) -> None:
        self._pipes = pipes

    def ended(self) -> None:
        """Take what the worker has left behind; its children may go on writing."""
        for pipe in self._pipes:
            pipe.drain()
            if pipe.fd >= 0:
                pipe.give()


class Capture:
    """Reads the pipes of all workers, and of the children that have outlived one."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._pipes: dict[int, _Pipe] = {}
        self._poll = select.poll()
        journal.drains.append(self.drain)

    def read(self, stdout: int, stderr: int) -> Outputs:
        """Take over the reading ends of a new worker's pipes."""
        append = self._journal.append
        pipes = [
            _Pipe(stdout, "stdout", append, self._forget),
            _Pipe(stderr, "stderr", append, self._forget),
        ]
        for pipe in pipes:
            self._pipes[pipe.fd] = pipe
            self._poll.register(pipe.fd, select.POLLIN)
        while len(self._pipes) > _MOST_PIPES:
            self._journal.note(
                f"processes have outlived {len(self._pipes) // 2 - 1} workers; the output of the "
                "oldest ones is not read any more"
            )
            for pipe in list(self._pipes.values())[:2]:
                self._forget(pipe)
                pipe.close()
        return Outputs(pipes)

    def drain(self) -> None:
        """Take what has been written by now, without waiting for more."""
        for fd, _ in self._poll.poll(0):
            if (pipe := self._pipes.get(fd)) is not None:
                pipe.drain()

    def close(self) -> None:
        """Take what is left, and let go of all pipes."""
        for pipe in list(self._pipes.values()):
            pipe.drain()
            self._forget(pipe)
            pipe.close()

    def _forget(self, pipe: _Pipe) -> None:
        for fd in [fd for fd, one in self._pipes.items() if one is pipe]:
            del self._pipes[fd]
            self._poll.unregister(fd)


def pipe() -> tuple[int, int]:
    """Make a pipe; the end to write to may block, and both close when another program starts."""
    return os.pipe2(os.O_CLOEXEC)
