"""Bundles and images for another kind of machine than the engine's: an emulator may run them.

Whether there is one is known only by trying: it is the kernel's, which may be another machine's.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from agentix.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.provider.docker.address import Kind

# What the kernel says of a program that is not for it; and of one whose emulator is not to be seen
# from where the program is, as it is not without the flag F.
_SIGNS = ("exec format error", "no such file or directory")
_MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


@contextlib.contextmanager
def explained(kind: Kind, bundle: str, built_for: str, engine: str) -> Iterator[None]:
    """Name both platforms, and the remedy, where the body fails for want of an emulator."""
    try:
        yield
    except ProviderError as error:
        if engine == built_for or not any(sign in str(error).lower() for sign in _SIGNS):
            raise
        emulator = f"qemu-{_MACHINES.get(built_for, built_for)}"
        raise ProviderError(
            f"bundle {bundle} and its image are for {built_for}, and {kind} runs {engine}, where"
            f" nothing emulates the other: build the bundle with --platform {engine}, or register"
            f" {emulator} with binfmt_misc and the flag F (Debian: qemu-user-static)"
        ) from error
