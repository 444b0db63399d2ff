"""Which bundles the kernel shows somewhere: what it has mounted, it knows until that is over.

A container goes on when the process that made it was killed, and with it what that held. Its mount
of the bundle is there as long as it runs, whoever's it is, and everybody may look.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_ENTRY = re.compile(rb"/sha256-([0-9a-f]{64})/nix\b")


def mounted() -> set[str]:
    """Return the digests of the bundles of which some process of this machine sees a mount.

    What runs in a virtual machine, or in a PID namespace that this one does not see, is not found.
    """
    found: set[bytes] = set()
    for process in _PROC.iterdir():
        if process.name.isdecimal():
            with suppress(OSError):  # it has ended
                found.update(_ENTRY.findall((process / "mountinfo").read_bytes()))
    return {digest.decode() for digest in found}
