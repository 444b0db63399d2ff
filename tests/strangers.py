"""An ordinary user, made for a test and gone after it, who runs part of the tests as themselves.

Only root can make one. What root's Python is made of may be closed to others, so that the user runs
the first Python of the same version that they may.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from patience import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class NoStrangerError(RuntimeError):
    """There can be no such user here; the message is the reason to skip."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """A user with a home of their own, and with other users below them."""

    name: str
    uid: int
    gid: int
    home: Path

    def run(
        self, *command: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this user, as after a login."""
        theirs = {"HOME": str(self.home), "USER": self.name, "PATH": SYSTEM_PATH}
        return subprocess.run(
            command,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            cwd=self.home,
            env={**theirs, "LANG": "C.UTF-8", **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def python(self) -> str:
        """Return a Python like this one that the user may run."""
        for program in (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}"):
            with contextlib.suppress(OSError):
                if self.run(program, "-c", "", environment={}, timeout=20).returncode == 0:
                    return program
        raise NoStrangerError(f"no Python 3.{sys.version_info[1]} that every user may run")

    def pytest(
        self, *arguments: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run tests of this repository."""
        sources = (ROOT / "src", ROOT / "runtime/src", *sorted(ROOT.glob("plugins/*/src")))
        packages = ":".join(map(str, (*sources, *site.getsitepackages())))
        command = [self.python(), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
        environment = {"PYTHONPATH": packages, **environment}
        return self.run(*command, environment=environment, timeout=timeout)


@contextlib.contextmanager
def stranger() -> Iterator[Stranger]:
    """Yield a new user; raise NoStrangerError where none can be made, or could see the tests."""
    if os.getuid() != 0:
        raise NoStrangerError("only root can make another user; these tests run as an ordinary one")
    for program in ("useradd", "userdel", "newuidmap"):
        if shutil.which(program, path=SYSTEM_PATH) is None:
            raise NoStrangerError(f"{program} is not installed (tools/setup.sh tests installs it)")
    name = f"agentix-{secrets.token_hex(4)}"
    home = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        command = ["useradd", "--no-create-home", "--home-dir", str(home), name]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        try:
            found = pwd.getpwnam(name)
            os.chown(home, found.pw_uid, found.pw_gid)
            user = Stranger(name, found.pw_uid, found.pw_gid, home)
            with _runtime_folder(user):
                readable = user.run("cat", __file__, environment={}, timeout=20)
                if readable.returncode:
                    raise NoStrangerError(f"other users cannot read {ROOT}")
                yield user
                _end_all(user)
        finally:
            subprocess.run(["userdel", name], check=True, capture_output=True, timeout=60)
    finally:
        shutil.rmtree(home)


@contextlib.contextmanager
def _runtime_folder(user: Stranger) -> Iterator[None]:
    """Make what a login makes, and remove it with what programs put elsewhere without one."""
    folder = Path("/run/user", str(user.uid))
    folder.parent.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700)
    os.chown(folder, user.uid, user.gid)
    try:
        yield
    finally:
        _end_all(user)
        shutil.rmtree(folder)
        for path in (*Path("/dev/shm").iterdir(), *Path("/tmp").iterdir()):
            if path.lstat().st_uid == user.uid and path != user.home:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _end_all(user: Stranger) -> None:
    """End every process of the user, whom nobody else has."""

    def alive() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and entry.stat().st_uid == user.uid:
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    found += [int(entry.name)] if state != "Z" else []
        return found

    def none_is_left() -> bool:
        for pid in alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not alive()

    eventually(none_is_left, "the user's processes end", within=30)
