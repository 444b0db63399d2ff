"""Sandboxes as containers of the Docker engine on this machine."""

from __future__ import annotations

from agentix.provider.docker.config import DockerProviderConfig
from agentix.provider.docker.provider import DockerProvider

__all__ = ["DockerProvider", "DockerProviderConfig"]
