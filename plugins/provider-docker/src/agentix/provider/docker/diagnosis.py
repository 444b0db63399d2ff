"""How an engine is: whether it answers, which one it is, and what it may do."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from agentix.errors import ProviderError
from agentix.provider.base import Finding
from agentix.provider.docker.address import locate
from agentix.provider.docker.engine import Engine
from agentix.provider.docker.facts import Ability
from agentix.provider.kit import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentix.provider.docker.address import Kind

_PATIENCE = 5  # seconds


def diagnose(kind: Kind) -> Iterable[Finding]:
    """Ask the engine of this *kind* what it is; ProviderError when it does not say."""
    where = locate(kind)
    if where.ours:  # a service of Podman's that sandboxes start, which nobody else need do
        yield _finding(_podman(), "Podman")
        return
    with Engine(where, timeout=_PATIENCE) as engine:
        here = f"at {plain(where.url)}" if where.remote else "on this machine"
        yield _finding(engine.facts(), f"{kind.title()} {here}")


def _podman() -> Mapping[str, Any]:
    """Return what Podman's program says of itself, in the words of an engine."""
    program = shutil.which("podman")
    if program is None:
        raise ProviderError("Podman is not installed; install it, or set CONTAINER_HOST")
    words = [program, "info", "--format", "json"]
    try:
        ended = subprocess.run(words, capture_output=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"podman info took more than {_PATIENCE} s; try it yourself") from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise ProviderError(f"Podman does not run here: {plain(said[-1])}")
    try:
        found = json.loads(ended.stdout)
        host = found["host"]
        controllers = host["cgroupControllers"] or ()
        return {
            "ServerVersion": found["version"]["Version"],
            "Architecture": host["arch"],
            "OSType": host["os"],
            "NCPU": host["cpus"],
            "CgroupVersion": host["cgroupVersion"].removeprefix("v"),
            "Rootless": host["security"]["rootless"],
            "CpuCfsQuota": "cpu" in controllers,
            "MemoryLimit": "memory" in controllers,
            "PidsLimit": "pids" in controllers,
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProviderError("podman info says what cannot be understood") from error


def _finding(info: Mapping[str, Any], engine: str) -> Finding:
    try:
        ability = Ability.of(info)
        version = str(info["ServerVersion"])
    except (KeyError, ValueError, TypeError) as error:
        raise ProviderError(f"{engine} says of itself what cannot be understood") from error
    rootless = info.get("Rootless") or any(
        "rootless" in str(option) for option in info.get("SecurityOptions") or ()
    )
    text = (
        f"{engine}, {version}, {ability.platform}, {'rootless' if rootless else 'as root'}, "
        f"cgroup v{info.get('CgroupVersion', '?')}"
    )
    limits = {"cpu": ability.cpu, "memory": ability.memory, "processes": ability.pids}
    if missing := [name for name, there in limits.items() if not there]:
        advice = "leave out resource, or enable cgroup v2 with these controllers"
        return Finding("note", f"{text}, cannot limit {' and '.join(missing)}", advice)
    return Finding("ok", text)
