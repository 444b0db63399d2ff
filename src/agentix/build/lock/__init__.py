"""From a project to its lock: everything that a bundle is made of, by name and hash."""

from __future__ import annotations

from agentix.build.lock.current import (
    State,
    WrittenLock,
    check_lock,
    current_lock,
    look,
    write_lock,
)
from agentix.build.lock.file import Lock, LockedProject, Target, load, loads

__all__ = [
    "Lock",
    "LockedProject",
    "State",
    "Target",
    "WrittenLock",
    "check_lock",
    "current_lock",
    "load",
    "loads",
    "look",
    "write_lock",
]
