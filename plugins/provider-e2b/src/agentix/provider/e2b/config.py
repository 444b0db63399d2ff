"""What access to E2B takes: given here, or by the variables that its own tools read."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from agentix.errors import ProviderError
from agentix.provider.kit import api_key

if TYPE_CHECKING:
    from agentix.provider.e2b.provider import E2bProvider

KEY, DOMAIN = "E2B_API_KEY", "E2B_DOMAIN"
DEFAULT_DOMAIN = "e2b.app"
_NAME = re.compile(r"[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+(:[0-9]{1,5})?")


class E2bProviderConfig(BaseModel):
    """How E2B is reached.

    ``api_key`` (E2B_API_KEY where it is not given) is the secret, ``domain`` (E2B_DOMAIN) the name
    at which the service answers.
    """

    # What somebody gave may be the key in the wrong place: no error shows it.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    api_key: SecretStr | None = None
    domain: Annotated[str, Field(min_length=1)] | None = None

    def to_provider(self) -> E2bProvider:
        """Return a provider with this configuration."""
        from agentix.provider.e2b.provider import E2bProvider

        return E2bProvider(self)

    def complete(self) -> E2bProviderConfig:
        """Return this with what the environment adds to it.

        Raises ProviderError saying what is missing or cannot be right, and never what the key is.
        """
        key = api_key("e2b", self.api_key, KEY)
        domain = self.domain or os.environ.get(DOMAIN) or DEFAULT_DOMAIN
        if not _NAME.fullmatch(domain):
            raise ProviderError(
                f"the domain of e2b is no name of a machine; give one as {DEFAULT_DOMAIN}, "
                f"without a scheme or a path, in domain or {DOMAIN}"
            )
        return E2bProviderConfig(api_key=SecretStr(key), domain=domain)
