"""Emptying the folder that a sandbox shares with the host, of what only the engine may remove.

A sandbox's users are not the host's: what one of them has made in a folder of its own, no ordinary
user on the host can remove. In a container one can, who is root there.
"""

from __future__ import annotations

import os
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from docker.types import Mount

from agentix.provider.docker import limits
from agentix.provider.kit import MOUNT, remove

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.docker.engine import Engine
    from agentix.provider.docker.facts import State

_WITHIN = 30.0
_PAUSE = 0.05
# By the bundle's Python, and by the same rules as on the host: however deep, and without a link.
_SWEEP = f"""
import pathlib, runpy, sysconfig
removal = runpy.run_path(sysconfig.get_path("purelib") + "/agentix/bundle/removal.py")
for entry in pathlib.Path({MOUNT!r}).iterdir():
    removal["erase"](entry)
"""


def empty(engine: Engine, name: str, folder: Path) -> None:
    """Empty *folder*, which the container *name* has at ``/nix/run`` and is no longer using.

    Raises ProviderError when the engine cannot help; what it did not remove is then still there.
    """
    for entry in folder.iterdir() if folder.is_dir() else ():
        remove(entry)
    if os.getuid() == 0 or not folder.is_dir() or not any(folder.iterdir()):
        return
    state = engine.state(name)
    if state is None:
        return
    helper = f"{name}-sweep"
    try:
        engine.create(helper, _settings(state), _host(engine, state))
        engine.start(helper)
        end = time.monotonic() + _WITHIN
        while (seen := engine.state(helper)) and seen.running and time.monotonic() < end:
            time.sleep(_PAUSE)
    finally:
        engine.remove(helper)


def _settings(state: State) -> dict[str, Any]:
    python = PurePosixPath(state.program).with_name("environment") / "bin/python"
    return {
        "image": state.image,
        "entrypoint": [str(python)],
        "command": ["-I", "-c", _SWEEP],
        "user": "0:0",
        "working_dir": "/",
        "labels": state.labels,
        "healthcheck": {"test": ["NONE"]},
        "detach": True,
    }


def _host(engine: Engine, state: State) -> dict[str, Any]:
    return {
        "mounts": [
            Mount(target, source, type="bind", read_only=not writable)
            for target, source, writable in state.mounts
        ],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": ["DAC_OVERRIDE", "FOWNER"],
        "security_opt": ["no-new-privileges:true"],
        "read_only": True,
        # So that it is gone also when this process is killed meanwhile.
        "auto_remove": True,
        **(
            {"ulimits": limits.no_higher_than(engine.peer)} if engine.where.kind == "podman" else {}
        ),
    }
