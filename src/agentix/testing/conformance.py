"""All groups of the suite in one class, which a provider's tests subclass."""

from __future__ import annotations

from agentix.testing.cancellation import Cancellation
from agentix.testing.cleanup import Cleanup
from agentix.testing.concurrency import Concurrency
from agentix.testing.environment import Environment
from agentix.testing.failures import Failures
from agentix.testing.isolation import Isolation
from agentix.testing.lifecycle import Lifecycle
from agentix.testing.resources import Resources
from agentix.testing.subject import Subject

__all__ = [
    "Cancellation",
    "Cleanup",
    "Concurrency",
    "Environment",
    "Failures",
    "Isolation",
    "Lifecycle",
    "ProviderConformance",
    "Resources",
    "Subject",
]


class ProviderConformance(
    Lifecycle,
    Environment,
    Resources,
    Isolation,
    Failures,
    Cancellation,
    Concurrency,
    Cleanup,
):
    """Every test that a provider has to pass.

    A subclass has a fixture ``subject`` of scope ``class`` that returns a :class:`Subject`.
    """
