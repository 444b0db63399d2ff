"""Cancel a call in a thread: an exception is raised there, while the call's own code runs only.

A thread that waits in C gets it when it returns from there. It is raised once, and nowhere in the
runtime: what a function reaches by logging, say, is done first.
"""

from __future__ import annotations

import asyncio
import ctypes
import dis
import sys
import threading
import time
from functools import lru_cache
from itertools import repeat
from operator import attrgetter, eq, is_, itemgetter
from threading import get_ident
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from agentix_runtime.worker import forks

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

P = ParamSpec("P")
R = TypeVar("R")

# Prototypes of our own: others may have changed those that hang on ctypes.pythonapi.
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)

_ENTERING: Final = frozenset({"__enter__", "__exit__"})
_LOCKING: Final = {
    "logging": {"acquire", "release", "_acquireLock", "_releaseLock"},
    "threading": {"_acquire_restore", "_release_save"},
}
"""Where an exception from nowhere may leave something locked, or not cleaned up, for ever: what
these functions do is short, or waits for a lock in C."""

_LATE: Final = sys.version_info >= (3, 13)
"""Whether a thread that waits for its turn to run looks for exceptions only the next time: what is
called under a lock of ``threading`` may look again only once its unlocking has begun."""

_WAITING: Final = frozenset({"wait", "join"})
"""What threading has that waits in C, and looks when it returns."""

_LOOKING: Final = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"})
"""What a thread looks for exceptions in, or in what that calls."""

_LEAVING: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"})

_ENDING: Final = _LEAVING.union(
    ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RAISE_VARARGS", "RERAISE")
)
"""What is not followed by the instruction behind it."""

_FILLING: Final = frozenset({"EXTENDED_ARG", "CACHE", "NOT_TAKEN"})

_JUMPS: Final = frozenset({*dis.hasjrel, *dis.hasjabs})

_PATIENCE: Final = 5.0
"""How long a thread is spared that would hear outside of its ``try``: it may hear nowhere else."""

_LOOKS: Final = 1000
"""How often a thread looks for what it has itself told itself, unless somebody took that away."""

_gates: Final[dict[int, Gate]] = {}


class _Told(asyncio.CancelledError):
    """What a thread is told to raise: it becomes a plain one, and the gate hears of it."""

    def __new__(cls, *made: asyncio.CancelledError) -> asyncio.CancelledError:  # type: ignore[misc]
        # Python 3.11 makes it twice where another exception is being handled.
        if (gate := _gates.get(get_ident())) is not None:
            gate._given = True
        return made[0] if made else asyncio.CancelledError()


class _Withdrawn(BaseException):
    """Is heard instead of what was on its way."""


class Gate:
    """Lets one exception into a thread, and only into what is run through it."""

    __slots__ = ("_given", "_lock", "_thread", "_until", "asked", "spared")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The thread in which the call's own code runs at this moment.
        self._thread = 0
        self._given = False
        self._until = 0.0
        self.asked = False
        self.spared = False
        """Whether it was put off for a place that the thread is likely to be past at once."""

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

    def tell(self) -> bool:
        """Have the exception raised; from another thread.

        Tells whether that is settled; else say it again a little later: it is put off where the
        thread is found at a place that it would do harm at, or be lost, and comes when a thread
        that waits in C returns. Where to is not known: one that enters a lock from C, in a
        finalizer or a callback, may get it there. A loop that has no other place to hear at than
        one that Python leaves out of the ``try`` around it hears there in the end.
        """
        with self._lock:
            self.asked = True
            if self._given or not self._thread:
                return True  # whoever opens the gate the next time will see that it was asked for
            frame = sys._current_frames().get(self._thread)
            if frame is not None:
                at = frame.f_lasti
                self.spared = self._spares(frame, at)
                if not self.spared and not _is_delicate(frame):
                    _raise_at(self._thread, frame, at)
            return False

    def _spares(self, frame: FrameType, at: int) -> bool:
        if not _LATE:
            return False
        now = time.monotonic()
        self._until = self._until or now + _PATIENCE
        return now < self._until and _hears_outside(frame, at)

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
            _withdraw(here)  # it may be on its way

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


