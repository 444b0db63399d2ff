"""Values and output that misbehave."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from local_runtime.hard import notes

if TYPE_CHECKING:
    from collections.abc import Callable


def prints(text: str) -> None:
    """Print without an end of line."""
    print(text, end="")  # noqa: T201 - what is tested


def prints_in_c(text: str) -> None:
    """Print from C."""
    ctypes.CDLL(None).printf(b"%s\n", text.encode())


class _Stuck:
    def flush(self) -> None:
        sys.exit(3)

    def write(self, _: str) -> int:
        return 0


def replaces_output() -> int:
    """Put something else in the place of standard output."""
    before: Any = sys.stdout
    stuck: Any = _Stuck()
    sys.stdout = stuck
    threading.Timer(0.2, setattr, (sys, "stdout", before)).start()
    return 1


class _Misbehaves:
    def __init__(self, how: Callable[[], Any]) -> None:
        self._how = how

    def __reduce__(self) -> Any:
        return self._how()


def misbehaves(how: str) -> Any:
    """Return what does something else than to be pickled."""
    return _Misbehaves(_HOW[how])


def _exit() -> Any:
    sys.exit(4)


def _interrupt() -> Any:
    raise KeyboardInterrupt


def _cancel() -> Any:
    raise asyncio.CancelledError


def _endless() -> Any:
    return _Misbehaves, (_Misbehaves(_endless),)


def _fork() -> Any:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return int, (pid,)


_HOW: dict[str, Callable[[], Any]] = {
    "exit": _exit,
    "interrupt": _interrupt,
    "cancelled": _cancel,
    "endless": _endless,
    "nonsense": lambda: 7,
    "fork": _fork,
}


class _Odd(dict[Any, Any]):
    def __len__(self) -> int:
        raise SystemExit(5)

    def __iter__(self) -> Any:
        raise GeneratorExit


class _Shy:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise KeyboardInterrupt


def odd_value(how: str) -> Any:
    """Return what raises when it is looked at."""
    return {"dict": _Odd, "class": _Shy}[how]()


class Rebuilds:
    """Does something when it is rebuilt."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return _rebuilt, (self.how,)


def _rebuilt(how: str) -> str:
    notes.append(f"rebuilt {how}")
    if how == "exit":
        sys.exit(6)
    return how


def code_of(function: Callable[[], Any]) -> Any:
    """Call a function that was brought along."""
    return function()
