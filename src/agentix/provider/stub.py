"""Providers that make no sandbox yet: they check their configuration, and then say so."""

from __future__ import annotations

import os
from abc import abstractmethod
from typing import TYPE_CHECKING, NoReturn

from agentix.errors import ProviderError
from agentix.provider.base import Finding, SandboxProvider
from agentix.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pydantic import SecretStr

    from agentix.provider.config import SandboxConfig
    from agentix.provider.deploy import DeployedBundle
    from agentix.provider.sandbox import Sandbox, SandboxId


class NotYet(ProviderError, NotImplementedError):  # noqa: N818 - it says what it is
    """The configuration is sound; the provider is a stub."""


class StubProvider(SandboxProvider):
    """Says what its configuration lacks, or that it cannot yet; nothing is sent anywhere.

    ``service`` is what the provider is called in those errors.
    """

    service: str

    @abstractmethod
    def check(self) -> object:
        """Raise ProviderError when the configuration, with the environment, cannot be right."""

    def diagnose(self) -> Iterable[Finding]:
        """Say that it makes none yet, and what its configuration lacks."""
        lack = "which only checks its configuration"
        try:
            self.check()
        except ProviderError as error:
            lack = f"and {error}"
        yield Finding("problem", f"a stub so far, {lack}")

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"make a sandbox of image {quoted(config.image)}")

    async def delete(self, sandbox_id: SandboxId) -> None:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"delete sandbox {sandbox_id!r}")

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"find sandbox {sandbox_id!r}")

    async def deploy_bundle(
        self, path: Path, *, name: str | None = None, platform: str | None = None
    ) -> DeployedBundle:
        """Check the configuration; then raise NotYet."""
        self._refuse(f"deploy {str(path)!r}")

    def _refuse(self, what: str) -> NoReturn:
        self.check()
        raise NotYet(
            f"{self.service} cannot {what}: this provider is a stub so far, which only checks its "
            "configuration; use docker, podman or bubblewrap"
        )


def api_key(service: str, given: SecretStr | None, variable: str) -> str:
    """Return the key *given*, else the one in the environment's *variable*.

    Raises ProviderError when there is none or it cannot be one, without ever saying what it is.
    """
    key = given.get_secret_value() if given else os.environ.get(variable, "")
    if not key:
        raise ProviderError(f"{service} needs an API key; set {variable}, or give api_key")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ProviderError(
            f"the API key of {service} cannot be one: it has characters other than ASCII letters, "
            f"digits and signs, perhaps a line's end; look at api_key or {variable}"
        )
    return key
