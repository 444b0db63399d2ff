"""Functions that are hard to end, to send, or to keep apart."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import contextvars
import ctypes
import functools
import logging
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from agentix import context
from local_runtime.far import FAILURES, anoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

notes: list[Any] = []
"""What the functions below note, in order."""

_log = logging.getLogger("local_runtime.hard")


# In threads


def spin(name: str, seconds: float = 30) -> str:
    """Run Python code for a while, unless it is interrupted."""
    notes.append(f"{name} began")
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            pass
    except BaseException as error:
        notes.append((name, type(error) is asyncio.CancelledError))
        raise
    finally:
        notes.append(f"{name} cleaned up")
    return name


def doze(name: str, seconds: float) -> str:
    """Block in C; then go on."""
    notes.append(f"{name} began")
    time.sleep(seconds)
    notes.append(f"{name} woke")
    while True:
        pass


def stubborn(name: str) -> str:
    """Swallow the exception, and note whether there is a second one."""
    notes.append(f"{name} began")
    count = 0
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            while time.monotonic() < end:
                pass
        except BaseException:
            count += 1
            end = time.monotonic() + 0.5
    return f"{count}"


def cleans_slowly(name: str) -> None:
    """Clean up for a while, by code that could be interrupted, too."""
    try:
        spin(name)
    finally:
        for _ in range(200_000):
            pass
        _log.info("%s cleaned up slowly", name)
        notes.append(f"{name} cleaned up slowly")


def brief(number: int) -> int:
    """Take about as long as it takes to cancel it."""
    total = 0
    for one in range(number % 400):
        total += one
    return number


def logs(name: str, lines: int = 1_000_000) -> None:
    """Do nothing but log."""
    notes.append(f"{name} began")
    for line in range(lines):
        _log.info("%s %d", name, line)


async def logs_and_blocks(seconds: float) -> None:
    """Log a line, then hold up the loop."""
    _log.info("before")
    time.sleep(seconds)


def waits_in_threading(name: str) -> None:
    """Go in and out of the threading module, whose locks must not stay locked.

    A thread that did nothing else could not be told: it would always be found at a lock.
    """
    notes.append(f"{name} began")
    while True:
        shared.acquire(timeout=0.0001)
        shared.release()
        sum(range(5000))


shared = threading.Semaphore(4)


# What is raised, in generators


def raises_after(how: str, count: int) -> Iterator[int]:
    """Yield numbers, then raise."""
    yield from range(count)
    raise FAILURES[how]()


async def araises_after(how: str, count: int) -> AsyncIterator[int]:
    """Yield numbers, then raise, on the loop."""
    for number in range(count):
        yield number
    raise FAILURES[how]()


# Generators

variable: contextvars.ContextVar[str] = contextvars.ContextVar("hard", default="unset")


def tells_where(name: str) -> Iterator[tuple[int, str]]:
    """Yield in which thread it runs, and what it has set there; note the same when it is closed."""
    variable.set(name)
    try:
        while True:
            yield threading.get_ident(), variable.get()
    finally:
        notes.append((name, threading.get_ident(), variable.get()))


async def atells_where(name: str) -> AsyncIterator[str]:
    """Yield which task it runs in; note the same when it is closed."""
    variable.set(name)
    try:
        while True:
            yield _task()
    finally:
        await asyncio.sleep(0)
        notes.append((name, _task(), variable.get()))


def _task() -> str:
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


def context_of_caller() -> str:
    """Tell what the variable is, and set it."""
    before = variable.get()
    variable.set("leaked")
    return before


async def acontext_of_caller() -> str:
    """Do the same on the loop."""
    return context_of_caller()


def counts(name: str, size: int = 0) -> Iterator[Any]:
    """Yield for ever; note each item as it is made."""
    number = 0
    try:
        while True:
            number += 1
            notes.append((name, number))
            yield bytes(size) if size else number
    finally:
        notes.append(f"{name} closed")


async def acounts(name: str, size: int = 0) -> AsyncIterator[Any]:
    """Do the same on the loop."""
    with contextlib.closing(counts(name, size)) as made:
        for item in made:
            yield item


def stuck_after(name: str) -> Iterator[int]:
    """Yield once, then run for ever."""
    yield 1
    spin(name)


async def astuck_after(name: str) -> AsyncIterator[int]:
    """Yield once, then wait for ever."""
    yield 1
    notes.append(f"{name} began")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        notes.append(f"{name} cleaned up")


async def aclings(name: str) -> AsyncIterator[int]:
    """Go on yielding when it is cancelled."""
    number = 0
    try:
        while True:
            number += 1
            notes.append(f"{name} {number}")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60 if number == 2 else 0)
            yield number
    finally:
        notes.append(f"{name} closed")


def clings(name: str) -> Iterator[int]:
    """Yield where it should end, once."""
    clung = False
    while True:
        try:
            yield 1
        except GeneratorExit:
            if clung:
                raise
            clung = True
            notes.append(f"{name} clings")


def unsendable_third() -> Iterator[Any]:
    """Yield two good items and a bad one."""
    try:
        yield 1
        yield bytes(1 << 20)
        yield threading.Lock()
        notes.append("went on")
    finally:
        notes.append("unsendable closed")


async def aunsendable_third() -> AsyncIterator[Any]:
    """Do the same on the loop."""
    try:
        yield 1
        yield bytes(1 << 20)
        yield threading.Lock()
        notes.append("went on")
    finally:
        notes.append("unsendable closed")


def iterator_of_class() -> Any:
    """Return an iterator that is no generator."""
    return iter([1, 2, 3])


def wraps_generator(*args: Any) -> Any:
    """Return what a generator function gives."""
    return counts(*args)


def wraps_async_generator(*args: Any) -> Any:
    """Return what an async generator function gives."""
    return acounts(*args)


def forks_between(code: int) -> Iterator[int]:
    """Fork, and go on in both processes."""
    try:
        yield 0
        pid = os.fork()
        yield pid
        yield os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + code
    finally:
        notes.append(os.getpid())


async def aforks_between(code: int) -> AsyncIterator[int]:
    """Do the same on the loop."""
    yield 0
    pid = os.fork()
    yield pid
    yield os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + code


def forks_and_raises() -> Iterator[int]:
    """Fork, and raise in the child."""
    pid = os.fork()
    if pid == 0:
        raise ValueError("in the child of a generator")
    yield os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def multiprocesses(method: str) -> Iterator[int]:
    """Yield what a pool of processes makes, and log in its children."""
    import multiprocessing

    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        yield from pool.imap(_logged, range(4))


def _logged(number: int) -> int:
    _log.warning("logged in a child: %d", number)
    return number * number


def forks_while_logging(rounds: int) -> list[int]:
    """Fork again and again while other threads log; each child logs, too."""
    stop = threading.Event()

    def log() -> None:
        while not stop.is_set():
            _log.info("meanwhile")

    threads = [threading.Thread(target=log) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(rounds):
        pid = os.fork()
        if pid == 0:
            _log.error("in the child")
            os._exit(7)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    stop.set()
    for thread in threads:
        thread.join()
    return codes


# Output


def prints(text: str) -> None:
    """Print without an end of line."""
    print(text, end="")  # noqa: T201 - what is tested


def prints_and_yields(count: int) -> Iterator[int]:
    """Print without an end of line before each item."""
    for number in range(count):
        print(f"<{number}>", end="")  # noqa: T201 - what is tested
        yield number


def prints_in_c(text: str) -> None:
    """Print from C."""
    ctypes.CDLL(None).printf(b"%s\n", text.encode())


class _Stuck:
    def flush(self) -> None:
        sys.exit(3)

    def write(self, _: str) -> int:
        return 0


def replaces_output() -> int:
    """Put something else in the place of standard output."""
    before: Any = sys.stdout
    stuck: Any = _Stuck()
    sys.stdout = stuck
    threading.Timer(0.2, setattr, (sys, "stdout", before)).start()
    return 1


# Results that misbehave


class _Misbehaves:
    def __init__(self, how: Callable[[], Any]) -> None:
        self._how = how

    def __reduce__(self) -> Any:
        return self._how()


def misbehaves(how: str) -> Any:
    """Return what does something else than to be pickled."""
    return _Misbehaves(_HOW[how])


def _exit() -> Any:
    sys.exit(4)


def _interrupt() -> Any:
    raise KeyboardInterrupt


def _cancel() -> Any:
    raise asyncio.CancelledError


def _endless() -> Any:
    return _Misbehaves, (_Misbehaves(_endless),)


def _fork() -> Any:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return int, (pid,)


_HOW: dict[str, Callable[[], Any]] = {
    "exit": _exit,
    "interrupt": _interrupt,
    "cancelled": _cancel,
    "endless": _endless,
    "nonsense": lambda: 7,
    "fork": _fork,
}


class _Odd(dict[Any, Any]):
    def __len__(self) -> int:
        raise SystemExit(5)

    def __iter__(self) -> Any:
        raise GeneratorExit


class _Shy:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise KeyboardInterrupt


def odd_value(how: str) -> Any:
    """Return what raises when it is looked at."""
    return {"dict": _Odd, "class": _Shy}[how]()


# Arguments


class Rebuilds:
    """Does something when it is rebuilt."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return _rebuilt, (self.how,)


