"""A machine that is gone ends its TCP connections; one that is there does not, busy or stopped."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time

import pytest
from local_runtime import alone

from agentix.wire.silence import watch

_AWAY = """
import asyncio, fcntl, socket, struct, time
from agentix.wire.silence import watch

ended = []

class Ended(asyncio.Protocol):
    def __init__(self):
        self.event = asyncio.Event()
        ended.append(self.event)

    def connection_lost(self, exc):
        self.event.set()

async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    others = []
    for _ in range(2):
        address = listener.getsockname()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Ended, *address)
        others.append(listener.accept())
        watch(transport, 1)
    await asyncio.sleep(2.5)
    assert not any(event.is_set() for event in ended)
    # The only network there is goes away: whatever is sent is lost without a word.
    with socket.socket() as any_:
        fcntl.ioctl(any_, 0x8914, struct.pack("16sh14x", b"lo", 0))
    began = time.monotonic()
    transport.write(b"something that nobody acknowledges")
    async with asyncio.timeout(20):
        for event in ended:
            await event.wait()
    assert time.monotonic() - began > 0.5
    print("ended")

asyncio.run(main())
"""


@pytest.mark.bubblewrap
def test_connections_to_a_machine_that_is_gone_end_be_there_something_to_send_or_not() -> None:
    ended = subprocess.run(alone(_AWAY), capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")


async def test_connections_to_a_machine_that_reads_nothing_or_says_nothing_go_on() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pairs = []
        for full in (False, True):
            made = await loop.create_connection(asyncio.Protocol, *listener.getsockname())
            transport: asyncio.Transport = made[0]
            pairs.append((transport, listener.accept()[0]))
            watch(transport, 1)
            if full:
                transport.write(bytes(32 << 20))
                assert transport.get_write_buffer_size()
        end = time.monotonic() + 6  # many times what a machine that is gone is given
        while time.monotonic() < end:
            assert not any(transport.is_closing() for transport, _ in pairs)
            await asyncio.sleep(0.1)
        for transport, other in pairs:
            transport.abort()
            other.close()
        await asyncio.sleep(0)
