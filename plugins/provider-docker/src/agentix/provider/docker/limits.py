"""What a container may use: as the engine is told it, or a refusal where it could not be kept."""

from __future__ import annotations

import logging
import resource as own
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docker.types import DeviceRequest, Ulimit

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentix.provider.base import SandboxResource
    from agentix.provider.docker.address import Kind
    from agentix.provider.docker.config import DockerProviderConfig
    from agentix.provider.docker.facts import Ability

_log = logging.getLogger("agentix.provider.docker")
_PROC = Path("/proc")
_said: set[str] = set()  # once a process is enough
# Podman asks for as many as root may have, whether or not this root may give them.
_INHERITED = {
    "nofile": ("Max open files", own.RLIMIT_NOFILE),
    "nproc": ("Max processes", own.RLIMIT_NPROC),
}


def of(resource: SandboxResource | None, choices: DockerProviderConfig) -> dict[str, Any]:
    """Return what the engine is told."""
    # Podman takes a limit that is left out for one of its own.
    limits: dict[str, Any] = {"pids_limit": choices.pids_limit or -1}
    if resource is None:
        return limits
    if resource.cpu is not None:
        limits["nano_cpus"] = round(resource.cpu * 1e9)
    if resource.memory is not None:
        # Swap counts in: a limit on memory alone would let the rest go to disk.
        limits["mem_limit"] = limits["memswap_limit"] = resource.memory
    if resource.gpu is not None:
        limits["device_requests"] = [DeviceRequest(count=resource.gpu, capabilities=[["gpu"]])]
    return limits


def require(
    kind: Kind,
    ability: Ability,
    resource: SandboxResource | None,
    choices: DockerProviderConfig,
) -> DockerProviderConfig:
    """Check that the engine can keep what is asked for; return what is to be asked of it.

    Raises ProviderError when it cannot. The limit that nobody asked for, that of processes, is left
    out then, and said to be.
    """
    wanted = {
        "cpu": resource is not None and resource.cpu is not None,
        "memory": resource is not None and resource.memory is not None,
        "pids": choices.pids_limit is not None and "pids_limit" in choices.model_fields_set,
    }
    for name, asked in wanted.items():
        if asked and not getattr(ability, name):
            setting = "pids_limit=None" if name == "pids" else f"no {name} in SandboxResource"
            raise ProviderError(
                f"{kind} cannot limit {name} here: {ability.why_not}; run without the limit"
                f" ({setting}), or use an engine that runs as root"
            )
    if resource is not None and resource.cpu is not None and resource.cpu > ability.cpus:
        raise ProviderError(
            f"{resource.cpu:g} CPUs were asked for, and {kind} has {ability.cpus}; ask for fewer"
        )
    if resource is not None and resource.gpu is not None and kind == "podman":
        raise ProviderError(
            f"{resource.gpu} GPUs were asked for, and podman gives none through its API; use"
            " docker, or leave gpu out"
        )
    if choices.pids_limit is not None and not ability.pids:
        if kind not in _said:
            _said.add(kind)
            _log.warning("%s does not limit processes here: %s", kind, ability.why_not)
        return choices.model_copy(update={"pids_limit": None})
    return choices


def kept(kind: Kind, warnings: Sequence[str]) -> None:
    """Raise ProviderError when the engine warns that it leaves out a limit."""
    for warning in warnings:
        if "discarded" in warning or "ignored" in warning:
            raise ProviderError(f"{kind} cannot keep the limits that were asked for: {warning}")


def no_gpu(kind: Kind, count: int, reason: str) -> ProviderError:
    """Return the error for a machine without the devices."""
    return ProviderError(
        f"{count} GPUs were asked for, and {kind} has no driver for any on this machine"
        f" ({reason}); install one for it, or leave gpu out"
    )


def are_too_high(reason: str) -> bool:
    """Whether a container was not started because its limits are above the engine's own."""
    return "rlimit" in reason.lower()


def no_higher_than(process: int | None) -> list[Ulimit]:
    """Return the limits that *process*, which starts containers, can pass on."""
    found = _hard_limits(process)
    return [Ulimit(name=name, soft=value, hard=value) for name, value in found.items()]


def _hard_limits(process: int | None) -> dict[str, int]:
    try:
        lines = (_PROC / str(process) / "limits").read_text().splitlines()
    except OSError:
        lines = []
    limits = {}
    for name, (title, number) in _INHERITED.items():
        hard = own.getrlimit(number)[1]
        for line in lines:
            if line.startswith(title):
                value = line.removeprefix(title).split()[1]
                hard = own.RLIM_INFINITY if value == "unlimited" else int(value)
        limits[name] = hard
    return limits
