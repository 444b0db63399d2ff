"""Reaching runtimes on other machines: a local socket whose connections end in a sandbox.

They are carried by a program that the engine runs in the container, :mod:`.relay`, so there need be
no network in it and no port. A process has its own socket for each sandbox that it uses, and a
thread, which belongs to no event loop; what it forks has neither.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import signal
import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentix.errors import ProviderError
from agentix.provider.docker import relay
from agentix.provider.docker.line import Line
from agentix.provider.docker.problems import RefusedError, one_line
from agentix.provider.docker.program import Program
from agentix.provider.docker.relay import Joint, NonsenseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.provider.docker.address import Address
    from agentix.provider.kit import RuntimeFolder

PATIENCE: Final = 20.0
"""Seconds for which a connection waits for an engine that cannot be reached."""

STARTS: Final = 10
"""Seconds that the relay waits for a runtime that is about to listen."""

MOST: Final = 256
"""Connections to one sandbox that are carried at once; more wait in its socket's queue."""

_PAUSE: Final = 0.5
_PYTHON: Final = "/nix/runtime/environment/bin/python"
_RUNTIME: Final = "/nix/run/s"
_RELAY: Final = Path(relay.__file__).read_text("utf-8")

_log = logging.getLogger("agentix.provider.docker")


def reach(folder: RuntimeFolder, where: Address, name: str) -> RuntimeFolder:
    """Return *folder* with a socket that leads into the container *name*, from now on.

    Raises ProviderError when there is no place for it.
    """
    return _forwarders.reach(folder, where, name)


def end(sandbox_id: str) -> None:
    """Carry nothing to this sandbox any more, if something is."""
    _forwarders.end(sandbox_id)


class _Forwarder:
    """The socket of one sandbox, and the thread that carries what comes there."""

    def __init__(self, folder: RuntimeFolder, where: Address, name: str) -> None:
        self.folder = replace(folder, socket_name=secrets.token_hex(4))
        self._where, self._name = where, name
        self._over = False
        self._well = True
        self._joint: Joint | None = None
        self._stream: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self.folder.socket))
            self._listener.listen(4096)
            self._listener.setblocking(False)
        except OSError as error:
            self._listener.close()
            message = f"cannot listen at {self.folder.socket}: {error.strerror}"
            raise ProviderError(message) from error
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Close everything."""
        self._over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.folder.socket.unlink(missing_ok=True)
        self._thread.join(1)

    def forget(self) -> None:
        """Close the descriptors that a child has of its parent's."""
        channels = self._joint.channels.values() if self._joint is not None else ()
        for each in (self._listener, self._stream, *(channel.sock for channel in channels)):
            if each is not None:
                with suppress(OSError):
                    os.close(each.detach())

    def _run(self) -> None:
        # One that arrives here would not wake the main thread, which is to handle it.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with closing(self._listener):
            while not self._over:
                program = self._connect()
                if program is not None:
                    try:
                        self._carry(program)
                    finally:
                        self._stream = None
                        program.there.close()
                # Only when somebody wants something: there may be nothing to reach any more.
                poll = select.poll()
                poll.register(self._listener, select.POLLIN)
                poll.poll()

    def _carry(self, program: Program) -> None:
        """Carry connections until the stream ends."""
        descriptor = program.there.fileno()
        joint = self._joint = Joint((descriptor, descriptor), program.receive, program.send)
        try:
            while not self._over:
                room = len(joint.channels) < MOST
                somebody = joint.turn(self._listener.fileno() if room else -1)
                if somebody is None:
                    break
                if somebody:
                    self._accept(joint.open)
        except NonsenseError:
            self._complain("what answers there does not keep to the rules")
        except OSError as error:
            self._complain(error.strerror or one_line(error))
        finally:
            self._joint = None
            joint.close()
        if program.errors:
            self._complain(one_line(program.errors.decode(errors="replace")))

    def _accept(self, take: Callable[[socket.socket], None]) -> None:
        """Take all connections that wait; leave them for later when descriptors are short."""
        while not self._over:
            try:
                here, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                if not self._over:
                    time.sleep(_PAUSE)
                return
            take(here)

    def _connect(self) -> Program | None:
        """Return the relay in the container; None, and nobody waits, when it cannot be reached."""
        until = time.monotonic() + PATIENCE
        while not self._over:
            try:
                program = self._enter()
            except ProviderError as error:
                self._complain(str(error))
                # One that answered will not answer otherwise.
                if isinstance(error, RefusedError) or time.monotonic() > until:
                    break
                time.sleep(_PAUSE)
            else:
                self._well = True
                return program
        self._accept(socket.socket.close)
        return None

    def _enter(self) -> Program:
        line = Line(self._where)
        self._stream = line.stream
        try:
            program = {
                "Cmd": [_PYTHON, "-I", "-S", "-c", _RELAY, _RUNTIME, str(STARTS)],
                "AttachStdin": True,
                "AttachStdout": True,
                "AttachStderr": True,
                "WorkingDir": "/",
            }
            what = f"reach into container {self._name}"
            made = line.post(f"/containers/{self._name}/exec", program, what)
            early = line.hijack(f"/exec/{made['Id']}/start", {"Detach": False, "Tty": False}, what)
        except BaseException:
            self._stream = None
            line.close()
            raise
        return Program(line.stream, early)

    def _complain(self, why: str) -> None:
        """Say it once, until it works again: whoever waits learns only that it does not."""
        if self._well and not self._over:
            self._well = False
            _log.warning("sandbox %s is out of reach: %s", self.folder.sandbox_id, why)


class _Forwarders:
    """Those of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._all: dict[str, _Forwarder] = {}
        os.register_at_fork(
            before=lambda: self._lock.acquire(),
            after_in_parent=lambda: self._lock.release(),
            after_in_child=self._forked,
        )

    def reach(self, folder: RuntimeFolder, where: Address, name: str) -> RuntimeFolder:
        with self._lock:
            found = self._all.get(folder.sandbox_id)
            if found is None:
                found = self._all[folder.sandbox_id] = _Forwarder(folder, where, name)
            return found.folder

    def end(self, sandbox_id: str) -> None:
        with self._lock:
            found = self._all.pop(sandbox_id, None)
        if found is not None:
            found.end()

    def _forked(self) -> None:
        for each in self._all.values():
            each.forget()
        self._all = {}
        self._lock = threading.RLock()


_forwarders: Final = _Forwarders()