def _rebuilt(how: str) -> str:
    notes.append(f"rebuilt {how}")
    if how == "exit":
        sys.exit(6)
    return how


def code_of(function: Callable[[], Any]) -> Any:
    """Call a function that was brought along."""
    return function()


async def in_executor() -> list[str]:
    """Tell what code in other threads sees of the context."""
    from concurrent.futures import ThreadPoolExecutor

    loop = asyncio.get_running_loop()
    found = [await loop.run_in_executor(None, variable.get)]
    with ThreadPoolExecutor() as pool:
        found.append(await loop.run_in_executor(pool, variable.get))
        found.append(pool.submit(variable.get).result())
    found.append(await asyncio.to_thread(variable.get))
    return found


async def sets_and_tells_in_executor(value: str) -> list[str]:
    """Set the variable, and tell what threads see."""
    variable.set(value)
    return await in_executor()


# Context that a call carries

carried: contextvars.ContextVar[str] = context.var("carried", default="unset")


def tells_carried() -> list[Any]:
    """Tell what of the context has come along, and change it."""
    found = [carried.get(), context.get("name")]
    carried.set("leaked")
    context.set("name", "leaked")
    return found


async def atells_carried() -> list[Any]:
    """Do the same on the loop."""
    return tells_carried()


def yields_carried() -> Iterator[list[Any]]:
    """Yield it again and again; note it when closed."""
    try:
        while True:
            yield [carried.get(), context.get("name")]
    finally:
        notes.append([carried.get(), context.get("name")])


