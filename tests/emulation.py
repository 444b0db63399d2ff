"""An emulator of another kind of machine, made known to the kernel while a test lasts.

To all of the machine, where engines have to know it; or, with a Linux that can (6.7), to one
program and what that starts, which takes no root and disturbs nobody.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLACE = Path("/proc/sys/fs/binfmt_misc")
# As Debian's qemu-user-static registers it where systemd or binfmt-support runs.
ENTRY = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")


class NoEmulatorError(RuntimeError):
    """There can be none here; the message is the reason to skip."""


def registered() -> bool:
    """Whether the kernel runs programs for aarch64 by an emulator, as far as can be seen."""
    return any(PLACE.glob("*aarch64*"))


@contextlib.contextmanager
def emulator() -> Iterator[None]:
    """Have the kernel run programs for aarch64; raise NoEmulatorError where that cannot be."""
    with contextlib.ExitStack() as stack:
        if not (PLACE / "status").exists():
            command = ["mount", "-t", "binfmt_misc", "binfmt_misc", str(PLACE)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=20)
            if result.returncode:
                raise NoEmulatorError(f"emulators cannot be registered: {result.stderr.strip()}")
            stack.callback(subprocess.run, ["umount", str(PLACE)], check=True, timeout=20)
        if not registered():
            if not ENTRY.exists():
                raise NoEmulatorError("qemu-user-static is not installed (tools/setup.sh tests)")
            if not os.access(PLACE / "register", os.W_OK):
                raise NoEmulatorError("only root can register an emulator")
            # Under a name of ours: F has the kernel keep the file open, wherever programs are.
            (PLACE / "register").write_text(
                ENTRY.read_text().strip().replace(":qemu-aarch64:", ":agentix-aarch64:", 1)
            )
            stack.callback((PLACE / "agentix-aarch64").write_text, "-1")
        yield


# Root to the kernel is whoever has made a user namespace; and each of these has its own registry.
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
_MOUNT = f'mount -t binfmt_misc binfmt_misc {PLACE} && exec "$@"'
_REGISTER = f'printf %s "$EMULATOR" >{PLACE}/register && exec "$@"'


def run_emulated(*command: str, env: Mapping[str, str] | None = None, emulated: bool = True) -> str:
    """Run *command* where programs for aarch64 run by an emulator, or surely by none.

    NoEmulatorError where that cannot be.
    """
    if emulated and not ENTRY.exists():
        raise NoEmulatorError("qemu-user-static is not installed (tools/setup.sh tests)")
    tried = subprocess.run(
        [*_NAMESPACE, _MOUNT, "sh", "true"], capture_output=True, text=True, timeout=20
    )
    if tried.returncode != 0:
        raise NoEmulatorError(f"no registry of one's own: {tried.stderr.strip()}")
    script = ["sh", "-c", _REGISTER, "sh", *command] if emulated else [*command]
    done = subprocess.run(
        [*_NAMESPACE, _MOUNT, "sh", *script],
        env=os.environ | (env or {}) | {"EMULATOR": ENTRY.read_text().strip() if emulated else ""},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
