"""What a sandbox may use at most, where the machine can see to that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from agentix.provider.base import SandboxConfig, SandboxResource
    from agentix.provider.kit import ProcessRef

_CGROUPS = Path("/sys/fs/cgroup")
_INSTEAD = "leave out resource, or use a provider that can, such as docker"


def limits_of(config: SandboxConfig) -> SandboxResource | None:
    """Return the limits that *config* asks for; ProviderError when they cannot be kept here."""
    asked = config.resource.requested() if config.resource else []
    if not asked:
        return None
    if "gpu" in asked:
        raise ProviderError(f"apptainer cannot give a number of gpu; {_INSTEAD}")
    if not (_CGROUPS / "cgroup.controllers").exists():
        raise ProviderError(
            f"apptainer can limit {' and '.join(asked)} only with cgroups of version 2, which this "
            f"machine has not; {_INSTEAD}"
        )
    return config.resource


def check_limits(limits: SandboxResource, first: ProcessRef) -> None:
    """Raise ProviderError unless *limits* are those of the process *first*."""
    try:
        group = Path(f"/proc/{first.pid}/cgroup").read_text().strip().removeprefix("0::")
    except OSError as error:
        raise ProviderError(f"cannot see whether the limits are kept: {error}") from error
    folder = _CGROUPS / group.lstrip("/")
    wrong = []
    if limits.memory is not None and not _at_most(folder / "memory.max", limits.memory):
        wrong.append("memory")
    if limits.cpu is not None and not _cpu_at_most(folder / "cpu.max", limits.cpu):
        wrong.append("cpu")
    if wrong:
        raise ProviderError(
            f"apptainer was told to limit {' and '.join(wrong)}, but does not here; {_INSTEAD}"
        )


def _at_most(file: Path, wanted: int) -> bool:
    try:
        return int(file.read_text()) <= wanted
    except (OSError, ValueError):
        return False


def _cpu_at_most(file: Path, wanted: float) -> bool:
    try:
        quota, period = file.read_text().split()
        return int(quota) / int(period) <= wanted * 1.01
    except (OSError, ValueError):
        return False
