"""What is called: how its arguments are put, and what its answers mean."""

from __future__ import annotations

import asyncio
import inspect
import os
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agentix.errors import (
    CallCancelled,
    CallTimeout,
    RemoteCallError,
    RemoteErrorInfo,
    RestrictedUnpickleError,
    WorkerExited,
)
from agentix.text import plain
from agentix.utils import context
from agentix.wire import arguments
from agentix.wire.errors import MalformedError, NotAllowedError
from agentix.wire.frames import payload_size
from agentix.wire.messages import Failure, Item, Value
from agentix.wire.protocol import MAX_PAYLOAD, MAX_TARGET
from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentix.callables import RemoteCallable
    from agentix.client.answers import Section
    from agentix.wire.fields import Form

_QUICK: Final = 1 << 20
"""Bytes of a document that is read between two turns of the loop; more is read in a thread."""

_GENERATOR: Final = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_ASYNC: Final = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def generates(fn: Callable[..., Any]) -> bool:
    """Tell whether this is a generator function, async or not."""
    return bool(_flags(fn) & _GENERATOR)


def _flags(fn: Callable[..., Any]) -> int:
    if hasattr(fn, "__wrapped__"):
        try:
            fn = inspect.unwrap(fn)
        except ValueError:  # it wraps itself
            return 0
    flags: int = getattr(getattr(fn, "__code__", None), "co_flags", 0)
    return flags


class Job:
    """One call of a function."""

    __slots__ = ("_fn", "_script", "form", "stream", "target")

    def __init__(self, fn: Callable[..., Any], target: RemoteCallable, *, stream: bool) -> None:
        self._fn = fn
        self._script = target.module if fn.__module__ == "__main__" else None
        self.target = target
        self.stream = stream
        trusted = os.environ.get("AGENTIX_PICKLE_TRUST") == "1"
        self.form: Form = "pickle" if trusted else "values"

    def pickled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> arguments.Pickled:
        """Pickle the arguments, or raise TypeError."""
        try:
            pickled = arguments.dump(args, kwargs, script=self._script, carried=context.capture())
        except Exception as exc:
            # Whatever an argument's own code raises while it is taken apart.
            raise TypeError(
                f"the arguments of {self.target} cannot be sent: {type(exc).__name__}: {exc}"
            ) from exc
        if (size := payload_size(pickled.segments)) > MAX_PAYLOAD:
            raise TypeError(
                f"{self.target}: arguments of {size:,} bytes are more than {MAX_PAYLOAD:,}"
            )
        return pickled

    async def result(self, section: Section) -> Any:
        """Give the value that the function returned or yielded, or raise what became of it."""
        try:
            if section.size <= _QUICK:
                return self._value(section)
            return await asyncio.to_thread(self._value, section)  # meanwhile the loop goes on
        except (MalformedError, NotAllowedError) as exc:
            self.unreadable(exc)

    def _value(self, section: Section) -> Any:
        message = section.message
        if isinstance(message, Failure):
            raise _failure(message, self.target)
        if not isinstance(message, Value | Item) or message.form != self.form:
            raise MalformedError("the result is not in the form asked for")
        document, *buffers = section.segments
        if self.form == "values":
            return decode(document, buffers, lambda: allowed_for(self._fn, script=self._script))
        try:
            return arguments.unpickle(document, buffers)
        except Exception as exc:
            text = f"the pickled result cannot be rebuilt here: {type(exc).__name__}: {exc}"
            error = RemoteErrorInfo("UnpicklingError", plain(text, 500))
            raise RemoteCallError(error, target=self.target) from exc

    def unreadable(self, exc: MalformedError | NotAllowedError) -> NoReturn:
        """Raise the error of an answer that cannot be used."""
        if isinstance(exc, MalformedError):
            error = RemoteErrorInfo("MalformedResult", plain(str(exc), 500))
            raise RemoteCallError(error, target=self.target) from exc
        module, name = plain(exc.module), plain(exc.qualname)
        raise RestrictedUnpickleError(
            RemoteErrorInfo(
                "RestrictedUnpickleError",
                f"the result holds a {module}.{name}, which is not allowed here; name it in the "
                "function's return annotation, or allow it with "
                f"agentix.results.allow_type({name}), or set AGENTIX_PICKLE_TRUST=1 to trust this "
                "sandbox with full pickles",
            ),
            target=self.target,
        ) from None

    def timed_out(self, what: str) -> CallTimeout:
        """Make the error of a call that took too long."""
        what += "; the call was cancelled"
        if not _flags(self._fn) & _ASYNC:
            what += ", of which a thread hears when it next runs Python code"
        return CallTimeout(RemoteErrorInfo("CallTimeout", what), target=self.target)


def _failure(failure: Failure, target: str) -> RemoteCallError:
    cancelled = failure.kind == "cancelled"
    # The sandbox has written all of it, and it will be printed.
    error = RemoteErrorInfo(
        plain(failure.type, MAX_TARGET),
        _lines(failure.message),
        _lines(failure.traceback),
        cancelled,
    )
    if cancelled:
        return CallCancelled(error, target=target)
    if failure.kind == "exited":
        return WorkerExited(error, target=target, returncode=failure.returncode)
    return RemoteCallError(error, target=target)


def _lines(text: str) -> str:
    return plain(text, None, keep="\n\t")
