"""Reaching runtimes on other machines: a local socket whose connections end in a sandbox.

Each is carried by a program that the engine runs in the container, :mod:`.relay`, so there need be
no network in it and no port. A process has its own socket for each sandbox that it uses, and
threads, which belong to no event loop; what it forks has neither.
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
from agentix.provider.docker.line import Line
from agentix.provider.docker.problems import RefusedError, one_line
from agentix.provider.docker.pump import carry

if TYPE_CHECKING:
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
_RELAY: Final = Path(__file__).with_name("relay.py").read_text("utf-8")

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
    """The socket of one sandbox, and what it carries."""

    def __init__(self, folder: RuntimeFolder, where: Address, name: str) -> None:
        self.folder = replace(folder, socket_name=secrets.token_hex(4))
        self._where, self._name = where, name
        self._over = False
        self._well = True
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._places = threading.BoundedSemaphore(MOST)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self.folder.socket))
            self._listener.listen(4096)
        except OSError as error:
            self._listener.close()
            message = f"cannot listen at {self.folder.socket}: {error.strerror}"
            raise ProviderError(message) from error
        self._listening = threading.Thread(target=self._listen, name=name, daemon=True)
        self._listening.start()

    def end(self) -> None:
        """Close everything."""
        with self._lock:
            self._over = True
            for each in (self._listener, *self._open):
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)
        self.folder.socket.unlink(missing_ok=True)
        self._listening.join(1)

    def forget(self) -> None:
        """Close the descriptors that a child has of its parent's."""
        for each in (self._listener, *self._open):
            with suppress(OSError):
                os.close(each.detach())

    def _listen(self) -> None:
        _no_signals()
        with closing(self._listener):
            while True:
                self._places.acquire()
                try:
                    here, _ = self._listener.accept()
                except OSError:
                    if self._over:
                        return
                    self._places.release()
                    time.sleep(_PAUSE)  # no descriptors are left, for now
                    continue
                threading.Thread(
                    target=self._serve, args=(here,), name=self._name, daemon=True
                ).start()

    def _serve(self, here: socket.socket) -> None:
        _no_signals()
        try:
            if not self._keep(here):
                return
            opened = self._connect(here)
            if opened is None:
                return
            there, early = opened
            try:
                if self._keep(there):
                    errors = carry(here, there, early, lambda: self._over)
                    if errors:
                        self._complain(one_line(errors.decode(errors="replace")))
            finally:
                self._close(there)
        finally:
            self._close(here)
            self._places.release()

    def _keep(self, end: socket.socket) -> bool:
        with self._lock:
            if not self._over:
                self._open.add(end)
            return not self._over

    def _close(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
            end.close()

    def _connect(self, here: socket.socket) -> tuple[socket.socket, bytes] | None:
        """Return a stream into the container, and what has come of it; None when there is none."""
        until = time.monotonic() + PATIENCE
        while not (self._over or _is_gone(here)):
            try:
                opened = self._enter()
            except ProviderError as error:
                self._complain(str(error))
                # One that answered will not answer otherwise.
                if isinstance(error, RefusedError) or time.monotonic() > until:
                    return None
            else:
                self._well = True
                return opened
            time.sleep(_PAUSE)
        return None

    def _enter(self) -> tuple[socket.socket, bytes]:
        line = Line(self._where)
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
            line.stream.close()
            raise
        return line.stream, early

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


def _is_gone(here: socket.socket) -> bool:
    poll = select.poll()
    poll.register(here, 0)
    return bool(poll.poll(0))


def _no_signals() -> None:
    # One that arrives here would not wake the main thread, which is to handle it.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


_forwarders: Final = _Forwarders()
