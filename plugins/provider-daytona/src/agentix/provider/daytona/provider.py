"""The stub: everything that can be checked is, and nothing is sent anywhere."""

from __future__ import annotations

from agentix.provider.daytona.config import DaytonaProviderConfig
from agentix.provider.kit import StubProvider


class DaytonaProvider(StubProvider):
    """Would make sandboxes on Daytona; says what its configuration lacks, or that it cannot yet."""

    service = "daytona"

    def __init__(self, config: DaytonaProviderConfig | None = None) -> None:
        self.config = config or DaytonaProviderConfig()

    def check(self) -> DaytonaProviderConfig:
        """Return the whole configuration; ProviderError when it cannot be right."""
        return self.config.complete()
