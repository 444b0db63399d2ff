"""What access to Daytona takes: given here, or by the variables that its own tools read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from agentix.errors import ProviderError
from agentix.provider.kit import api_key

if TYPE_CHECKING:
    from agentix.provider.daytona.provider import DaytonaProvider

KEY, URL, TARGET = "DAYTONA_API_KEY", "DAYTONA_API_URL", "DAYTONA_TARGET"
DEFAULT_URL = "https://app.daytona.io/api"


class DaytonaProviderConfig(BaseModel):
    """How Daytona is reached.

    ``api_key`` (DAYTONA_API_KEY where it is not given) is the secret, ``api_url``
    (DAYTONA_API_URL) where the service answers, ``target`` (DAYTONA_TARGET) the region in which
    sandboxes run.
    """

    # What somebody gave may be the key in the wrong place: no error shows it.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    api_key: SecretStr | None = None
    api_url: Annotated[str, Field(min_length=1)] | None = None
    target: Annotated[str, Field(min_length=1)] | None = None

    def to_provider(self) -> DaytonaProvider:
        """Return a provider with this configuration."""
        from agentix.provider.daytona.provider import DaytonaProvider

        return DaytonaProvider(self)

    def complete(self) -> DaytonaProviderConfig:
        """Return this with what the environment adds to it.

        Raises ProviderError saying what is missing or cannot be right, and never what the key is.
        """
        key = api_key("daytona", self.api_key, KEY)
        url = self.api_url or os.environ.get(URL) or DEFAULT_URL
        if not _is_private(url):
            raise ProviderError(
                "daytona is not asked at an address to which the API key would travel readably or "
                f"that has secrets of its own; give one as {DEFAULT_URL} in api_url or {URL}"
            )
        target = self.target or os.environ.get(TARGET) or None
        return DaytonaProviderConfig(api_key=SecretStr(key), api_url=url, target=target)


def _is_private(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False
