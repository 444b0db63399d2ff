"""The two ways to call a function, as type checkers see them, for all who offer them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Coroutine,
        Iterator,
    )

    from agentix.client.result import Result

P = ParamSpec("P")
T = TypeVar("T")


class Remote(ABC):
    """Something in which functions can be called."""

    @overload
    def remote(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    # A function that returns an iterator without being a generator function could not send it.
    @overload
    def remote(  # type: ignore[overload-overlap]
        self, fn: Callable[P, AsyncIterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]: ...
    @overload
    def remote(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Iterator[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]: ...
    @overload
    def remote(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def remote(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a function in the sandbox and return its value.

        The function is named, not sent: the bundle has to contain it. It runs at most once, and is
        never tried again. Cancelling the call cancels an async function, and tells the thread of a
        sync one, which hears of it when it next runs Python code.

        Of a generator function, async or not, this returns an async generator. What it yields is
        made when it is about to be asked for; leaving the loop early ends it in the sandbox::

            async for line in sandbox.remote(lines, "log.txt"):
                ...

        Raises:
            TypeError: the function cannot be called remotely, or its arguments cannot be sent.
            RemoteCallError: the function raised; ``str()`` has its traceback.
            CallTimeout: it, or an item of it, took longer than the timeout, and it was cancelled.
            CallCancelled: it was cancelled inside the sandbox.
            WorkerExited: the process that ran it died.
            RuntimeUnreachable: the sandbox does not answer.
            RestrictedUnpickleError: its result needs a class that is not allowed here.
        """
        return self._begin(fn, args, kwargs)

    @overload
    def try_remote(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Result[T]]: ...
    # It raises. Of ``Never``, type checkers would say nothing; ``None`` cannot be awaited.
    @overload
    def try_remote(  # type: ignore[overload-overlap]
        self,
        fn: Callable[P, AsyncIterator[Any] | Iterator[Any]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def try_remote(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Result[T]]: ...
    def try_remote(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Result[Any]] | None:
        """Run a function as :meth:`remote` does; return ``Ok(value)``, or ``Failed(error)``.

        Raises:
            TypeError: as :meth:`remote`; and for a generator function, whose items have no end that
                could be told instead of them.
        """
        return self._try(fn, args, kwargs)

    @abstractmethod
    def _begin(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any: ...

    @abstractmethod
    def _try(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Result[Any]]: ...
