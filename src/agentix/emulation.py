"""Programs for another kind of machine: which of them the kernel here gives to an emulator.

Linux knows emulators by the first bytes of the programs that are for them (binfmt_misc).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REGISTRY = Path("/proc/sys/fs/binfmt_misc")

_MACHINES = {"linux/amd64": 62, "linux/arm64": 183}
# 64 bits, little-endian, version 1, padding, an executable.
_HEAD = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0"


@dataclass(frozen=True, slots=True)
class Emulator:
    """A registered emulator: its program, and whether it also works where that cannot be seen.

    The kernel keeps the program open (flag F) for those that do, in whichever root file system.
    """

    program: str
    everywhere: bool


def emulator(platform: str, registry: Path = REGISTRY) -> Emulator | None:
    """Return what runs programs for *platform* here; None when nothing does.

    That is None for this machine's own, too, unless somebody has registered an emulator of it.
    """
    machine = _MACHINES.get(platform)
    if machine is None:
        return None
    head = _HEAD + machine.to_bytes(2, "little")
    try:
        if (registry / "status").read_text().strip() != "enabled":
            return None
        entries = sorted(registry.iterdir())
    except OSError:
        return None
    for path in entries:
        try:
            found = _parse(path.read_text(), head)
        except (OSError, ValueError):
            continue
        if found is not None:
            return found
    return None


def _parse(text: str, head: bytes) -> Emulator | None:
    """Read an entry of the registry; None unless it takes programs that begin with *head*."""
    state, *lines = text.splitlines() or [""]
    if state != "enabled":
        return None
    fields = dict(line.partition(" ")[::2] for line in lines)
    magic = bytes.fromhex(fields.get("magic", ""))
    mask = bytes.fromhex(fields.get("mask", "")) or b"\xff" * len(magic)
    offset = int(fields.get("offset", "0"))
    start = head[offset : offset + len(magic)]
    if not magic or len(start) < len(magic):
        return None
    if any((have ^ want) & care for have, want, care in zip(start, magic, mask, strict=True)):
        return None
    return Emulator(fields.get("interpreter", "?"), "F" in fields.get("flags:", ""))
