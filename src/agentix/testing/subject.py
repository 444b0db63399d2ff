"""What is tested: a provider, what it is tried with, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from agentix.provider.base import SandboxConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from agentix.provider.base import SandboxProvider

Isolated = Literal[
    "bundle",
    "capabilities",
    "devices",
    "files",
    "ipc",
    "kernel settings",
    "network",
    "privileges",
    "processes",
]
Limit = Literal["cpu", "gpu", "memory"]
EVERYTHING: frozenset[Isolated] = frozenset(get_args(Isolated))


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One provider as the suite meets it; what is left out makes tests skip, and say so.

    The first three are needed; all others state facts, and each fact is tested.
    """

    provider: Callable[[], SandboxProvider]
    """Makes a provider; called often, and also in another process (by cloudpickle)."""
    image: str
    """What ``SandboxConfig.image`` takes."""
    bundle: str | Path
    """What ``SandboxConfig.bundle`` takes; any bundle will do."""

    environment: Mapping[str, str] | None = None
    """The variables that the image sets, all of them."""
    adds: frozenset[str] = frozenset({"HOME", "HOSTNAME"})
    """The names of variables that the backend itself adds."""
    user: tuple[int, int] | None = None
    """The numbers of user and group that the image's programs run as."""
    folder: str | None = None
    """The folder that they run in."""
    environment_program: tuple[str, ...] | None = None
    """A program of the image that prints its environment, as ``env`` does."""

    isolates: frozenset[Isolated] = EVERYTHING
    """What a task can neither see nor change of the host; when nothing, the provider says so."""
    keeps_environment: bool = True
    """Whether the variables of the host program stay out of the sandbox."""
    limits: frozenset[Limit] = frozenset()
    """Which parts of ``SandboxResource`` are enforced; any other must be refused."""
    limited_processes: Callable[[int], SandboxProvider] | None = None
    """Makes a provider whose sandboxes may have that many processes."""
    without_network: Callable[[], SandboxProvider] | None = None
    """Makes a provider whose sandboxes have no network."""
    impatient: Callable[[float], SandboxProvider] | None = None
    """Makes a provider that waits so many seconds for a sandbox to answer."""

    socket_folder: str | None = "/nix/run"
    """Where a task finds the folder with the runtime's socket, if it has one."""
    missing_image: str | None = "127.0.0.1:9/agentix/no-such-image:1"
    """An image that cannot be had."""
    is_local: bool = True
    """Whether sandboxes are processes of this machine, so that it shows what they leave."""
    takes_entries: bool = True
    """Whether the folder of a deployed bundle will do as ``bundle``."""
    crosses_processes: bool = True
    """Whether another process of the same user can ``get`` and ``delete`` a sandbox."""
    lists: bool = True
    """Whether ``list`` shows its sandboxes."""
    many: int = 30
    """How many sandboxes there are at once at most."""
    patience: float = 120
    """How many seconds one test may take."""
    settles: float = 15
    """How many seconds what ends by itself, such as a process that was killed, may still be there.
    """
    count: Callable[[], Collection[str]] = field(default=tuple)
    """Names whatever else the provider makes and this machine does not show, such as containers."""

    def config(self, **other: Any) -> SandboxConfig:
        """Return what a sandbox is made from, with *other* fields on top."""
        return SandboxConfig(**{"image": self.image, "bundle": self.bundle, **other})
