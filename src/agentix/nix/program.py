"""Find Nix on this machine, and run one of its programs to its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agentix.errors import NixError
from agentix.nix.paths import STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_STATE = Path("/nix/var/nix")
_SOCKET = _STATE / "daemon-socket/socket"
_PLACES = (Path("/usr/bin"), _STATE / "profiles/default/bin")
_GRACE = 10.0  # seconds that Nix gets to end its builders before it is killed
_TAIL = 4096


@dataclass(frozen=True, slots=True)
class Nix:
    """How Nix is reached here.

    ``root`` is the folder below which ``/nix/store`` lies: ``/`` unless the store is a user's own.
    ``daemon`` says that a daemon works for us, and decides itself on sandboxing and build users.
    """

    programs: Path
    root: Path
    daemon: bool
    sandbox: bool = True

    @property
    def private(self) -> bool:
        """Whether the store is a user's own: builders see it at ``/nix`` only in a sandbox."""
        return self.root != Path("/")

    def real(self, path: str | Path) -> Path:
        """Return where the store path *path* can be opened."""
        return self.root / STORE[1:] / Path(path).name

    def options(self) -> list[str]:
        """Return the options that every call gets."""
        chosen = {"substitute": "false"}
        if not self.daemon:  # an ordinary user of a daemon may not set these, and is told so
            chosen |= {"substituters": "", "sandbox": str(self.sandbox).lower()}
            chosen["sandbox-fallback"] = str(not self.private).lower()
            if os.geteuid() == 0 and not _has_group("nixbld"):
                chosen["build-users-group"] = ""
        return [word for name, value in chosen.items() for word in ("--option", name, value)]

    def environment(self) -> dict[str, str]:
        """Return the environment of every call: the caller's, less what would change results."""
        environment = {name: value for name, value in os.environ.items() if name != "NIX_PATH"}
        if self.private:
            environment["NIX_REMOTE"] = str(self.root)
        if not os.access(environment.get("HOME") or "/nonexistent", os.W_OK | os.X_OK):
            environment["HOME"] = tempfile.gettempdir()
        environment.setdefault("USER", f"user-{os.geteuid()}")  # for one whom passwd does not know
        return environment


def find() -> Nix:
    """Return how to reach Nix; NixError says what to install when it is missing."""
    store = os.environ.get("NIX_STORE_DIR") or STORE
    if store.rstrip("/") != STORE:
        raise NixError(
            f"NIX_STORE_DIR is {store}, but a bundle works only from {STORE}; unset NIX_STORE_DIR"
        )
    for folder in _folders():
        if os.access(folder / "nix-store", os.X_OK) and os.access(folder / "nix-build", os.X_OK):
            root, daemon = _store()
            return Nix(folder, root, daemon)
    raise NixError(
        "Nix is not installed (no nix-build on PATH or in its usual places); "
        "on Debian and Ubuntu: apt-get install nix-bin"
    )


def _folders() -> Iterator[Path]:
    for entry in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if entry.startswith("/"):
            yield Path(entry)
    yield from _PLACES
    with suppress(RuntimeError):  # no HOME, and no such user
        yield Path.home() / ".nix-profile/bin"


def _store() -> tuple[Path, bool]:
    """Return the root of the store, and whether a daemon keeps it: as Nix itself would choose."""
    remote = os.environ.get("NIX_REMOTE", "")
    if remote.startswith("/"):
        return Path(remote), False
    if remote == "daemon" or remote.startswith("unix://"):
        return Path("/"), True
    if remote not in ("", "auto", "local"):
        raise NixError(
            f"NIX_REMOTE is {remote}; bundles are built with the store of this machine: "
            "unset NIX_REMOTE, or set it to 'daemon' or to a folder"
        )
    if remote == "local" or os.geteuid() == 0 or os.access(_STATE, os.W_OK):
        return Path("/"), False
    if os.access(_SOCKET, os.W_OK):  # Debian's daemon works for the group nix-users only
        return Path("/"), True
    # Neither ours to write nor kept for us by a daemon: one among the user's files.
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(data) / "nix/root", False


def _has_group(name: str) -> bool:
    import grp

    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def run(
    nix: Nix,
    program: str,
    arguments: Sequence[str],
    *,
    timeout: float = 120,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Run *program* of *nix* and return what it printed.

    Whatever interrupts the wait also ends Nix and everything it started. *on_line* gets each line
    of its standard error. NixError when it fails or takes longer than *timeout* seconds.
    """
    command = [str(nix.programs / program), *nix.options(), *arguments]
    tail = _Tail(on_line)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*_dies_with_us(), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env=nix.environment(),
            process_group=0,
            encoding="utf-8",
            errors="replace",
        )
        try:
            with _Deadline(process, timeout) as deadline:
                for line in process.stderr or ():
                    tail.add(line.rstrip("\n"))
                status = process.wait()
        finally:
            _end(process)
        if deadline.passed:
            raise NixError(
                f"{program} did not end within {timeout:.0f} s and was stopped", log=tail.text
            )
        if status != 0:
            raise NixError(
                f"{program} {_brief(arguments)} failed with exit status {status}: {tail.reason}",
                returncode=status,
                log=tail.text,
            )
        output.seek(0)
        return output.read().decode()


class _Deadline:
    """End a process that is still at work when the context has lasted too long."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        self.passed = False
        self._process = process
        # Nix ends its builders when it is asked to, and cannot when it is killed.
        self._timers = [
            threading.Timer(seconds, self._end, [signal.SIGTERM]),
            threading.Timer(seconds + _GRACE, self._end, [signal.SIGKILL]),
        ]

    def __enter__(self) -> Self:
        for timer in self._timers:
            timer.daemon = True
            timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def _end(self, number: signal.Signals) -> None:
        self.passed = True
        _signal(self._process, number)


class _Tail:
    """The end of what a program said."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self.text = ""

    def add(self, line: str) -> None:
        if self._on_line is not None:
            self._on_line(line)
        self.text = f"{self.text}\n{line}"[-_TAIL:]

    @property
    def reason(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error:")]
        return (errors or lines or ["it printed nothing"])[-1]


def _brief(arguments: Sequence[str]) -> str:
    text = " ".join(arguments)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _dies_with_us() -> list[str]:
    """Return the words before a command that end it when this process is killed outright."""
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _end(process: subprocess.Popen[str]) -> None:
    """Make sure that nothing of *process* goes on working."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()
    if process.stderr is not None:
        process.stderr.close()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
