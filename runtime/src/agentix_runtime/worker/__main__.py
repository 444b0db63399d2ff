"""Start a worker; the server runs this, with its own process id as the only argument.

The worker speaks on descriptor 3, a socket to the server, and takes nothing from standard input. It
says ``Ready``, then answers each ``Call`` with one ``Value`` or ``Failure``; ``Cancel`` ends a
call. ``Signal`` and ``Reply`` go both ways. End of file means exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import os
import selectors
import signal
import socket
import sys
from typing import Final

from agentix_runtime.pair import WORKER_FD
from agentix_runtime.worker import forks, inherit, logs
from agentix_runtime.worker.signals import Signals
from agentix_runtime.worker.work import Worker

_PR_SET_PDEATHSIG: Final = 1
_OUT_OF_THE_WAY: Final = 64
_IOLBF: Final = 1


def main() -> None:
    """Work until the server is gone."""
    _die_with(int(sys.argv.pop()))
    # Low numbers are what programs reach for when they close or replace descriptors by hand.
    channel = fcntl.fcntl(WORKER_FD, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    os.close(WORKER_FD)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    selector = selectors.DefaultSelector()
    loop = asyncio.SelectorEventLoop(selector)
    asyncio.set_event_loop(loop)
    _buffer_c_output_by_lines()
    with socket.socket(fileno=channel) as sock:
        _work(sock, loop, selector)


def _buffer_c_output_by_lines() -> None:
    """Have what C code prints come out as it is printed; Python's own output does."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(ValueError):  # a C library where it is no variable
        libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, ctypes.c_size_t(0))


def _die_with(server: int) -> None:
    """Have the kernel kill this process when the server ends, however busy it is."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(0)


def _work(
    sock: socket.socket, loop: asyncio.SelectorEventLoop, selector: selectors.BaseSelector
) -> None:
    async def work() -> None:
        worker = Worker(sock)
        forks.guard(worker.channel.abandon, loop, selector)
        inherit.install()
        logs.install(logs.Sender(worker.channel))
        worker.heard = Signals(worker.say).heard
        gc.freeze()
        await worker.ended.wait()

    working = loop.create_task(work())
    working.add_done_callback(lambda _: loop.stop())
    while not working.done():
        try:
            loop.run_forever()  # whoever else stops the loop, it goes on
        except BaseException as error:
            if forks.in_child():
                forks.leave(None)
            # A task that a function left behind wants to exit; that is no reason for the worker to.
            if not isinstance(error, SystemExit | KeyboardInterrupt):
                raise
    working.result()


if __name__ == "__main__":
    main()
