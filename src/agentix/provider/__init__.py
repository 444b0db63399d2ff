"""Providers: where sandboxes come from. Plugins add their backends as modules beside this one."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

__path__ = pkgutil.extend_path(__path__, __name__)

if TYPE_CHECKING:
    from agentix.provider.registry import providers, register_provider

__all__ = ["providers", "register_provider"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agentix.provider import registry

    value: object = getattr(registry, name)
    globals()[name] = value
    return value
