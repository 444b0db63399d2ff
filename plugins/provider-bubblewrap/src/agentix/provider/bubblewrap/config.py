"""The switches of the bubblewrap provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from agentix.provider.bubblewrap.provider import BubblewrapProvider

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BubblewrapProviderConfig(BaseModel):
    """How sandboxes are made.

    ``network``: ``"none"`` leaves a sandbox its own loopback and nothing else; ``"host"`` shares
    this machine's network, its loopback and every service on it included. Calls work with either.
    ``read_only`` makes the image's file system read-only, like ``docker run --read-only``.
    ``program`` is the bubblewrap to run, instead of the packaged or the system's one.
    ``pull`` says when a registry is asked for an image: ``"missing"`` if it is not here,
    ``"changed"`` also whether its tag has come to mean another one, ``"never"``.
    ``insecure_registries`` (``host:port``) may be spoken to without TLS; they are also found in the
    user's own ``containers/registries.conf``, as are logins where ``skopeo login`` puts them.
    ``cache`` is where images are unpacked, instead of in the user's cache for Agentix.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Literal["none", "host"] = "none"
    read_only: bool = False
    program: Path | None = None
    pull: Literal["changed", "missing", "never"] = "changed"
    insecure_registries: tuple[str, ...] = ()
    cache: Path | None = None
    start_timeout: Seconds = 60
    stop_timeout: Seconds = 5

    def to_provider(self) -> BubblewrapProvider:
        """Return a provider with this configuration."""
        from agentix.provider.bubblewrap.provider import BubblewrapProvider

        return BubblewrapProvider(self)
