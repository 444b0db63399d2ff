"""SIF files unpacked once each, for machines where Apptainer can mount none: it takes FUSE.

In the cache::

    <cache>/apptainer/<hash>/    the root file system that is in the file of that hash
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.errors import BundleError, ImageError
from agentix.provider.apptainer.diagnosis import complaint
from agentix.provider.apptainer.program import environment
from agentix.provider.kit import OutputTail, account, cache_root, hold, what_to_do

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.kit import Stop

_PATIENCE = 0.5


@dataclass(frozen=True, slots=True)
class Unpacker:
    """Has *program* unpack SIF files below *cache*, the user's if not given, until *stop*."""

    program: Path
    cache: Path | None
    stop: Stop

    def unpack(self, sif: Path) -> Path:
        """Return the root file system in *sif*. Blocks; ImageError when it cannot be had."""
        cache = (self.cache or cache_root()).absolute()
        try:
            status = sif.stat()
            said = f"{sif} {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
            key = hashlib.sha256(os.fsencode(said)).hexdigest()
            root = cache / "apptainer" / key
            if root.is_dir():
                return root
            with ExitStack() as stack:
                folder = self._alone(cache / "staging", f"sif-{key[:32]}", stack)
                if not root.is_dir():  # nobody else has unpacked it meanwhile
                    self._build(sif, folder)
                    root.parent.mkdir(parents=True, exist_ok=True)
                    (folder / "root").rename(root)
        except OSError as error:
            raise ImageError(
                f"image {sif} cannot be unpacked into {cache}: {error.strerror or error}; "
                f"{what_to_do(error)}"
            ) from error
        return root

    def _alone(self, staging: Path, key: str, stack: ExitStack) -> Path:
        while True:
            with suppress(BundleError):  # somebody else is at it
                return stack.enter_context(hold(staging, key, patience=_PATIENCE))
            self.stop.check()

    def _build(self, sif: Path, folder: Path) -> None:
        tail = OutputTail()
        with subprocess.Popen(
            [self.program, "build", "--sandbox", folder / "root", sif],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(folder),
            start_new_session=True,  # Ctrl-C is for the host program
            cwd="/",
        ) as process:
            try:
                self._read(process, tail)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode:
            said = tail.text()
            raise ImageError(f"image {sif} cannot be unpacked: {complaint(said) or account(said)}")

    def _read(self, process: subprocess.Popen[bytes], tail: OutputTail) -> None:
        assert process.stdout is not None  # noqa: S101
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.1)
            self.stop.check()
            if ready:
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    return
                tail.feed(data)
