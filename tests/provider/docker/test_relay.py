"""Many connections over one stream: each as if it were alone, whatever the others do."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from agentix.provider.docker import relay
from agentix.provider.docker.program import Program
from agentix.provider.docker.relay import DATA, OPEN, PIECE, TAKEN, WINDOW, Joint, NonsenseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIB = 1 << 20


class Here:
    """This end of a stream, turned by a thread; what is at its other end is a real relay."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-I", "-S", relay.__file__, str(path), "10"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._ends = self.process.stdout.fileno(), self.process.stdin.fileno()
        for end in self._ends:
            os.set_blocking(end, False)
        self.joint = Joint(self._ends, self._receive, self._send)
        self._bell, self._other = socket.socketpair()
        self._asked: list[Callable[[], None]] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def connect(self) -> socket.socket:
        """Return a new connection to what listens at the path."""
        mine, carried = socket.socketpair()
        mine.settimeout(20)
        self._asked.append(lambda: self.joint.open(carried))
        self._other.send(b"x")
        return mine

    def close(self) -> None:
        """End the stream."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asked.append(self.process.stdin.close)
        self._other.send(b"x")
        self.process.wait(10)
        self.thread.join(10)
        for each in (self._bell, self._other, self.process.stdin, self.process.stdout):
            each.close()

    def _run(self) -> None:
        while (asked := self.joint.turn(self._bell.fileno())) is not None:
            if asked:
                self._bell.recv(1)
                self._asked.pop(0)()
        self.joint.close()

    def _receive(self) -> bytes | None:
        try:
            return os.read(self._ends[0], MIB)
        except BlockingIOError:
            return None

    def _send(self, data: memoryview) -> int:
        try:
            return os.write(self._ends[1], data)
        except BlockingIOError:
            return 0


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(20)
        yield listener


@pytest.fixture
def here(tmp_path: Path, listener: socket.socket) -> Iterator[Here]:
    here = Here(tmp_path / "s")
    try:
        yield here
    finally:
        here.close()


def accept(listener: socket.socket) -> socket.socket:
    there, _ = listener.accept()
    there.settimeout(20)
    return there


def all_of(end: socket.socket) -> bytes:
    return b"".join(iter(lambda: end.recv(MIB), b""))


def test_values_pass_both_ways_at_once_and_each_way_ends_by_itself(
    here: Here, listener: socket.socket
) -> None:
    there_to_here, here_to_there = secrets.token_bytes(8 * MIB), secrets.token_bytes(5 * MIB)
    with here.connect() as mine, accept(listener) as theirs:
        got: list[bytes] = []
        threads = [
            threading.Thread(target=mine.sendall, args=(here_to_there,)),
            threading.Thread(target=theirs.sendall, args=(there_to_here,)),
            threading.Thread(target=lambda: got.append(all_of(theirs))),
        ]
        for thread in threads:
            thread.start()
        received = b""
        while len(received) < len(there_to_here):
            received += mine.recv(MIB)
        threads[0].join(20)
        mine.shutdown(socket.SHUT_WR)
        threads[2].join(20)
        assert (received, got) == (there_to_here, [here_to_there])
        theirs.sendall(b"the other way is open")
        theirs.close()
        assert all_of(mine) == b"the other way is open"


def test_one_that_is_not_read_holds_up_no_other_and_fills_no_memory(
    here: Here, listener: socket.socket
) -> None:
    with (
        here.connect() as full,
        accept(listener) as unread,
        here.connect() as mine,
        accept(listener) as theirs,
    ):
        full.settimeout(1)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 2 * (WINDOW + 4 * MIB):
                sent += full.send(bytes(PIECE))
        assert sent < WINDOW + 4 * MIB
        mine.sendall(b"passes")
        assert theirs.recv(10) == b"passes"
        left = sent
        while left:
            left -= len(unread.recv(left))
        full.sendall(b"goes on")
        assert unread.recv(10) == b"goes on"


def test_what_breaks_at_one_end_breaks_at_the_other(here: Here, listener: socket.socket) -> None:
    with here.connect() as mine, accept(listener) as theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        with contextlib.suppress(ConnectionError):
            assert mine.recv(1) == b""
    with here.connect() as mine, accept(listener) as theirs:
        mine.close()
        assert theirs.recv(1) == b""


def test_it_waits_for_who_is_about_to_listen(tmp_path: Path) -> None:
    here = Here(tmp_path / "s")
    try:
        with here.connect() as mine, socket.socket(socket.AF_UNIX) as listener:
            mine.sendall(b"early")
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            with accept(listener) as theirs:
                assert theirs.recv(10) == b"early"
    finally:
        here.close()


def test_the_end_of_the_stream_ends_all(here: Here, listener: socket.socket) -> None:
    with here.connect() as mine, accept(listener) as theirs:
        here.process.kill()
        assert mine.recv(1) == b""
        assert theirs.recv(1) == b""


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param((1, OPEN, 0), id="opens what only this end opens"),
        pytest.param((1, 9, 0), id="says what means nothing"),
        pytest.param((1, DATA, PIECE + 1), id="sends a piece that is too large"),
        pytest.param((1, TAKEN, 1), id="has passed on more than there was"),
    ],
)
def test_nonsense_ends_the_stream(frame: tuple[int, int, int]) -> None:
    number, kind, count = frame
    said = struct.pack(">IBI", number, kind, count)
    mine, other = socket.socketpair()
    carried, user = socket.socketpair()
    with mine, other, user:
        joint = Joint((mine.fileno(),) * 2, lambda: said, len)
        joint.open(carried)
        other.send(b"x")
        with pytest.raises(NonsenseError):
            joint.turn()
        joint.close()


def test_more_than_the_window_is_nonsense() -> None:
    piece = struct.pack(">IBI", 1, DATA, PIECE) + bytes(PIECE)
    mine, other = socket.socketpair()
    carried, unread = socket.socketpair()
    with mine, other, unread:
        joint = Joint((mine.fileno(),) * 2, lambda: piece, len)
        joint.open(carried)
        other.send(b"x")

        def many() -> None:
            for _ in range(4 * WINDOW // PIECE):
                joint.turn()

        with pytest.raises(NonsenseError):
            many()
        joint.close()


def test_outputs_are_told_apart_however_they_are_cut() -> None:
    frames = b"".join(
        struct.pack(">BxxxL", kind, len(text)) + text
        for kind, text in ((1, b"one"), (2, b"a complaint"), (1, b""), (1, b"two"))
    )
    for size in range(1, len(frames) + 1):
        near, far = socket.socketpair()
        with near, far:
            program = Program(near, frames[:size])
            far.sendall(frames[size:])
            far.shutdown(socket.SHUT_WR)
            written = b""
            while data := program.receive():
                written += data
            assert written == b"onetwo"
            assert program.errors == b"a complaint"
