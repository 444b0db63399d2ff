"""Cancel a call in a thread: an exception is raised there, while the call's own code runs only.

A thread that waits in C gets it when it returns from there. It is raised once, and nowhere in the
runtime: what a function reaches by logging, say, is done first.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from agentix_runtime.worker import forks

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

# Prototypes of our own: others may have changed those that hang on ctypes.pythonapi.
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)
_raise_nothing_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)

_DELICATE: Final = frozenset(
    {
        "concurrent.futures._base",
        "concurrent.futures.thread",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
        "logging",
        "queue",
        "threading",
    }
)
"""Modules that hold locks in ways that an exception from nowhere may leave locked for ever."""

_gates: Final[dict[int, Gate]] = {}


class _Told(asyncio.CancelledError):
    """What a thread is told to raise: it becomes a plain one, and the gate hears of it."""

    def __new__(cls) -> asyncio.CancelledError:  # type: ignore[misc]
        if (gate := _gates.get(get_ident())) is not None:
            gate._given = True
        return asyncio.CancelledError()


class Gate:
    """Lets one exception into a thread, and only into what is run through it."""

    __slots__ = ("_given", "_lock", "_thread", "asked")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The thread in which the call's own code runs at this moment.
        self._thread = 0
        self._given = False
        self.asked = False

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in this thread; the exception may be raised in it, and nowhere else."""
        here = get_ident()
        try:
            try:
                self._open(here)
                return function(*args, **kwargs)
            finally:
                self._close(here)
        except asyncio.CancelledError:
            # It may have come amid the closing. It comes only once, so now nothing comes amid it.
            self._close(here)
            raise

    def tell(self, *, politely: bool = False) -> bool:
        """Have the exception raised; from another thread.

        Tells whether that is settled; else say it again a little later. The interpreter may forget
        it where several threads are told at once; and, politely, it is put off where it might leave
        a lock behind.
        """
        with self._lock:
            self.asked = True
            if self._given or not self._thread:
                return True  # whoever opens the gate the next time will see that it was asked for
            if not (politely and _delicate(self._thread)):
                _raise_in(self._thread, _Told)
            return False

    def _open(self, here: int) -> None:
        _gates[here] = self
        with self._lock:
            if self.asked:
                self._given = True
                raise asyncio.CancelledError
            self._thread = here

    def _close(self, here: int) -> None:
        if forks.in_child():
            return  # nobody is left to tell it, and the lock may be held by a thread that is not
        self._shut(here)
        _gates.pop(here, None)

    def _shut(self, here: int) -> None:
        with self._lock:
            self._thread = 0
        if self.asked:
            _raise_nothing_in(here, None)  # it may be on its way

    def _reopen(self, here: int) -> None:
        if forks.in_child():
            return
        _gates[here] = self
        with self._lock:
            if self.asked and not self._given:
                self._given = True
                raise asyncio.CancelledError
            self._thread = here


def shielded(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function of the runtime, amid a call's own code; the exception waits until it ends."""
    here = get_ident()
    gate = _gates.get(here)
    if gate is None or forks.in_child():
        return function(*args, **kwargs)
    gate._shut(here)
    del _gates[here]  # what is called may come back to here
    try:
        return function(*args, **kwargs)
    finally:
        gate._reopen(here)


def _delicate(thread: int) -> bool:
    frame: Any = sys._current_frames().get(thread)
    return frame is not None and frame.f_globals.get("__name__") in _DELICATE
