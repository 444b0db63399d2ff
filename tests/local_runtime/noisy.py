"""Functions that log and print, in all the ways in which programs do."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)


def log(*messages: str) -> None:
    """Log."""
    for message in messages:
        logger.info(message)


async def alog(*messages: str) -> None:
    """Log on the loop."""
    log(*messages)


def log_all_kinds() -> None:
    """Log in every way."""
    logging.getLogger("deep.module").debug("%s of %d", "some", 5, extra={"user": {"id": 7}})
    logging.getLogger().warning("root")
    try:
        raise ValueError("bang")
    except ValueError:
        logger.exception("failed", stack_info=True)


def burst(count: int, start: int = 0) -> int:
    """Log many lines."""
    for number in range(start, start + count):
        logger.info("line %d of many that a program logs while it is at work", number)
    return count


stop = threading.Event()


def log_until_stopped() -> int:
    """Log faster than a slow host takes it."""
    stop.clear()
    count = 0
    while not stop.wait(0.01):
        for _ in range(50):
            logger.info("line %d of many that a program logs while it is at work", count)
            count += 1
    return count


def stop_logging() -> None:
    """Have it stop."""
    stop.set()


async def log_items(count: int) -> AsyncIterator[int]:
    """Log before each item."""
    for number in range(count):
        logger.info("item %d", number)
        yield number


def print_burst(count: int) -> int:
    """Print many lines."""
    for number in range(count):
        print(f"line {number} of many that a program prints while it is at work")  # noqa: T201
    return count


def slow_burst(count: int, start: int) -> int:
    """Log many lines, some at a time."""
    for number in range(start, start + count):
        logger.info("%d", number)
        if number % 20 == 0:
            time.sleep(0.004)
    return count


def threads(count: int, lines: int) -> None:
    """Log from many threads at once."""

    def work(name: int) -> None:
        for number in range(lines):
            logger.info("%d %d", name, number)

    running = [threading.Thread(target=work, args=(name,)) for name in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def print_all_kinds() -> None:
    """Write to both outputs in every way."""
    print("printed")  # noqa: T201
    print("complained", file=sys.stderr)  # noqa: T201
    os.write(1, b"raw\n")
    os.write(2, b"raw error\n")
    subprocess.run(["sh", "-c", "echo child; echo child error >&2"], check=True)
    libc = ctypes.CDLL(None)
    libc.puts(b"from C")
    libc.fflush(None)
    libc.dprintf(2, b"C error\n")
    child = multiprocessing.get_context("spawn").Process(target=_in_child)
    child.start()
    child.join()


def _in_child() -> None:
    print("spawned")  # noqa: T201


def write(data: bytes, fd: int = 1) -> None:
    """Write raw bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def die_after(message: str, signum: int) -> None:
    """Log and print, and be killed in the next instruction."""
    os.write(1, b"printed " + message.encode())
    logger.error(message)
    os.kill(os.getpid(), signum)
    time.sleep(10)


def crash_at_exit() -> None:
    """End the worker with an interpreter that crashes as it ends."""

    def crash() -> None:
        logging.getLogger("at.exit").error("logged at exit")
        raise RuntimeError("crash at exit")

    atexit.register(crash)

    def end() -> None:
        raise SystemExit

    # The loop is the worker's own; stopping it for good takes what ends the process in order.
    threading.Thread(target=sys.stdout.write, args=("last words",)).start()
    for entry in Path("/proc/self/fd").iterdir():
        if int(entry.name) > 60 and str(entry.readlink()).startswith("socket:"):
            import socket

            with socket.socket(fileno=os.dup(int(entry.name))) as channel:
                channel.shutdown(socket.SHUT_RDWR)


def leave_talking_child(seconds: float) -> int:
    """Leave a process behind that goes on printing."""
    child = subprocess.Popen(
        ["sh", "-c", f"sleep {seconds}; echo outlived; sleep 1000"], start_new_session=True
    )
    return child.pid


def fork_while_logging(count: int) -> None:
    """Fork while another thread logs; the children log, too."""
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            logging.getLogger("busy").debug("x" * 100)

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for number in range(count):
            if (pid := os.fork()) == 0:
                logger.warning("child %d", number)
                os._exit(0)
            os.waitpid(pid, 0)
    finally:
        stop.set()
        thread.join()


def small_journal(most: int) -> dict[str, object]:
    """Have the server keep few records; run in the server."""
    from agentix_runtime.server import journal

    vars(journal)["_MOST_RECORDS"] = most
    return {}


class Noisy:
    """Logs when it is collected."""

    def __del__(self) -> None:
        """Log."""
        logger.debug("collected")


def collect_while_logging(count: int) -> None:
    """Log while objects are collected that log."""
    import gc

    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for number in range(count):
            noisy = Noisy()
            noisy.self = noisy  # type: ignore[attr-defined]
            del noisy
            logger.info("%d", number)
    finally:
        gc.set_threshold(*before)
        gc.collect()


async def log_later(seconds: float, message: str) -> None:
    """Log after the call has ended."""
    asyncio.get_running_loop().call_later(seconds, logger.info, message)


def configure_own_logging() -> None:
    """Set up logging as a program does that is the only one in its process."""
    logging.basicConfig(level=logging.INFO, force=True, format="own %(message)s")


async def debug_everything() -> None:
    """Have the libraries log all that they do."""
    asyncio.get_running_loop().set_debug(True)
    for name in ("asyncio", "aiohttp", "socketio", "engineio"):
        logging.getLogger(name).setLevel(logging.DEBUG)
