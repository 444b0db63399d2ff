"""Functions that tests call remotely; what a bundle's project would hold."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


def noop(value: Any = None) -> Any:
    """Return the argument."""
    return value


async def anoop(value: Any = None) -> Any:
    """Return the argument, on the loop."""
    return value


async def asleep(seconds: float) -> None:
    """Wait on the loop."""
    await asyncio.sleep(seconds)


def sleep(seconds: float) -> None:
    """Block a thread."""
    time.sleep(seconds)


def blob(size: int) -> bytes:
    """Make a large result."""
    return bytes(size)


async def ablob(size: int) -> bytes:
    """Make a large result on the loop."""
    return bytes(size)


def length(data: bytes) -> int:
    """Take a large argument."""
    return len(data)


def echo(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return all arguments."""
    return args, kwargs


# Where and how a function runs


def process() -> int:
    """Tell the worker's process id."""
    return os.getpid()


async def aprocess() -> int:
    """Tell the worker's process id from the loop."""
    return os.getpid()


def thread() -> str:
    """Tell the thread's name."""
    return threading.current_thread().name


def environment() -> dict[str, Any]:
    """Tell what surrounds the worker."""
    return {
        "environ": dict(os.environ),
        "cwd": str(Path.cwd()),
        "path": sys.path,
        "argv": sys.argv,
        "pgid": os.getpgid(0),
        "descriptors": sorted(int(fd.name) for fd in Path("/proc/self/fd").iterdir()),
        "nofile": __import__("resource").getrlimit(__import__("resource").RLIMIT_NOFILE),
    }


def read_stdin() -> tuple[bytes, str]:
    """Read standard input here and in a child."""
    child = subprocess.run(["cat"], capture_output=True, text=True, timeout=10, check=True)
    return os.read(0, 10), child.stdout


def write_stdout(data: bytes) -> int:
    """Write raw bytes to standard output."""
    print("printed", flush=True)  # noqa: T201 - what is tested
    return os.write(1, data)


def write_descriptors(data: bytes) -> int:
    """Write to every descriptor that a program could reach without knowing it."""
    written = 0
    for fd in range(1, 10):
        try:
            written += os.write(fd, data)
        except OSError:
            continue
    return written


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def swap_variable(value: str) -> str:
    """Set a context variable and tell what it was."""
    before = variable.get()
    variable.set(value)
    return before


async def aswap_variable(value: str) -> str:
    """Do the same on the loop."""
    return swap_variable(value)


# Failing


class OddError(Exception):
    """Needs two arguments, and holds what cannot be pickled."""

    def __init__(self, first: object, second: object) -> None:
        super().__init__(first)
        self.lock = threading.Lock()
        self.second = second


