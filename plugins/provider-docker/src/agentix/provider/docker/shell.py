"""A connection through the system's ssh, which knows the user's hosts, keys and settings.

It runs what the docker CLI runs there, ``docker system dial-stdio``, and never asks for anything:
nobody may be there to answer.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from typing import IO, Final

from agentix.errors import ProviderError

_ENDS: Final = 5.0
_HINTS: Final = (
    (r"Host key verification failed", "connect there once with ssh, to know its key from then on"),
    (r"Permission denied \(", "a key that asks for no password has to be accepted there"),
    (r"docker: (command )?not found", "the docker command line has to be installed there"),
    (r"docker(\.|)sock", "that user has to be in the group docker there"),
)


class ShellSocket(socket.socket):
    """The end of a pair whose other end is an ssh: closing it ends that."""

    _process: subprocess.Popen[bytes]
    _said: IO[bytes]
    _heard: str
    _host: str
    _owner: int

    @classmethod
    def start(cls, command: list[str], host: str) -> ShellSocket:
        """Start *command* with one end of a pair, and return the other end."""
        mine, theirs = socket.socketpair()
        stream = cls(fileno=mine.detach())
        # Without a name: it lives as long as this, and nobody has to remove it.
        said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        try:
            with theirs:
                process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=said,
                    # Nothing to ask at, and none of the signals of the terminal.
                    start_new_session=True,
                )
        except BaseException:
            socket.socket.close(stream)
            said.close()
            raise
        stream._process, stream._said, stream._host = process, said, host
        stream._owner = os.getpid()
        threading.Thread(target=process.wait, name=f"ssh {host}", daemon=True).start()
        return stream

    def last_words(self) -> str:
        """Return what the ssh that has ended said last, and what to do about it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS)
        if not self._said.closed:
            self._heard = _read(self._said)
        lines = [line.strip() for line in self._heard.splitlines() if line.strip()]
        if not lines:
            return f"ssh ended with status {self._process.poll()}"
        said = next((line for line in reversed(lines) if _hint(line)), lines[-1])
        return "; ".join(filter(None, (said[:300].rstrip("."), _hint(said))))

    def _real_close(self) -> None:
        super()._real_close()  # type: ignore[misc]  # of CPython's own
        process = getattr(self, "_process", None)
        if process is not None and self._owner == os.getpid() and not self._said.closed:
            self._heard = _read(self._said)  # who closes may be asked for the reason afterwards
            process.terminate()
            self._said.close()


def connect(
    user: str | None, host: str, port: int | None, path: str, *, within: float, silence: int
) -> ShellSocket:
    """Return a connection to the engine that listens at *path* on *host*, or where it usually does.

    Raises ProviderError when there is no ssh on this machine.
    """
    program = shutil.which("ssh")
    if program is None:
        raise ProviderError("ssh is not installed, or not on PATH; install openssh-client")
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": f"{within:.0f}",
        "ServerAliveInterval": f"{silence // 3}",
        "ServerAliveCountMax": "2",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
    }
    there = f"docker --host {shlex.quote(f'unix://{path}')}" if path.strip("/") else "docker"
    command = [
        *(program, "-T"),
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        *(("-l", user) if user else ()),
        *(("-p", str(port)) if port else ()),
        *("--", host, f"{there} system dial-stdio"),
    ]
    return ShellSocket.start(command, host)


def _read(said: IO[bytes]) -> str:
    """Return what is in the file that the ssh writes to, whose position is the ssh's as well."""
    return os.pread(said.fileno(), 1 << 16, 0).decode(errors="replace")


def _hint(line: str) -> str:
    return next((hint for sign, hint in _HINTS if re.search(sign, line)), "")
