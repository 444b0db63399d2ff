"""A live sandbox, as the code that uses it sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NewType, ParamSpec, TypeVar, overload

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from agentix.client import Health, Result, RuntimeClient

P = ParamSpec("P")
T = TypeVar("T")

SandboxId = NewType("SandboxId", str)
SandboxStatus = Literal["running", "exited"]


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """What is known of a sandbox without a connection to it."""

    sandbox_id: SandboxId
    runtime_url: str
    status: SandboxStatus


class Sandbox:
    """A live sandbox: call functions in it.

    Providers make these. The connection opens with the first call and closes with :meth:`aclose`
    or at the end of ``async with``; the sandbox itself lives until the provider deletes it.
    """

    def __init__(self, info: SandboxInfo, *, token: str | None = None) -> None:
        self._info = info
        self._token = token
        self._timeout: float | None = 300
        self._client: RuntimeClient | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<Sandbox {self.sandbox_id} {self.status}>"

    @property
    def info(self) -> SandboxInfo:
        """What the provider knew when it gave this handle."""
        return self._info

    @property
    def sandbox_id(self) -> SandboxId:
        """What ``get`` and ``delete`` of the provider take."""
        return self._info.sandbox_id

    @property
    def runtime_url(self) -> str:
        """Where the runtime inside listens."""
        return self._info.runtime_url

    @property
    def status(self) -> SandboxStatus:
        """Whether it ran when the provider gave this handle."""
        return self._info.status

    def configure(self, *, timeout: float | None) -> None:
        """Bound each call by *timeout* seconds, None for no bound; before the first call only.

        Raises ProviderError after the first call, when it would have no effect.
        """
        if self._client is not None or self._closed:
            raise ProviderError(
                f"sandbox {self.sandbox_id} is connected already; "
                "configure(…) works before the first call only"
            )
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        self._timeout = timeout

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
        """Run *fn* inside the sandbox and return its value; see :meth:`RuntimeClient.remote`."""
        return self._connected().remote(fn, *args, **kwargs)

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
        """Run *fn* as :meth:`remote` does; return ``Ok(value)``, or ``Failed(error)``."""
        return self._connected().try_remote(fn, *args, **kwargs)

    async def health(self) -> Health:
        """Ask the runtime how it is; RuntimeUnreachable when it does not answer."""
        return await self._connected().health()

    async def aclose(self) -> None:
        """Close the connection; the sandbox lives on. Closing again does nothing."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _connected(self) -> RuntimeClient:
        if self._closed:
            raise ProviderError(
                f"this handle of sandbox {self.sandbox_id} is closed; "
                "provider.get(sandbox_id) gives a new one"
            )
        if self._client is None:
            from agentix.client import RuntimeClient  # only now: it loads what calls need

            self._client = RuntimeClient(self.runtime_url, timeout=self._timeout, token=self._token)
        return self._client