async def ayields_carried() -> AsyncIterator[list[Any]]:
    """Do the same on the loop."""
    try:
        while True:
            yield [carried.get(), context.get("name")]
    finally:
        notes.append([carried.get(), context.get("name")])


# Others


def waits_and_fails(how: str) -> None:
    """Raise a little later."""
    time.sleep(0.001)
    raise FAILURES[how]()


async def awaits_and_fails(how: str) -> None:
    """Raise a little later, on the loop."""
    await asyncio.sleep(0.001)
    raise FAILURES[how]()


def leave_failing_thread(how: str) -> None:
    """Leave a thread behind that raises."""

    def later() -> None:
        raise FAILURES[how]()

    threading.Thread(target=later).start()


@functools.wraps(anoop)
def runs_a_loop(value: Any) -> Any:
    """Look like a coroutine function, and run it to its end."""
    return asyncio.run(anoop(value))


async def about_its_task() -> list[Any]:
    """Tell whether there is a task from the first step on, and whether its tools work."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    found: list[Any] = [task is not None, task in asyncio.all_tasks()]
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        found.append("timed out")
    scheduled = asyncio.Event()
    loop.call_soon(scheduled.set)
    await asyncio.wait_for(scheduled.wait(), 10)
    found.append("scheduled")
    return found


def descriptors_of_a_child() -> list[str]:
    """Tell what a child has open."""
    code = (
        "import os, pathlib; fds = pathlib.Path('/proc/self/fd').iterdir();"
        "print([os.readlink(fd) for fd in fds if fd.is_symlink()])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = ast.literal_eval(ran.stdout)
    return found
