"""The sandbox's own copy of its log: a text file that outlives every connection.

``$AGENTIX_LOG_DIR/sandbox-<name>.log``, below /tmp/agentix unless the image says otherwise; an
empty variable switches it off. It is written by a thread, since a disk may be slow: whatever
becomes of the file, the runtime goes on. Trouble is told once, in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import stat
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgpack

from agentix.text import plain

if TYPE_CHECKING:
    from agentix_runtime.server.journal import Journal

_DEFAULT: Final = "/tmp/agentix"  # noqa: S108 - see _Sink
_MOST_QUEUED: Final = 8 << 20
_MOST_WRITTEN: Final = 32 << 20
"""Bytes from which on a file makes room for the next; one before it is kept."""

_BATCH: Final = 64
"""Records that are formatted in one go, for the loop in the other thread to have its turn."""

_AGAIN: Final = 5.0
"""Seconds after trouble, until the next attempt."""

_LAST_WORDS: Final = 2.0


class LogFile:
    """Writes the copies of records that it is given; ``copy`` neither waits nor raises."""

    def __init__(self, journal: Journal, folder: str, name: str) -> None:
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._sink = _Sink(folder, f"sandbox-{_safe(name)}.log")
        self._queue: deque[bytes | _Gap] = deque()
        self._queued = 0
        self._lock = threading.Lock()
        self._some = threading.Event()
        self._closing = False
        self._told = False
        self._thread: threading.Thread | None = None
        journal.copies.append(self.copy)

    @classmethod
    def of(cls, journal: Journal, name: str, default: str | None = None) -> LogFile | None:
        """Make the file that the environment asks for, or *default*; ``None`` if there is none."""
        folder = os.environ.get("AGENTIX_LOG_DIR", default or _DEFAULT)
        return cls(journal, folder, name) if folder else None

    def copy(self, record: bytes) -> None:
        """Have a record written; the first one makes the file."""
        with self._lock:
            if self._queued > _MOST_QUEUED or self._closing:
                last = self._queue[-1] if self._queue else None
                if isinstance(last, _Gap):
                    last.count += 1
                else:
                    self._queue.append(_Gap(1))
                return
            self._queue.append(record)
            self._queued += len(record)
        if not self._some.is_set():
            self._some.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="logfile", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the sandbox may have no more threads; the next record tries
                self._thread = None

    def close(self) -> None:
        """Write what is left, unless that takes too long."""
        with self._lock:
            self._closing = True
        self._some.set()
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)

    # In the thread

    def _work(self) -> None:
        while True:
            self._some.wait()
            self._some.clear()
            closing = self._closing
            while batch := self._batch():
                self._write(batch)
                if not closing:
                    time.sleep(0.001)
            if closing:
                self._sink.close()
                return

    def _batch(self) -> list[bytes | _Gap]:
        with self._lock:
            taken = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._queued -= sum(len(one) for one in taken if isinstance(one, bytes))
        return taken

    def _write(self, batch: list[bytes | _Gap]) -> None:
        lines = [one.line() if isinstance(one, _Gap) else line_of(one) for one in batch]
        try:
            self._sink.write("".join(lines).encode("utf-8", "backslashreplace"))
        except OSError as exc:
            lost = _Gap(sum(one.count if isinstance(one, _Gap) else 1 for one in batch))
            with self._lock:
                if self._queue and isinstance(self._queue[0], _Gap):
                    self._queue[0].count += lost.count
                elif self._queue or not self._closing:
                    self._queue.appendleft(lost)
            self._tell(f"{exc.strerror or exc}")
            self._sink.close()
            self._wait()

    def _wait(self) -> None:
        """Let time pass before the next attempt; the queue is bounded meanwhile."""
        end = time.monotonic() + _AGAIN
        while not self._closing and time.monotonic() < end:
            time.sleep(0.05)

    def _tell(self, why: str) -> None:
        if self._told:
            return
        self._told = True
        text = (
            f"the log file {plain(self._sink.path)} cannot be written: {plain(why)}; all goes on "
            "without it (set AGENTIX_LOG_DIR in the sandbox to another folder, or empty for none)"
        )
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._journal.note, text)


@dataclass(slots=True)
class _Gap:
    """Stands where records are missing."""

    count: int

    def line(self) -> str:
        text = f"{self.count:,} records are missing here: the disk was full or too slow"
        return _line(time.time_ns(), "WARNING", "logfile", text)


class _Sink:
    """The file, in its folder. Opened when it is needed, never through a link.

    In a /tmp that others share, one of them could have put a link or a pipe in its place.
    """

    def __init__(self, folder: str, name: str) -> None:
        self.path = os.path.join(folder, name)  # noqa: PTH118
        self._path = folder
        self._name = name
        self._folder = -1
        self._file = -1
        self._size = 0
        self._torn = False  # whether the last line came to no end before the disk was full

    def write(self, data: bytes) -> None:
        """Append, or raise OSError."""
        if not self._in_place():
            self.close()
            self._open()
        elif self._size > _MOST_WRITTEN:
            self._rotate()
        if self._torn:
            data = b"\n" + data
        while data:
            count = os.write(self._file, data)
            self._size += count
            self._torn = data[count - 1 : count] != b"\n"
            data = data[count:]

    def close(self) -> None:
        """Let go of the file."""
        for fd in (self._file, self._folder):
            if fd >= 0:
                os.close(fd)
        self._file = self._folder = -1

    def _in_place(self) -> bool:
        """Tell whether what is open is still what the path leads to."""
        if self._file < 0:
            return False
        try:
            there = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self._file))

    def _open(self) -> None:
        default = self._path == _DEFAULT
        with contextlib.suppress(FileExistsError):
            # What lies above the default is the image's: where it has no /tmp, it gets none.
            (os.mkdir if default else os.makedirs)(self._path, 0o700)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._folder = os.open(self._path, flags)
        if default:
            found = os.fstat(self._folder)
            if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & 0o022:
                raise OSError(f"{self._path} is open to other users")
        self._open_file()

    def _open_file(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._file = os.open(
                self._name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._folder
            )
        except FileExistsError:
            self._file = os.open(self._name, flags, dir_fd=self._folder)
            found = os.fstat(self._file)
            if (
                not stat.S_ISREG(found.st_mode)
                or found.st_nlink != 1
                or found.st_uid != os.geteuid()
            ):
                raise OSError("what is in its place was made by somebody else") from None
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        os.rename(self._name, f"{self._name}.1", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.close(self._file)
        self._file = -1
        self._open_file()


def line_of(record: bytes) -> str:
    """Write a record as text; what spans several lines is indented. Empty for spans.

    Whoever controls the sandbox has its log file anyway: what is no record is left out, no more.
    """
    try:
        tag, moment, *fields = msgpack.unpackb(
            record, max_map_len=0, unicode_errors="surrogatepass"
        )
        if tag == "out":
            return _line(moment, "-", fields[0], fields[1])
        if tag == "log":
            level, logger, text, _, _, exception, stack = fields[:7]
            if exception or stack:
                text = "\n".join(filter(None, (text, exception, stack)))
            name = f"{plain(logger)}[{fields[10]}]"
            return _line(moment, logging.getLevelName(level), name, text)
    except Exception:  # what hostile bytes lead to
        return ""
    return ""


def _line(moment: int, level: str, source: str, text: str) -> str:
    seconds, rest = divmod(moment, 1_000_000_000)
    if not text.isprintable():
        text = plain(text, None, keep="\n\t").replace("\n", "\n    ")
    return f"{_date(seconds)}.{rest // 1_000_000:03d}Z {level:<8} {source} {text}\n"


@functools.lru_cache(8)
def _date(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:100] or "unnamed"
