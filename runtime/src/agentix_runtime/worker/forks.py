"""What happens when a function forks: the child must never speak for the worker.

A forked child shares the worker's channel and its event loop's epoll instance with it. In the child
both are closed before any of its code runs, and when the function returns there, the child ends
instead of going on as a second worker.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import selectors
    from collections.abc import Callable

_in_child = False


def guard(
    abandon: Callable[[], None],
    loop: asyncio.AbstractEventLoop,
    selector: selectors.BaseSelector,
) -> None:
    """Cut every forked child off from the worker's channel, which it is to abandon, and loop."""

    def cut_off() -> None:
        global _in_child
        _in_child = True
        abandon()
        # The child's own asyncio.run() must not find the worker's loop running …
        asyncio._set_running_loop(None)
        # … nor may that loop go on in the child: nothing is left to do or to wait for.
        getattr(loop, "_ready", []).clear()
        selector.close()

    os.register_at_fork(after_in_child=cut_off)


def in_child() -> bool:
    """Tell whether this process is a fork of the worker."""
    return _in_child


def leave(error: BaseException | None) -> NoReturn:
    """End a forked child in which the called function has come to its end."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 1
    os._exit(code)
