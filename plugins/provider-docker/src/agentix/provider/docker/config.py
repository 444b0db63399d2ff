"""What can be chosen about containers, and what they get when nothing is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from agentix.provider.docker.provider import DockerProvider

# What root of a task ordinarily does: install packages, change owners, drop to another user, listen
# on a low port. Docker's own default also lets it craft raw packets, make device nodes, call
# chroot and set file capabilities, which few tasks need and escapes do.
CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "SETGID",
    "SETUID",
)


class DockerProviderConfig(BaseModel):
    """How this provider runs containers; the defaults are the safe side.

    ``network`` is ``"default"`` (the engine's own), ``"none"``, the name of a network, or
    ``"host"``, which is no isolation at all; calls work without any. ``capabilities`` is everything
    that root in the container may do, ``pids_limit`` bounds its processes (None: nothing does),
    ``read_only`` makes the image's file system read-only, ``pull`` says whether a registry is asked
    for an image that is missing. Without ``keep_images``, what was pulled or loaded for a sandbox
    goes with the last one that is made of it; images that were there before stay.
    ``start_timeout`` is how many seconds a container may take until its runtime answers,
    ``stop_timeout`` how many it gets to end itself. A container ends by itself ``lease`` seconds
    after the last process that holds it, as those do that have created or got it; with None it
    lives until it is deleted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    container_engine: Literal["docker", "podman"] = "docker"
    network: Annotated[str, Field(min_length=1)] = "default"
    capabilities: tuple[str, ...] = CAPABILITIES
    no_new_privileges: bool = True
    pids_limit: Annotated[int, Field(gt=0)] | None = 4096
    read_only: bool = False
    pull: Literal["missing", "never"] = "missing"
    keep_images: bool = True
    start_timeout: Annotated[float, Field(gt=0)] = 60.0
    stop_timeout: Annotated[int, Field(ge=0)] = 3
    lease: Annotated[float, Field(ge=1, le=2**30)] | None = 60.0

    def to_provider(self) -> DockerProvider:
        """Return a provider that does it this way."""
        from agentix.provider.docker.provider import DockerProvider, PodmanProvider

        return PodmanProvider(self) if self.container_engine == "podman" else DockerProvider(self)
