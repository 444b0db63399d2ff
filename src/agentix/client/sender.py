"""What a namespace sends by: python-socketio's methods, as far as they make sense."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from agentix.wire.protocol import MAX_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from agentix.sio import AsyncClientNamespace

_log = logging.getLogger("agentix.client")


class Outlet(Protocol):
    """Where events leave a loop by."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""

    async def send(self, namespace: str, event: str, data: Any) -> None:
        """Send an event."""

    async def call(self, namespace: str, event: str, data: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
        """Send an event, and give what its handler returns."""

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something until this is closed."""


class Sender:
    """Stands where a namespace has its client; *here* gives what the caller's loop sends by."""

    def __init__(self, here: Callable[[], Outlet], namespace: AsyncClientNamespace) -> None:
        self._here = here
        self._namespace = namespace

    @property
    def connected(self) -> bool:
        """Whether there is a connection now, for the loop that asks."""
        try:
            return self._here().connected
        except RuntimeError:
            return False

    async def emit(
        self,
        event: str,
        data: Any = None,
        namespace: str | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """Send an event; a callback gets what the sandbox's handler returns."""
        name, event = self._checked(namespace, event)
        if callback is None:
            await self._here().send(name, event, data)
        else:
            self._here().start(self._call_back(name, event, data, callback))

    async def send(
        self,
        data: Any,
        namespace: str | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """Send the event ``message``."""
        await self.emit("message", data, namespace, callback)

    async def call(
        self,
        event: str,
        data: Any = None,
        namespace: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - python-socketio's signature
    ) -> Any:
        """Send an event, and give what the sandbox's handler returns."""
        name, event = self._checked(namespace, event)
        return await self._here().call(name, event, data, timeout)

    async def disconnect(self) -> None:
        """Refuse to: the connection is the whole client's."""
        raise RuntimeError("a namespace cannot disconnect; close the client or sandbox instead")

    async def _call_back(
        self, name: str, event: str, data: Any, callback: Callable[..., Any]
    ) -> None:
        try:
            made = callback(await self._here().call(name, event, data, None))
            if asyncio.iscoroutine(made):
                await made
        except Exception:
            _log.exception("the callback of %r of %s failed", event, name)

    def _checked(self, namespace: str | None, event: Any) -> tuple[str, str]:
        own = self._namespace.namespace
        if namespace not in (None, own):
            raise ValueError(f"a namespace sends its own events: {own}, not {namespace}")
        if type(event) is not str or not 0 < len(event) <= MAX_NAME:
            raise ValueError(f"{event!r:.300} cannot be the name of an event")
        return own, event
