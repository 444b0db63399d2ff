"""SIGTERM in the middle of a session: the process ends by it as ever, once its sandboxes are gone.

Only where SIGTERM would end the process at once: in the main thread, and with no handler of
somebody else's. The tasks that have a session open are cancelled, as SIGINT cancels them through
:func:`asyncio.run`; the process dies where the last of their sessions ends. A second SIGTERM kills
at once, and so does the first one where no event loop runs that could do anything.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import FrameType

_log = logging.getLogger("agentix.provider")

_DEAF: Final = 10.0
"""Seconds after which a loop is given up that does not turn: nothing in it will be cancelled."""

_PATIENCE: Final = 30.0
"""Seconds that what a task does of its own, once it is cancelled, may add to the sessions' end."""


@dataclass(eq=False, slots=True)
class _Session:
    task: asyncio.Task[object]
    loop: asyncio.AbstractEventLoop
    within: float

    @property
    def reachable(self) -> bool:
        """Whether cancelling the task would end the session."""
        return self.loop.is_running() and not self.task.done()


class _Open:
    """The sessions of this process that SIGTERM waits for."""

    def __init__(self) -> None:
        self.sessions: set[_Session] = set()
        self.told = False
        self.logged: BaseException | None = None
        self._masks: dict[int, set[int]] = {}
        os.register_at_fork(
            before=self._forking, after_in_parent=self._unblock, after_in_child=self._forked
        )

    def _forking(self) -> None:
        # Python forgets a signal that a child gets before it is one; so it comes when it is.
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            self._masks[threading.get_ident()] = mask

    def _unblock(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _forked(self) -> None:
        """Have a child die by SIGTERM at once: what is open is its parent's."""
        self.sessions.clear()
        self.told = False
        self._restore()
        self._unblock()
        self._masks.clear()

    async def enter(self, within: float) -> _Session | None:
        """Begin to wait for the current task; None where SIGTERM is not ours to handle."""
        task = asyncio.current_task()
        if task is None or threading.current_thread() is not threading.main_thread():
            return None
        if self.told:
            await asyncio.sleep(0)  # whoever tries again and again must not stop the loop
            raise asyncio.CancelledError("this process has been told to end")
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not _on_sigterm:
            if handler is not signal.SIG_DFL:
                return None
            signal.signal(signal.SIGTERM, _on_sigterm)
        session = _Session(task, asyncio.get_running_loop(), within)
        self.sessions.add(session)
        return session

    def leave(self, session: _Session) -> None:
        """Wait no longer for this one; end the process if that was all it waited for."""
        self.sessions.discard(session)
        if not self.sessions:
            if self.told:
                self._die()
            self._restore()

    def _restore(self) -> None:
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            with contextlib.suppress(ValueError):  # another thread than the main one
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _die(self) -> None:
        """End this process by SIGTERM."""
        self._restore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.raise_signal(signal.SIGTERM)
        _exit_all_the_same()

    def tell(self) -> None:
        """Have all of them ended, which ends the process."""
        self._restore()  # from here on, another SIGTERM kills at once
        self.sessions = {session for session in self.sessions if session.reachable}
        if not self.sessions:
            self._die()
            return
        self.told = True
        heard = _thread.allocate_lock()
        heard.acquire()
        for session in self.sessions:
            session.loop.call_soon_threadsafe(session.task.cancel)
        session.loop.call_soon_threadsafe(heard.release)
        within = _PATIENCE + max(session.within for session in self.sessions)
        # Not a Thread, whose locks may be taken by what the signal has interrupted.
        _thread.start_new_thread(_watch, (heard, within))


def _on_sigterm(signum: int, frame: FrameType | None) -> None:
    _open.tell()


def _watch(heard: _thread.LockType, within: float) -> None:
    """Kill the process if it has not ended by then."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # this is for the main thread
    if heard.acquire(timeout=_DEAF):
        time.sleep(within)
    os.kill(os.getpid(), signal.SIGTERM)
    _exit_all_the_same()


def _exit_all_the_same() -> None:
    """End what SIGTERM should have: a container's first process takes none without a handler."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        os._exit(128 + signal.SIGTERM)


_open: Final = _Open()


@contextlib.asynccontextmanager
async def sigterm_held_back(within: float) -> AsyncIterator[None]:
    """Let SIGTERM cancel the current task in the body, and end the process after the body only.

    Once it is cancelled, the body ends within so many seconds of its own.
    """
    session = await _open.enter(within)
    if session is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        if (
            _open.told
            and error is not _open.logged
            # What was being made may fail as it likes; what could not be undone is in a note.
            and (not isinstance(error, asyncio.CancelledError) or hasattr(error, "__notes__"))
        ):
            # Nobody will ever see it: the process is about to end.
            _open.logged = error
            _log.error("a session failed while SIGTERM ended it: %s", _one_line(error))
            _log.debug("where it failed", exc_info=error)
        raise
    finally:
        _open.leave(session)


def _one_line(error: BaseException) -> str:
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    if not isinstance(error, asyncio.CancelledError):
        notes.insert(0, f"{type(error).__name__}: {error}")
    return plain(" ".join("; ".join(notes).removeprefix("then ").split()), 500)
