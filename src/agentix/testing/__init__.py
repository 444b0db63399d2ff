"""One suite of tests that every provider passes, also one that is not ours.

Subclass :class:`ProviderConformance`, say in a :class:`Subject` what your provider is and what it
promises, and run pytest. ``agentix.testing.probes`` is what the suite calls inside the sandboxes;
it is in every bundle. Only this package needs pytest (the extra ``testing``), and only when one of
its names is used.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentix.testing.conformance import (
        Cancellation,
        Cleanup,
        Concurrency,
        Environment,
        Failures,
        Isolation,
        Lifecycle,
        ProviderConformance,
        Resources,
    )
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
_ASSERTING = (
    *("cancellation", "case", "cleanup", "concurrency", "environment", "failures"),
    *("interruption", "isolation", "lifecycle", "resources", "scripted"),
)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Not before a name is asked for: sandboxes import this package, too, and have no pytest.
    import pytest

    modules = (f"{__name__}.{module}" for module in _ASSERTING)
    pytest.register_assert_rewrite(*(module for module in modules if module not in sys.modules))
    from agentix.testing import conformance

    value: object = getattr(conformance, name)
    globals()[name] = value
    return value
