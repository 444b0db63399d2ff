"""Sandboxes as containers of the Docker engine on this machine, or of Podman."""

from __future__ import annotations

from agentix.provider.docker.config import DockerProviderConfig
from agentix.provider.docker.provider import DockerProvider, PodmanProvider

__all__ = ["DockerProvider", "DockerProviderConfig", "PodmanProvider"]
