"""What an engine tells about itself, an image and a container, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentix.provider.docker.problems import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDED = {"exited", "stopped", "dead", "removing"}


@dataclass(frozen=True, slots=True)
class Ability:
    """What the engine runs, and which limits it can have the kernel keep."""

    platform: str
    cpus: int
    cpu: bool
    memory: bool
    pids: bool
    why_not: str

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Ability:
        """Read what the engine says of itself."""
        machine = {"x86_64": "amd64", "aarch64": "arm64"}
        architecture = str(info["Architecture"])
        # Podman names what the machine could do, not what an ordinary user may.
        old = bool(info.get("Rootless")) and str(info.get("CgroupVersion")) == "1"
        return cls(
            platform=f"{info['OSType']}/{machine.get(architecture, architecture)}",
            cpus=int(info["NCPU"]),
            cpu=bool(info["CpuCfsQuota"]) and not old,
            memory=bool(info["MemoryLimit"]) and not old,
            pids=bool(info["PidsLimit"]) and not old,
            why_not="it runs as an ordinary user on cgroup v1, which only root may use"
            if old
            else "the kernel's cgroups do not offer that here",
        )


@dataclass(frozen=True, slots=True)
class Image:
    """What the engine knows of an image; ``platform`` is empty when the image does not say."""

    id: str
    platform: str
    environment: tuple[str, ...]
    command: tuple[str, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Image:
        """Read what the engine says of an image."""
        config = found.get("Config") or {}
        platform = f"{found['Os']}/{found['Architecture']}" if found.get("Architecture") else ""
        command = (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))
        return cls(found["Id"], platform, tuple(config.get("Env") or ()), command)


@dataclass(frozen=True, slots=True)
class State:
    """How a container is doing: ``status`` is the engine's word, the rest tells how it ended."""

    id: str
    status: str
    exit_code: int
    out_of_memory: bool
    problem: str
    labels: Mapping[str, str]
    image: str
    program: str
    mounts: tuple[tuple[str, str, bool], ...]
    """Of folders of the host: where, from where, and whether they can be written to."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> State:
        """Read what the engine says of a container."""
        state = found["State"]
        return cls(
            id=found["Id"],
            status=state["Status"],
            exit_code=state["ExitCode"],
            out_of_memory=state["OOMKilled"],
            problem=one_line(state["Error"]),
            labels=found["Config"]["Labels"] or {},
            image=found["Image"],
            program=found["Path"],
            mounts=tuple(
                (mount["Destination"], mount["Source"], mount["RW"])
                for mount in found["Mounts"]
                if mount["Type"] == "bind"
            ),
        )

    @property
    def running(self) -> bool:
        """Whether its process is there, or about to be."""
        return self.status not in ENDED

    @property
    def end(self) -> str:
        """How it ended, in a few words."""
        words = [f"exit code {self.exit_code}"]
        if self.out_of_memory:
            words.append("out of memory")
        return ", ".join([*words, self.problem] if self.problem else words)
