"""The switches of the apptainer provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from agentix.provider.apptainer.provider import ApptainerProvider

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ApptainerProviderConfig(BaseModel):
    """How sandboxes are made.

    ``network``: ``"none"`` leaves a sandbox its own loopback and nothing else; ``"host"`` shares
    this machine's network, its loopback and every service on it included. Calls work with either.
    ``fakeroot`` lets an ordinary user appear as root, as most container images expect it.
    ``read_only`` makes the image's file system read-only.
    ``pull`` says when a registry is asked for an image: if it is not in the cache (``"missing"``),
    also whether it has another one under that name by now (``"changed"``), or ``"never"``.
    ``insecure_registries`` (``host:port``) may be asked without TLS. ``program`` is the Apptainer
    to run, instead of the one on PATH. ``cache`` is where images are unpacked, instead of in the
    user's cache for Agentix.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    network: Literal["none", "host"] = "none"
    fakeroot: bool = False
    read_only: bool = False
    pull: Literal["changed", "missing", "never"] = "changed"
    insecure_registries: tuple[str, ...] = ()
    program: Path | None = None
    cache: Path | None = None
    start_timeout: Seconds = 60
    stop_timeout: Seconds = 5

    def to_provider(self) -> ApptainerProvider:
        """Return a provider with this configuration."""
        from agentix.provider.apptainer.provider import ApptainerProvider

        return ApptainerProvider(self)
