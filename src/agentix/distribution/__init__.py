"""Bundles at OCI registries: what is there is not sent again, what comes is not trusted."""

from __future__ import annotations

from agentix.distribution.pull import PulledBundle, pull
from agentix.distribution.push import PushedBundle, push

__all__ = ["PulledBundle", "PushedBundle", "pull", "push"]
