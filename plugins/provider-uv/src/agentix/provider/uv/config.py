"""The switches of the uv provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from agentix.provider.uv.provider import UvProvider

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class UvProviderConfig(BaseModel):
    """How virtual environments are made and what runs in them is waited for.

    ``program`` is the uv to run, instead of the one that came with Agentix or is on PATH.
    ``python`` is the interpreter to use, of the bundle's version, instead of what uv finds.
    ``cache`` is where environments are kept, instead of in the user's cache for Agentix.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    program: Path | None = None
    python: Path | None = None
    cache: Path | None = None
    start_timeout: Seconds = 60
    stop_timeout: Seconds = 5

    def to_provider(self) -> UvProvider:
        """Return a provider with this configuration."""
        from agentix.provider.uv.provider import UvProvider

        return UvProvider(self)
