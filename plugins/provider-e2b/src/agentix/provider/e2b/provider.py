"""The stub: everything that can be checked is, and nothing is sent anywhere."""

from __future__ import annotations

from agentix.provider.e2b.config import E2bProviderConfig
from agentix.provider.kit import StubProvider


class E2bProvider(StubProvider):
    """Would make sandboxes on E2B; says what its configuration lacks, or that it cannot yet."""

    service = "e2b"

    def __init__(self, config: E2bProviderConfig | None = None) -> None:
        self.config = config or E2bProviderConfig()

    def check(self) -> E2bProviderConfig:
        """Return the whole configuration; ProviderError when it cannot be right."""
        return self.config.complete()
