"""Frames between server and worker: whole, in order, and hostile until they are parsed."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentix.wire.errors import MalformedError
from agentix.wire.frames import FRAME
from agentix_runtime.channel import Channel
from agentix_runtime.pair import pair
from agentix_runtime.parcel import Parcel, Payload


class End:
    """One end of a channel, and what it was told."""

    def __init__(self, sock: socket.socket) -> None:
        self.frames: list[tuple[bytes, bytes]] = []
        self.reasons: list[str] = []
        self.channel = Channel(sock, self._receive, self.reasons.append)

    def _receive(self, head: bytes, payload: Payload | None) -> None:
        if isinstance(payload, Parcel):
            memory = bytes(payload.opened())
            payload.close()
        else:
            assert payload is not None
            memory = bytes(payload)
        self.frames.append((head, memory))

    async def got(self, count: int) -> None:
        """Wait for a number of frames, for a bounded time."""
        async with asyncio.timeout(20):
            while len(self.frames) < count:
                await asyncio.sleep(0)

    async def lost(self) -> str:
        """Wait until the channel is lost."""
        async with asyncio.timeout(20):
            while not self.reasons:
                await asyncio.sleep(0)
        return self.reasons[0]


async def test_frames_arrive_whole_and_in_order_in_both_directions() -> None:
    left, right = (End(sock) for sock in pair())
    sent = [(b"%d" % n, os.urandom(n * 37 % 200_000)) for n in range(400)]
    for head, data in sent:
        left.channel.send(head, data)
        right.channel.send(head, data)
    await asyncio.gather(left.got(400), right.got(400))
    assert left.frames == right.frames == sent
    left.channel.close()
    assert await right.lost()


async def test_what_a_dead_worker_left_is_taken_and_its_children_can_add_nothing() -> None:
    ours, theirs = pair()
    end = End(ours)
    theirs.sendall(b"".join((FRAME.pack(1, 0, 0), b"h")) * 1000)
    end.channel.shut()
    with theirs, pytest.raises(BrokenPipeError):
        theirs.sendall(b"more")
    end.channel.drain()
    assert end.frames == [(b"h", b"")] * 1000
    assert end.reasons


async def test_threads_may_send_at_the_same_time() -> None:
    left, right = (End(sock) for sock in pair())

    def send(name: int) -> None:
        for n in range(500):
            left.channel.send(b"%d %d" % (name, n), bytes(n))

    threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    await right.got(4000)
    for name in range(8):
        own = [head for head, _ in right.frames if head.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, n) for n in range(500)]
    left.channel.close()
    right.channel.close()


async def test_parcels_are_shared_not_copied_and_closed_after_use() -> None:
    left, right = (End(sock) for sock in pair())
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for n in range(100):
        left.channel.send(b"%d" % n, Parcel.of([b"x" * n, b"y" * 300_000]))
    await right.got(100)
    assert right.frames[7] == (b"7", b"x" * 7 + b"y" * 300_000)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    left.channel.send(b"late", Parcel.of([b"z"]))
    left.channel.close()
    left.channel.send(b"too late", Parcel.of([b"z"]))
    await right.lost()
    assert len(os.listdir("/proc/self/fd")) == before - 2  # noqa: PTH208


async def test_a_reader_that_does_not_keep_up_is_noticed() -> None:
    near, far = pair()
    left = End(near)
    for _ in range(200):
        left.channel.send(b"head", bytes(100_000))
    room = asyncio.create_task(left.channel.room())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not room.done()  # nobody can read, so nothing can make it
    right = End(far)
    await asyncio.wait_for(room, 10)
    await right.got(200)
    left.channel.close()
    right.channel.close()


def _raw() -> tuple[socket.socket, socket.socket]:
    return pair()


async def test_lengths_over_the_caps_end_the_channel_without_allocating() -> None:
    for frame in (FRAME.pack(0xFFFFFFFF, 0, 0), FRAME.pack(0, 0xFFFFFFFF, 0), FRAME.pack(0, 0, 2)):
        near, far = _raw()
        end = End(near)
        far.send(frame)
        assert "longer than frames may be" in await end.lost()
        far.close()


async def test_a_parcel_that_did_not_come_or_can_change_is_refused() -> None:
    near, far = _raw()
    end = End(near)
    far.send(FRAME.pack(0, 0, 1))
    assert "did not come" in await end.lost()
    far.close()
    unsealed = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    pipe = os.pipe()
    plain = os.open("/dev/null", os.O_RDONLY)
    for fd in (unsealed, pipe[0], plain):
        near, far = _raw()
        end = End(near)
        rights: Any = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))
        far.sendmsg([FRAME.pack(0, 0, 1)], [rights])
        assert await end.lost() in (
            "a payload came in memory that can still change",
            "a payload came in something else than shared memory",
        )
        far.close()
    for fd in (unsealed, plain, *pipe):
        os.close(fd)


@given(st.binary(max_size=300))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    async def scenario() -> None:
        near, far = _raw()
        end = End(near)
        far.send(data) if data else None
        far.close()
        await end.lost()

    asyncio.run(scenario())


def test_a_sealed_parcel_cannot_change() -> None:
    parcel = Parcel.of([b"abc"])
    with pytest.raises(PermissionError):
        os.write(parcel.fd, b"x")
    with pytest.raises(PermissionError):
        os.ftruncate(parcel.fd, 1)
    assert bytes(parcel.opened()) == b"abc"
    parcel.close()
    parcel.close()
    with pytest.raises(MalformedError):
        Parcel.received(os.open("/dev/null", os.O_RDONLY))
