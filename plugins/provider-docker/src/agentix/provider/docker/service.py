"""Podman's API for users who have no service running: one of our own, gone when it is idle.

All sandboxes of the user share it, whichever process they belong to. It is started when it is
needed and ends itself after a minute without a request; containers live on without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from agentix.errors import ProviderError
from agentix.provider.kit import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE = 60
_START = 30.0
_PAUSE = 0.02
_KILLED = 5.0
_UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")


def socket_path() -> Path:
    """Return where this user's own service listens, when it runs."""
    return private_folder() / "podman.sock"


def ensure(path: Path, *, idle: int = IDLE) -> None:
    """Have a service listen at *path*, which ends itself after *idle* seconds without a request.

    Raises ProviderError when Podman is not installed or does not start.
    """
    if listens(path):
        return
    with _alone(path.parent):
        if not listens(path):
            path.unlink(missing_ok=True)
            _start(path, idle)


def listens(path: Path) -> bool:
    """Whether somebody accepts connections at the socket *path*."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold *folder* against other threads and processes that are about to start a service."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        end = time.monotonic() + 2 * _START
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise ProviderError(
                        f"another process has been starting Podman for {2 * _START:.0f} s;"
                        f" see who holds {folder}"
                    ) from None
                time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)


def _start(path: Path, idle: int) -> None:
    program = shutil.which("podman")
    if program is None:
        raise ProviderError(
            "Podman is not installed, or not on PATH; install the package podman, or set"
            " CONTAINER_HOST to the socket of a service that runs"
        )
    command = [program, *_choices(), "system", "service", f"--time={idle}", f"unix://{path}"]
    # Without a name: it lives as long as the service, and nobody has to remove it.
    with tempfile.TemporaryFile() as said:
        try:
            pid, ended = _spawn(command, said)
        except OSError as error:
            raise ProviderError(f"Podman's service cannot be started: {error}") from error
        end = time.monotonic() + _START
        while not listens(path):
            if ended.is_set() or time.monotonic() > end:
                how = "ended" if ended.is_set() else f"does not answer within {_START:g} s"
                if not ended.is_set():  # it would stand in the way of the next one
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                    ended.wait(_KILLED)
                raise ProviderError(f"Podman's service {how}: {_last_words(said)}")
            ended.wait(_PAUSE)


def _choices() -> list[str]:
    """Return what is not left to Podman: crun, its first choice, has given up cgroup v1."""
    old = not _UNIFIED.exists()
    return ["--log-level=error", *(["--runtime=runc"] if old and shutil.which("runc") else [])]


def _spawn(command: list[str], output: IO[bytes]) -> tuple[int, threading.Event]:
    """Start the service in a session of its own; return its number, and say when it has ended."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=output,
        env=_environment(),
        # Where nothing can be made: some versions write down in it that a container ran out of
        # memory, and a folder of the user's would be kept busy.
        cwd="/proc",
        start_new_session=True,
    )
    ended = threading.Event()

    def wait() -> None:
        process.wait()
        ended.set()

    threading.Thread(target=wait, name="podman service", daemon=True).start()
    return process.pid, ended


def _environment() -> dict[str, str]:
    """Return our environment, less what would make the program a client of another service.

    Nor does it keep a runtime folder that is somebody else's, as after su.
    """
    remote = {"CONTAINER_HOST", "CONTAINER_CONNECTION"}
    environment = {name: value for name, value in os.environ.items() if name not in remote}
    folder = environment.get("XDG_RUNTIME_DIR")
    if folder is not None and not _is_mine(Path(folder)):
        del environment["XDG_RUNTIME_DIR"]
    return environment


def _is_mine(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _last_words(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
