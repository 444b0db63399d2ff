"""What the conformance suite calls inside a sandbox: each function looks at, or does, one thing.

It uses the standard library only, needs nothing of the image, and is in every bundle, since every
bundle carries this distribution. Nothing else of Agentix imports it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_DEVICE = 0o060000
_KIND = 0o170000


def echo(value: Any) -> Any:
    """Return *value*."""
    return value


def environment() -> dict[str, str]:
    """Return the environment that the task's programs get from here."""
    return dict(os.environ)


def run(command: list[str]) -> tuple[int, str, str]:
    """Run a program; return how it ended and what it printed."""
    result = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return result.returncode, result.stdout.decode(), result.stderr.decode()


def identity() -> dict[str, Any]:
    """Return whom and where this process runs as."""
    umask = os.umask(0)
    os.umask(umask)
    return {
        "user": os.getuid(),
        "group": os.getgid(),
        "folder": str(Path.cwd()),
        "umask": umask,
        "process": os.getpid(),
        "host name": socket.gethostname(),
    }


def status() -> dict[str, str]:
    """Return what the kernel says of this process, a program of the task's making would inherit."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def ignored_signals() -> list[int]:
    """Return the signals that a program started here ignores from the beginning."""
    code = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('SigIgn')][0])"
    # Isolated and without site, so that what is seen is inherited; Python adds two of its own.
    command = [sys.executable, "-ISc", code]
    mask = int(subprocess.run(command, capture_output=True, timeout=60, check=True).stdout, 16)
    own = {signal.SIGPIPE, signal.SIGXFSZ}
    return [number for number in range(1, 32) if mask & 1 << (number - 1) and number not in own]


def namespaces() -> dict[str, str]:
    """Return the namespaces of this process: kind to identity."""
    found = {}
    for path in Path("/proc/self/ns").iterdir():
        with contextlib.suppress(OSError):
            found[path.name] = str(path.readlink())
    return found


def mounts() -> dict[str, str]:
    """Return what is mounted where: the place, and where in its file system it comes from."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {fields[4]: fields[3] for fields in (line.split(" ") for line in lines)}


def existing(paths: list[str]) -> list[str]:
    """Return which of *paths* there are."""
    return [path for path in paths if os.path.lexists(path)]


def entries(folder: str) -> list[str]:
    """Return the names in *folder*."""
    return sorted(path.name for path in Path(folder).iterdir())


def writable(paths: list[str]) -> list[str]:
    """Return which of *paths* can be written to: files opened, folders given a new entry."""
    return [path for path in paths if _writes(Path(path))]


def _writes(path: Path) -> bool:
    try:
        if path.is_dir():
            new = path / ".agentix-probe"
            new.mkdir()
            new.rmdir()
        else:
            os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def create(paths: list[str]) -> list[str]:
    """Make files called *paths*, and return which of them could be made."""
    made = []
    for path in paths:
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            made.append(path)
    return made


def remounts(path: str) -> bool:
    """Return whether the mount at *path* can be made writable from here."""
    import ctypes

    remount_bind = 0x20 | 0x1000
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.mount(b"none", path.encode(), None, remount_bind, None) == 0)


def disks() -> list[str]:
    """Return the block devices that can be opened for reading, or made and then opened."""
    found = []
    for path in Path("/dev").iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mode & _KIND == _BLOCK_DEVICE:
                os.close(os.open(path, os.O_RDONLY))
                found.append(str(path))
    made = Path("/dev/agentix-probe")
    for number in _disk_numbers():
        with contextlib.suppress(OSError):
            os.mknod(made, 0o600 | _BLOCK_DEVICE, number)
            try:
                os.close(os.open(made, os.O_RDONLY))
                found.append(f"device {os.major(number)}:{os.minor(number)}")
            finally:
                made.unlink()
    return sorted(found)


def _disk_numbers() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for line in Path("/proc/partitions").read_text().splitlines()[2:]:
            major, minor, *_ = line.split()
            yield os.makedev(int(major), int(minor))


def commands() -> list[str]:
    """Return the command line of every process that can be seen."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                found.append((folder / "cmdline").read_text(errors="replace"))
    return found


def interfaces() -> list[str]:
    """Return the names of the network's interfaces."""
    return sorted(name for _, name in socket.if_nameindex())


def reaches(address: str, port: int) -> bool:
    """Return whether somebody answers at a TCP address."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def reaches_abstract(name: str) -> bool:
    """Return whether somebody listens on the abstract Unix socket *name*."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(f"\0{name}")
        except OSError:
            return False
    return True


def loopback() -> bool:
    """Return whether programs in here reach one another over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return reaches(*server.getsockname())


def take_memory(size: int) -> int:
    """Take and touch *size* bytes, and return how many were had."""
    held, page = [], os.urandom(4096)
    for _ in range(size >> 20):
        held.append(page * 256)  # noqa: PERF401 - as it goes along
    return len(held) << 20


def burn(seconds: float, processes: int) -> float:
    """Keep *processes* busy for a while; return how many cores they had of it."""
    before, started = os.times(), time.monotonic()
    children = [_forked(lambda: _spin(started + seconds)) for _ in range(processes)]
    for child in children:
        os.waitpid(child, 0)
    after, took = os.times(), time.monotonic() - started
    used = after.children_user + after.children_system
    return (used - before.children_user - before.children_system) / took


def _spin(until: float) -> None:
    while time.monotonic() < until:
        pass


def start_processes(count: int) -> int:
    """Start *count* processes that do nothing, end them all, and return how many there were."""
    children: list[int] = []
    try:
        for _ in range(count):
            try:
                children.append(_forked(lambda: time.sleep(60)))
            except OSError:
                break
        return len(children)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)


def leave_behind(count: int) -> int:
    """Start *count* processes that belong to nobody, and mean to stay whoever asks them to go."""
    for _ in range(count):
        os.waitpid(_forked(_detach), 0)
    return count


def _detach() -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _forked(lambda: time.sleep(3600))


def _forked(work: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def orphans(count: int) -> int:
    """Leave *count* dead processes without a parent; return how many of them nobody has reaped."""
    for _ in range(count):
        os.waitpid(_forked(lambda: _forked(lambda: None)), 0)
    for _ in range(100):
        dead = sum(letter == "Z" for letter in _adopted())
        if not dead:
            break
        time.sleep(0.05)
    return dead


def _adopted() -> Iterator[str]:
    """Yield the states of those whom the runtime looks after; the machine has others, too."""
    runtime = str(os.getppid())
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                letter, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if parent == runtime:
                    yield letter


def litter(folder: str, depth: int) -> None:
    """Make a tree in *folder* that is tedious to remove: deep, and closed at the bottom."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 100, dir_fd=here)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.symlink("/", "outside", dir_fd=here)
    os.mkdir("closed", 0, dir_fd=here)
    os.close(here)


def chatter(lines: int) -> int:
    """Print *lines* of a hundred characters to each of the standard streams."""
    for number in range(lines):
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"{number:099}\n")
    return lines


def nap(seconds: float) -> float:
    """Block for a while."""
    time.sleep(seconds)
    return seconds


def end_worker() -> None:
    """End the process that answers, without a word."""
    os._exit(9)


def end_runtime() -> None:
    """Ask the runtime, and so the sandbox, to end."""
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
