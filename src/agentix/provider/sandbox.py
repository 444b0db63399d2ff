"""A live sandbox, as the code that uses it sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NewType

from agentix.client import RuntimeClient
from agentix.client.namespaces import admitted
from agentix.client.remote import Remote
from agentix.client.runtime import check_knobs
from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import EllipsisType, TracebackType
    from typing import Self

    from agentix.client import Health, Result
    from agentix.sio import AsyncClientNamespace

SandboxId = NewType("SandboxId", str)
SandboxStatus = Literal["running", "exited"]


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """What is known of a sandbox without a connection to it."""

    sandbox_id: SandboxId
    runtime_url: str
    status: SandboxStatus


class Sandbox(Remote):
    """A live sandbox: call functions in it.

    Providers make these. The connection opens with the first call and closes with :meth:`aclose`
    or at the end of ``async with``; the sandbox itself lives until the provider deletes it.
    """

    def __init__(self, info: SandboxInfo, *, token: str | None = None) -> None:
        self._info = info
        self._token = token
        self._timeout: float | None = 300
        self._http_sync_ms: int | None = 1000
        self._namespaces: dict[str, AsyncClientNamespace] = {}
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

    def configure(
        self,
        *,
        timeout: float | EllipsisType | None = ...,
        http_sync_ms: int | EllipsisType | None = ...,
    ) -> None:
        """Set how calls are made, before the first call only; what is left out stays as it is.

        Each is bounded by *timeout* seconds, and answered over HTTP if it ends within
        *http_sync_ms* milliseconds; None is no bound, and no HTTP. Raises ProviderError after the
        first call, when it would have no effect.
        """
        self._check_unused("configure(…)")
        timeout = self._timeout if timeout is ... else timeout
        http_sync_ms = self._http_sync_ms if http_sync_ms is ... else http_sync_ms
        check_knobs(timeout, http_sync_ms)
        self._timeout, self._http_sync_ms = timeout, http_sync_ms

    def register_namespace(self, namespace: AsyncClientNamespace) -> None:
        """Have the host's side of a namespace get the sandbox's events; before the first call only.

        Raises ProviderError after that, and TypeError or ValueError for what is no namespace.
        """
        self._check_unused(f"register_namespace({type(namespace).__qualname__})")
        self._namespaces[admitted(namespace, self._namespaces)] = namespace

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

    def _begin(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._connected()._begin(fn, args, kwargs)

    def _try(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Coroutine[Any, Any, Result[Any]]:
        return self._connected()._try(fn, args, kwargs)

    def _check_unused(self, what: str) -> None:
        if self._client is not None or self._closed:
            raise ProviderError(
                f"sandbox {self.sandbox_id} is connected already; "
                f"{what} works before the first call only"
            )

    def _connected(self) -> RuntimeClient:
        if self._closed:
            raise ProviderError(
                f"this handle of sandbox {self.sandbox_id} is closed; "
                "provider.get(sandbox_id) gives a new one"
            )
        if self._client is None:
            client = RuntimeClient(
                self.runtime_url,
                timeout=self._timeout,
                http_sync_ms=self._http_sync_ms,
                token=self._token,
            )
            client._speaks_for(self.sandbox_id)
            for namespace in self._namespaces.values():
                client.register_namespace(namespace)
            self._client = client
        return self._client
