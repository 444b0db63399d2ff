"""The client of a runtime: functions in, values or errors out."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from itertools import count
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

from agentix.callables import RemoteCallable
from agentix.client.connection import Connection, ConnectionLost, Section
from agentix.client.result import Failed, Ok, Result
from agentix.client.url import RuntimeURL
from agentix.errors import (
    CallCancelled,
    CallTimeout,
    RemoteCallError,
    RemoteErrorInfo,
    RestrictedUnpickleError,
    WorkerExited,
)
from agentix.text import plain
from agentix.wire import arguments, messages
from agentix.wire.errors import MalformedError, NotAllowedError
from agentix.wire.frames import payload_size, pieces
from agentix.wire.messages import Call, Failure, Value
from agentix.wire.protocol import MAX_PAYLOAD, MAX_RESULT, MAX_TARGET
from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from agentix.client.health import Health

P = ParamSpec("P")
T = TypeVar("T")

_QUICK: Final = 1 << 20
"""Bytes of a document that is read between two turns of the loop; more is read in a thread."""


class RuntimeClient:
    """Calls functions in the sandbox behind a runtime URL.

    ``timeout`` bounds each call, in seconds; ``None`` leaves it unbounded. ``token`` is the
    sandbox's secret. The client connects on first use and keeps connections until it is closed.
    """

    def __init__(self, url: str, *, timeout: float | None = 300, token: str | None = None) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout!r}; it has to be a positive number of seconds")
        self._timeout = timeout
        self._connection = Connection(RuntimeURL.parse(url), token)
        # Unique among all clients of a runtime, without asking for randomness each time.
        self._name = os.urandom(12).hex()
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Calls under way fail; more calls are refused."""
        await self._connection.close()

    async def health(self) -> Health:
        """Ask the runtime for its versions and processes.

        Raises :class:`RuntimeUnreachable` when it does not answer, or in another protocol.
        """
        return await self._connection.health()

    @overload
    def remote(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def remote(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def remote(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run a function in the sandbox and return its value.

        The function is named, not sent: the bundle has to contain it. It runs at most once, and is
        never tried again. Cancelling the call cancels an async function; a sync one, which runs in
        a thread, runs on unheard until the sandbox is closed.

        Raises:
            TypeError: the function cannot be called remotely, or its arguments cannot be sent.
            RemoteCallError: the function raised; ``str()`` has its traceback.
            CallTimeout: it took longer than the client's timeout, and was cancelled like that.
            CallCancelled: it was cancelled inside the sandbox.
            WorkerExited: the process that ran it died.
            RuntimeUnreachable: the sandbox does not answer.
            RestrictedUnpickleError: its result needs a class that is not allowed here.
        """
        return self._call(fn, RemoteCallable.validate(fn), args, kwargs)

    @overload
    def try_remote(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Result[T]]: ...
    @overload
    def try_remote(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Result[T]]: ...
    def try_remote(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Result[Any]]:
        """Run a function as :meth:`remote` does; return a failure instead of raising it."""
        return self._try(self._call(fn, RemoteCallable.validate(fn), args, kwargs))

    async def _try(self, call: Coroutine[Any, Any, Any]) -> Result[Any]:
        try:
            return Ok(await call)
        except RemoteCallError as error:
            return Failed(error)

    async def _call(
        self,
        fn: Callable[..., Any],
        target: RemoteCallable,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        script = target.module if fn.__module__ == "__main__" else None
        pickled = _pickle(target, args, kwargs, script)
        segments = pickled.segments
        size = payload_size(segments)
        if size > MAX_PAYLOAD:
            raise TypeError(f"{target}: arguments of {size:,} bytes are more than {MAX_PAYLOAD:,}")
        trusted = os.environ.get("AGENTIX_PICKLE_TRUST") == "1"
        form: messages.Form = "pickle" if trusted else "values"
        call_id = f"{self._name}-{next(self._numbers)}"
        call = Call(call_id, target, form, MAX_RESULT, 0, False, "", segments)
        parts = pieces(pickled.stream, pickled.buffers)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._connection.ask(call, parts, target=target)
                section = answer.sections[0]
                read = functools.partial(_value, section, call, fn, script)
                if section.size <= _QUICK:
                    return read()
                return await asyncio.to_thread(read)  # meanwhile the loop goes on
        except TimeoutError:
            text = f"no result within {self._timeout:g} s; {_what_now(fn)}"
            raise CallTimeout(RemoteErrorInfo("CallTimeout", text), target=target) from None
        except ConnectionLost as exc:
            raise self._connection.unreachable(exc, target) from exc
        except MalformedError as exc:
            error = RemoteErrorInfo("MalformedResult", plain(str(exc), 500))
            raise RemoteCallError(error, target=target) from exc
        except NotAllowedError as exc:
            raise _restricted(exc, target) from None


def _what_now(fn: Callable[..., Any]) -> str:
    if inspect.iscoroutinefunction(fn):
        return "the call was cancelled"
    return "a thread cannot be stopped, so the function runs on until the sandbox is closed"


def _pickle(
    target: str, args: tuple[Any, ...], kwargs: dict[str, Any], script: str | None
) -> arguments.Pickled:
    try:
        return arguments.dump(args, kwargs, script=script)
    except Exception as exc:
        # Whatever an argument's own code raises while it is taken apart.
        raise TypeError(
            f"the arguments of {target} cannot be sent: {type(exc).__name__}: {exc}"
        ) from exc


def _value(answer: Section, call: Call, fn: Callable[..., Any], script: str | None) -> Any:
    """Give the value that an answer holds, or raise what it tells."""
    message = answer.message
    if isinstance(message, Failure) and message.id == call.id:
        raise _failure(message, call.target)
    if not isinstance(message, Value) or message.id != call.id:
        raise MalformedError("the answer is to another call")
    if message.form != call.form:
        raise MalformedError("the result is not in the form asked for")
    document, *buffers = answer.segments
    if message.form == "values":
        return decode(document, buffers, lambda: allowed_for(fn, script=script))
    try:
        return arguments.unpickle(document, buffers)
    except Exception as exc:
        text = f"the pickled result cannot be rebuilt here: {type(exc).__name__}: {exc}"
        error = RemoteErrorInfo("UnpicklingError", plain(text, 500))
        raise RemoteCallError(error, target=call.target) from exc


def _restricted(exc: NotAllowedError, target: str) -> RestrictedUnpickleError:
    module, name = plain(exc.module), plain(exc.qualname)
    return RestrictedUnpickleError(
        RemoteErrorInfo(
            "RestrictedUnpickleError",
            f"the result holds a {module}.{name}, which is not allowed here; name it in the "
            f"function's return annotation, or allow it with agentix.results.allow_type({name}), or "
            "set AGENTIX_PICKLE_TRUST=1 to trust this sandbox with full pickles",
        ),
        target=target,
    )


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
