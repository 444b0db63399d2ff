"""How often something that fails over a network is tried again, and when."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP's ways to say "not now"


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a request is made, and how long it waits in between (seconds)."""

    tries: int = 5
    first: float = 0.5
    longest: float = 20.0
    asked: float = 60.0  # the most that a server's Retry-After is followed

    def delay(self, failures: int, wanted: float | None) -> float:
        """Return the wait after so many failures; *wanted* is what the server asked for."""
        if wanted is not None:
            return min(max(wanted, 0.0), self.asked)
        usual: float = min(self.first * 2.0 ** (failures - 1), self.longest)
        return usual * random.uniform(0.8, 1.2)  # noqa: S311 - spreads clients, guards nothing


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None when it makes no sense."""
    if value is None:
        return None
    try:
        if value.isdigit():
            return float(value)
        return parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError:
        return None
