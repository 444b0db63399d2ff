"""Joins its standard input and output with the runtime's socket: run in a sandbox, by its Python.

It travels as text, so any bundle does; and as a process of its own for each connection, so it loads
nothing. An end of input becomes an end of what the runtime hears, and the other way round.
"""

import posix
import sys
import time
from _socket import AF_UNIX, SHUT_WR, socket
from _thread import start_new_thread

MOST = 1 << 16  # what a pipe holds


def connect(path: str, patience: float) -> socket:
    """Return a connection to the runtime, which may be about to listen."""
    end = time.monotonic() + patience
    while True:
        runtime = socket(AF_UNIX)
        try:
            runtime.connect(path)
        except OSError as error:
            runtime.close()
            if time.monotonic() > end:
                sys.exit(f"{path}: {error.strerror}")
            time.sleep(0.005)
        else:
            return runtime


def carry(source: int, target: int) -> None:
    """Move all that comes."""
    while data := posix.read(source, MOST):
        rest = memoryview(data)
        while rest:
            rest = rest[posix.write(target, rest) :]


def hear(runtime: socket) -> None:
    """Carry what the host says."""
    try:
        carry(0, runtime.fileno())
        runtime.shutdown(SHUT_WR)
    except OSError:
        posix._exit(0)


def main() -> None:
    """Carry both ways until the runtime ends the connection."""
    runtime = connect(sys.argv[1], float(sys.argv[2]))
    start_new_thread(hear, (runtime,))
    try:
        carry(runtime.fileno(), 1)
    finally:
        posix._exit(0)


main()
