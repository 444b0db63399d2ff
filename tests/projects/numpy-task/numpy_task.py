"""Functions that say what a process of the bundle, and one of the image, meet in a sandbox."""

import ctypes
import itertools
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Kernel file systems and devices, the bundle itself, and what a sandbox may write to.
NOT_OF_THE_IMAGE = ("/proc", "/sys", "/dev", "/nix")


@dataclass(frozen=True)
class Process:
    """The interpreter that answers, and whom and where the image said to run as."""

    python: str
    libc: str
    prefix: str
    executable: str
    optimize: int
    user: int
    group: int
    folder: str
    path: str


@dataclass(frozen=True)
class Output:
    """What a program printed, and how it ended."""

    code: int
    stdout: str
    stderr: str


def solve(size: int) -> npt.NDArray[np.float64]:
    """Solve a linear system whose answer is ones."""
    rows = np.arange(size)
    matrix = np.eye(size) + 1.0 / (1.0 + rows[:, None] + rows[None, :])
    return np.asarray(np.linalg.solve(matrix, matrix @ np.ones(size)))


def process() -> Process:
    """Describe this process."""
    return Process(
        python=platform.python_version(),
        libc=" ".join(platform.libc_ver()),
        prefix=sys.prefix,
        executable=sys.executable,
        optimize=sys.flags.optimize,
        user=os.getuid(),
        group=os.getgid(),
        folder=str(Path.cwd()),
        path=os.environ["PATH"],
    )


def run(command: list[str]) -> Output:
    """Run a program as a person at the image's prompt would."""
    result = subprocess.run(command, capture_output=True, timeout=60)
    return Output(result.returncode, result.stdout.decode(), result.stderr.decode())


def own_child() -> Output:
    """Start this very Python once more and have it use a dependency."""
    program = "import numpy, sys; print(numpy.arange(4).sum(), sys.prefix)"
    # -P as anybody's Python needs it in a folder with a numpy.py of its own.
    return run([sys.executable, "-P", "-c", program])


def spawned(sizes: list[int]) -> list[float]:
    """Solve in processes that multiprocessing starts anew."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return [float(answer.sum()) for answer in pool.map(solve, sizes)]


def libraries() -> list[str]:
    """Return the files that are mapped into this process and are not of the bundle."""
    ctypes.CDLL(None)
    maps = Path("/proc/self/maps").read_text()
    files = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if "/" in line}
    return sorted(file for file in files if not file.startswith("/nix/"))


def tree() -> list[str]:
    """Return every path of the image's file system that is visible here."""
    found: list[str] = []
    waiting = ["/"]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.path in NOT_OF_THE_IMAGE:
                    continue
                found.append(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return sorted(found)


def restrictions() -> dict[str, str]:
    """Return what the kernel lets this process do."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if line.startswith(("Cap", "NoNewPrivs")))


def chatter(lines: int) -> int:
    """Print *lines* of a hundred characters to each of the standard streams."""
    for number in range(lines):
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"{number:099}\n")
    return lines


def hog() -> int:
    """Take memory without end."""
    held: list[bytearray] = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)))


def crowd(count: int, size: int) -> None:
    """Have *count* programs take *size* bytes each, all at the same time."""
    program = f"import time; held = bytearray({size}); time.sleep(1)"
    command = [sys.executable, "-ISc", program]
    for process in [subprocess.Popen(command) for _ in range(count)]:
        process.wait()


def tcp_table() -> list[str]:
    """Return the kernel's table of TCP sockets in this network."""
    tables = [Path("/proc/net", name) for name in ("tcp", "tcp6")]
    return [
        line for table in tables if table.exists() for line in table.read_text().splitlines()[1:]
    ]


def own_sockets() -> list[str]:
    """Return the inodes of the sockets that processes of this sandbox have."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target.removeprefix("socket:[").removesuffix("]"))
    return sorted(found)


def ticks(seconds: float) -> Iterator[int]:
    """Yield numbers that far apart, without end."""
    for number in itertools.count():
        yield number
        time.sleep(seconds)


def orphans(count: int) -> int:
    """Leave *count* processes without a parent and return how many of them nobody reaped."""
    for _ in range(count):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.wait()
    for _ in range(100):
        states = [_state(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        dead = states.count("Z")
        if not dead:
            break
        time.sleep(0.05)
    return dead


def _state(entry: Path) -> str:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
