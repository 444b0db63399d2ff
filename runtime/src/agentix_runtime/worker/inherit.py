"""Threads that a call starts belong to it: they see its context variables and its current span.

Python loses them on the way into a thread, unless asyncio.to_thread is used (since 3.14 it has a
switch for what is done here, -X thread_inherit_context). Only the worker does this to itself.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def install() -> None:
    """Have threads, and what is submitted to pools of them, run in a copy of the context."""
    start: Any = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit

    @functools.wraps(start)
    def start_here(thread: threading.Thread) -> None:
        # On the thread itself: a subclass may have a run of its own.
        inherited: Any = functools.partial(contextvars.copy_context().run, thread.run)
        vars(thread)["run"] = inherited
        start(thread)

    @functools.wraps(submit)
    def submit_here(
        pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        future: Future[Any] = submit(pool, contextvars.copy_context().run, fn, *args, **kwargs)
        return future

    threading.Thread.start = start_here  # type: ignore[method-assign,assignment]
    ThreadPoolExecutor.submit = submit_here  # type: ignore[method-assign,assignment]
