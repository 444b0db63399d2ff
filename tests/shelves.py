"""A process with sessions, on a provider whose sandboxes are folders; it is told what to do."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A provider whose sandboxes are folders. Every step says that it begins; what is called slow takes
# until a file named go appears.
HOST = """
    import asyncio, contextlib, multiprocessing, os, signal, sys, threading, time
    from pathlib import Path
    from agentix.errors import ProviderError
    from agentix.provider.base import Sandbox, SandboxConfig, SandboxInfo, SandboxProvider
    from agentix.provider.kit import carry_out, undone_on_error

    SHELF = Path(sys.argv[1])
    CONFIG = SandboxConfig(image="any", bundle="any")

    def say(word):
        print(word, flush=True)

    async def go():
        while not (SHELF.parent / "go").exists():
            await asyncio.sleep(0.01)

    class Shelf(SandboxProvider):
        def __init__(self, slow="", broken=False):
            self.slow, self.broken = slow, broken

        async def create(self, config):
            sandbox_id = f"s-{os.urandom(4).hex()}"
            async def undo():
                await self._remove(sandbox_id)
            async with undone_on_error(undo, what="undoing", within=20):
                (SHELF / sandbox_id).mkdir()
                if self.slow == "create":
                    say("creating")
                    await asyncio.sleep(600)
            return Sandbox(SandboxInfo(sandbox_id, "http://127.0.0.1:9", "running"))

        async def delete(self, sandbox_id):
            await carry_out(self._remove(sandbox_id), what="removing", within=20)

        async def _remove(self, sandbox_id):
            if self.slow == "delete":
                say("deleting")
                await go()
            if self.broken:
                raise ProviderError("it does not go away")
            (SHELF / sandbox_id).rmdir()

        async def get(self, sandbox_id):
            raise NotImplementedError

    async def use(provider=None, word="inside"):
        async with (provider or Shelf()).session(CONFIG):
            say(word)
            await asyncio.sleep(600)

"""
ENDED = -signal.SIGTERM


class Host:
    """A process with sessions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self, *words: str) -> None:
        """Wait until it has said these words, in any order."""
        assert self.process.stdout is not None
        said = sorted(self.process.stdout.readline().strip() for _ in words)
        assert said == sorted(words)

    def end(self, signum: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to end; return its status and what it wrote."""
        self.process.send_signal(signum)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@contextlib.contextmanager
def host(shelf: Path, program: str) -> Iterator[Host]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST) + textwrap.dedent(program), str(shelf)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Host(process)
    finally:
        process.kill()
        process.communicate()


def left(shelf: Path) -> int:
    """Count the sandboxes that are left."""
    return len(list(shelf.iterdir()))