def _withdraw(here: int) -> None:
    """Have this thread hear nothing of what it was told to raise.

    Taking that back, as Python lets one do, would leave the whole interpreter on the look-out for
    exceptions: up to 3.12 every thread looks at each step then, and 3.11 never gets into the next
    function that is traced. Only a thread that hears one ends that.
    """
    try:
        _raise_in(here, _Withdrawn)
        for _ in range(_LOOKS):  # the first is enough, but where Python looks late
            _look()
    except _Withdrawn:
        pass


def _look() -> None:
    """Be somewhere where Python looks for exceptions."""


def _is_delicate(innermost: FrameType) -> bool:
    """Tell whether a thread is where the exception should not come: it is where it would come."""
    name, module = innermost.f_code.co_name, innermost.f_globals.get("__name__", "")
    if name in _ENTERING or module == "importlib._bootstrap":
        return True
    if name in _LOCKING.get(module, ()):
        return True
    if _LATE and module == "threading" and name not in _WAITING:
        return True
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code.co_name == "__del__":  # nothing is raised out of these
            return True
        frame = frame.f_back
    return False


def _hears_outside(innermost: FrameType, at: int) -> bool:
    """Tell whether a thread may look the next time where the ``try`` around that does not apply."""
    frame: FrameType | None = innermost
    while frame is not None:
        outside, leaves = _onward(frame.f_code, at)
        if outside or not leaves:
            return outside
        frame = frame.f_back
        at = -1 if frame is None else frame.f_lasti
    return False


@lru_cache(maxsize=256)
def _onward(code: CodeType, at: int) -> tuple[bool, bool]:
    """Tell how code may go on from an instruction until it looks for exceptions again.

    First, whether it may look at a jump that is outside of the ``try`` that it belongs to. Python
    3.13 makes a jump back on a condition of two instructions, and leaves the second one, which
    looks, out of the table of handlers: ``while time.monotonic() < end: pass`` at the end of a
    ``try`` or a ``with`` is one. Second, whether it may leave the code before it looks.
    """
    bytecode = dis.Bytecode(code)
    steps: list[dis.Instruction] = []
    index: dict[int, int] = {}
    for step in bytecode:
        index[step.offset] = len(steps)  # a jump may go to what only fills before an instruction
        if step.opname not in _FILLING:
            steps.append(step)
    handlers = {
        offset: entry.target
        for entry in bytecode.exception_entries  # type: ignore[attr-defined]
        for offset in range(entry.start, entry.end, 2)
    }
    found, leaves = {at}, False
    ahead = [at]
    for offset in ahead:
        if offset not in index:
            continue
        number = index[offset]
        step, before = steps[number], steps[number - 1]
        if offset != at and step.opname in _LOOKING:
            if (
                step.opname == "JUMP_BACKWARD"
                and before.opname.startswith("POP_JUMP")
                and handlers.get(offset) != handlers.get(before.offset)
            ):
                return True, leaves
            continue
        leaves = leaves or step.opname in _LEAVING
        following = [step.argval] if step.opcode in _JUMPS else []
        if step.opname not in _ENDING and number + 1 < len(steps):
            following.append(steps[number + 1].offset)
        ahead.extend({*following} - found)
        found.update(following)
    return False, leaves


def _raise_at(thread: int, frame: FrameType, at: int) -> None:
    """Raise the exception in a thread, if it has not gone on from where it was found meanwhile.

    Looking and raising are one call of C, amid which no other thread's code runs.
    """
    now = map(itemgetter(thread), iter(sys._current_frames, None))
    same = map(is_, now, repeat(frame))
    still = map(eq, map(attrgetter("f_lasti"), repeat(frame)), repeat(at))
    told = map(_raise_in, repeat(thread), repeat(_Told))
    all(map(next, (same, still, told)))