class MuteError(Exception):
    """Cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class LeavingError(Exception):
    """Exits when it is printed."""

    def __str__(self) -> str:
        sys.exit(5)


class BareError(BaseException):
    """Not an Exception at all."""


def _odd() -> BaseException:
    return OddError("one", "two")


def _group() -> BaseException:
    return ExceptionGroup("several", [ValueError("inner"), KeyError("other")])


def _chained() -> BaseException:
    error = ValueError("outer")
    error.__cause__ = OSError("the cause")
    return error


FAILURES: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("bang"),
    "odd": _odd,
    "mute": MuteError,
    "leaving": LeavingError,
    "bare": lambda: BareError("bare"),
    "group": _group,
    "chained": _chained,
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator-exit": GeneratorExit,
    "stop": lambda: StopIteration(1),
    "stop-async": lambda: StopAsyncIteration(1),
    "cancelled": asyncio.CancelledError,
    "long": lambda: ValueError("x" * 10_000_000),
    "surrogate": lambda: ValueError("\udc80"),
    "terminal": lambda: ValueError("two\nlines \x1b[2J\r\u202e"),
}


def fail(how: str) -> None:
    """Raise one of the failures."""
    raise FAILURES[how]()


async def afail(how: str) -> None:
    """Raise one of the failures on the loop."""
    raise FAILURES[how]()


async def leave_failing_task(how: str) -> None:
    """Leave a task behind that raises."""

    async def later() -> None:
        raise FAILURES[how]()

    kept.append(asyncio.ensure_future(later()))


async def stop_loop() -> None:
    """Stop the loop that runs the calls."""
    asyncio.get_running_loop().stop()


kept: list[Any] = []


def die(code: int) -> None:
    """End the worker."""
    os._exit(code)


def kill(signum: int) -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signum)
    time.sleep(10)  # another thread may be the one to take it


def close_everything() -> None:
    """Close all descriptors, as a program does that turns itself into a daemon."""
    os.closerange(3, 4096)
    time.sleep(30)


# Results that cannot be sent


class Plain:
    """A class that is no data."""


def unsendable(what: str) -> Any:
    """Return what has no place in the data model."""
    values: dict[str, Callable[[], Any]] = {
        "generator": lambda: (n for n in range(3)),
        "lock": threading.Lock,
        "lambda": lambda: lambda: None,
        "file": lambda: Path("/dev/null").open(),  # noqa: SIM115
        "object": Plain,
        "class": lambda: Plain,
        "deep": deep,
        "cycle": cycle,
        "huge int": lambda: 1 << 10_000_000,
    }
    return values[what]()


def deep() -> list[Any]:
    """Nest far too deep."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def cycle() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def numbers() -> Iterator[int]:
    """Generate."""
    yield 1


# Decorated and nested functions


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function, async or not, in a plain one."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@traced
def wrapped(value: int) -> int:
    """Be wrapped."""
    return value + 1


@traced
async def awrapped(value: int) -> int:
    """Be wrapped, and a coroutine function."""
    await asyncio.sleep(0)
    return value + 1


def sync_that_awaits(value: int) -> Coroutine[Any, Any, int]:
    """Give a coroutine without being a coroutine function."""
    return anoop(value)


@functools.lru_cache
def cached(value: int) -> int:
    """Be cached."""
    return value * 2


class Tools:
    """Holds functions."""

    @staticmethod
    def static(value: int) -> int:
        """Be static."""
        return value * 3

    @classmethod
    def of_class(cls, value: int) -> int:
        """Be bound to the class."""
        return value

    def method(self) -> None:
        """Be bound to an object."""

    class Inner:
        """Nested."""

        @staticmethod
        def deep(value: int) -> int:
            """Be deeper."""
            return value * 5


# Cancelling

log: list[str] = []


async def wait_and_tell(name: str) -> None:
    """Wait for ever, and note how it ended."""
    log.append(f"{name} began")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        log.append(f"{name} cancelled")
        raise


def block_and_tell(name: str, seconds: float) -> None:
    """Block, and note the end."""
    log.append(f"{name} began")
    time.sleep(seconds)
    log.append(f"{name} ended")


async def ignore_cancel(seconds: float) -> str:
    """Refuse to be cancelled."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return "refused"
    return "waited"


def told() -> list[str]:
    """Tell what was noted."""
    return log


released = threading.Event()
waiting = threading.Semaphore(0)


def hold() -> None:
    """Have the functions below wait."""
    released.clear()
    while waiting.acquire(blocking=False):
        pass


def held(count: int) -> None:
    """Return once so many of them wait."""
    for _ in range(count):
        assert waiting.acquire(timeout=30)


def release() -> None:
    """Have them return."""
    released.set()


def block_until_release() -> str:
    """Block a thread."""
    waiting.release()
    released.wait(60)
    return "released"


async def await_release() -> str:
    """Wait on the loop."""
    waiting.release()
    while not released.is_set():
        await asyncio.sleep(0.01)
    return "released"


async def running() -> int:
    """Count the calls that the worker is running, this one included."""
    task: Any = asyncio.current_task()
    return len(task.get_coro().cr_frame.f_locals["self"]._running)


counter = 0


def count() -> int:
    """Count the runs."""
    global counter
    counter += 1
    return counter


def busy(seconds: float) -> None:
    """Keep the interpreter busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def hold_loop(folder: str) -> None:
    """Block the worker's loop, say so in a folder, and go on once somebody puts a file there."""
    Path(folder, "held").touch()
    end = time.monotonic() + 60
    while not Path(folder, "go").exists() and time.monotonic() < end:
        time.sleep(0.005)


