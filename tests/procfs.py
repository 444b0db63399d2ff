"""What the kernel says about the processes of this machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processes(needle: str) -> list[str]:
    """Return the command lines that mention *needle*."""
    return _holding("cmdline", needle)


def mounters(needle: str) -> list[str]:
    """Return the command lines of those that see something mounted whose name has *needle* in it.

    This very process is among them when it does.
    """
    return _holding("mountinfo", needle)


def _holding(name: str, needle: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if needle.encode() in (folder / name).read_bytes():
                found.append((folder / "cmdline").read_text(errors="replace"))
    return found


def children() -> set[int]:
    """Return the processes that any thread of this one has started and that are there still."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # that thread has ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


def runs(pid: int) -> bool:
    """Say whether the process is there and has not ended, collected or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