# Processes


def fork_and_return() -> int:
    """Return twice: in the worker and in a child."""
    return os.fork()


async def afork_and_return() -> int:
    """Return twice, from the loop."""
    return os.fork()


async def afork_and_wait() -> int:
    """Go on waiting in the child too."""
    pid = os.fork()
    await asyncio.sleep(0.01)
    return pid


async def fork_amid_a_frame() -> tuple[int, int]:
    """Fork once a payload's memory has come; count what the parent and the child have of it."""
    async with asyncio.timeout(20):
        while not _shared_memory():
            await asyncio.sleep(0.001)
    pid = os.fork()
    if pid == 0:
        os._exit(_shared_memory())
    return _shared_memory(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _shared_memory() -> int:
    """Count the descriptors of payloads that this process has."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the folder itself
            found += "memfd:agentix" in str(path.readlink())
    return found


def fork_and_raise() -> int:
    """Raise in the child only."""
    pid = os.fork()
    if pid == 0:
        raise ValueError("in the child")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what is tested


def multiprocess(method: str) -> list[int]:
    """Use a process pool."""
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=_print, args=("from a child",))
    child.start()
    child.join(20)
    with context.Pool(2) as pool:
        found: list[int] = pool.map(abs, [-1, -2, -3])
        return found


def start_daemon() -> int:
    """Leave a process behind, in a session of its own."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL)
    kept.append(child)
    return child.pid


def orphans(count: int) -> None:
    """Make processes whose parent ends before they do."""
    for _ in range(count):
        subprocess.run(["sh", "-c", "sleep 0.1 & exit"], check=True)


def write_nonsense_to_channel() -> None:
    """Find the worker's channel, as hostile code would, and write to it."""
    import socket

    for fd in range(3, 1024):
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with found:
            if found.family == socket.AF_UNIX and found.getpeername() == "":
                try:
                    found.sendall(b"\xff" * 64)
                except OSError:
                    continue
    time.sleep(30)


def processes() -> int:
    """Count the processes there are, dead ones that nobody has collected included."""
    return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())


# Waiting for files: of a worker that gets no more calls, too


def begun(path: str) -> None:
    """Tell that a function waits for a file."""
    Path(f"{path}-waited-for").touch()


async def until(path: str, value: Any = None) -> Any:
    """Return the value once there is such a file."""
    begun(path)
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return value


def block_until(path: str, value: Any = None) -> Any:
    """Block a thread until there is such a file, whatever is raised in it."""
    begun(path)
    while not Path(path).exists():
        try:
            time.sleep(0.01)
        except BaseException:
            continue
    return value


async def auntil(path: str, value: Any = None) -> Any:
    """Return the value once there is such a file, and not before, cancelled or not."""
    begun(path)
    while not Path(path).exists():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return value


def flood(frame: bytes, seconds: float) -> int:
    """Write the same frame to the channel again and again; tell how often."""
    import select
    import socket

    for fd in range(64, 1024):  # below are the loop's own sockets
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with found:
            if found.family == socket.AF_UNIX and found.getpeername() == "":
                break
    else:
        raise OSError("there is no channel")
    found = socket.socket(fileno=os.dup(fd))
    with found:
        end = time.monotonic() + seconds
        count = 0
        while time.monotonic() < end:
            piece = memoryview(frame * 1000)
            while piece:
                select.select([], [found], [])
                try:
                    piece = piece[found.send(piece) :]
                except BlockingIOError:
                    continue
            count += 1000
    return count
