"""A provider without any isolation that keeps all other promises, in a page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from agentix import platforms
from agentix.client import RuntimeClient
from agentix.errors import ImageError, ProviderError, RuntimeUnreachable, SandboxNotFound
from agentix.provider.base import Sandbox, SandboxConfig, SandboxId, SandboxInfo, SandboxProvider
from agentix.provider.kit import BundleCache, account, carry_out, undone_on_error

if TYPE_CHECKING:
    from collections.abc import Mapping

IMAGE = "this machine"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "TASK": "plain"}
OWN = "PLAIN_SANDBOX"
_ID = re.compile(r"plain-[0-9a-z]+")


class PlainProvider(SandboxProvider):
    """Runs bundles as processes of this machine; every process knows its sandbox's name."""

    started: ClassVar[dict[SandboxId, subprocess.Popen[bytes]]] = {}

    def __init__(self, start_timeout: float = 60, stop_timeout: float = 2) -> None:
        self.start_timeout = start_timeout
        self.stop_timeout = stop_timeout

    async def create(self, config: SandboxConfig) -> Sandbox:
        self.warn()
        self.refuse(config)
        bundle = await asyncio.to_thread(BundleCache().open, config.bundle)
        bundle.check_protocol()
        bundle.check_platform(config.platform or platforms.current().name)
        if bundle.manifest.platform != platforms.current().name:
            raise ProviderError(
                f"the bundle is for {bundle.manifest.platform}, "
                f"this machine is {platforms.current().name}"
            )
        if config.image != IMAGE:
            raise ImageError(f"{config.image!r} is not {IMAGE!r}, the only image there is")
        sandbox_id = self.new_id()
        folder = self.folder(sandbox_id)
        folder.mkdir(parents=True)
        program = bundle.nix / "store" / bundle.manifest.root / "runtime/bootstrap.sh"
        async with undone_on_error(
            lambda: self.end(sandbox_id), what=f"removing {sandbox_id}", within=30
        ):
            token = secrets.token_urlsafe()
            (folder / "token").write_text(token)
            (folder / "record").write_text(json.dumps({"token": token}))
            self.started[sandbox_id] = self.start(program, folder, config)
            await self.until_ready(sandbox_id, token)
        return self.handle(sandbox_id, token)

    async def delete(self, sandbox_id: SandboxId) -> None:
        if _ID.fullmatch(sandbox_id):
            await carry_out(self.end(sandbox_id), what=f"deleting {sandbox_id}", within=30)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        if not _ID.fullmatch(sandbox_id) or not self.processes(sandbox_id):
            raise SandboxNotFound(f"there is no sandbox {sandbox_id!r}")
        record = json.loads((self.folder(sandbox_id) / "record").read_text())
        return self.handle(sandbox_id, record["token"])

    def warn(self) -> None:
        warnings.warn("this provider isolates nothing", UserWarning, stacklevel=3)

    def refuse(self, config: SandboxConfig) -> None:
        if limits := config.resource.requested() if config.resource else []:
            raise ProviderError(f"it cannot limit {', '.join(limits)}")

    def new_id(self) -> SandboxId:
        return SandboxId(f"plain-{secrets.token_hex(6)}")

    def folder(self, sandbox_id: SandboxId) -> Path:
        return Path(tempfile.gettempdir(), "agentix-plain", sandbox_id)

    def environment(self, config: SandboxConfig) -> Mapping[str, str]:
        return ENVIRONMENT | (config.env or {})

    def start(self, program: Path, folder: Path, config: SandboxConfig) -> subprocess.Popen[bytes]:
        with (folder / "output").open("wb") as output:
            return subprocess.Popen(
                [
                    *(str(program), "--socket", str(folder / "s")),
                    *("--token-file", str(folder / "token")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment(config), OWN: folder.name},
                cwd="/",
                umask=0o022,
                start_new_session=True,
                # What this process ignores would be ignored there, and forever.
                preexec_fn=lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL),
            )

    async def until_ready(self, sandbox_id: SandboxId, token: str) -> None:
        folder = self.folder(sandbox_id)
        try:
            async with asyncio.timeout(self.start_timeout):
                while self.started[sandbox_id].poll() is None:
                    with suppress(RuntimeUnreachable):
                        async with RuntimeClient(self.url(sandbox_id), token=token) as client:
                            await client.health()
                            return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            reason = f"it did not become ready within {self.start_timeout:g} s"
        else:
            reason = "it ended at once"
        raise ProviderError(f"{reason}; {account((folder / 'output').read_text())}")

    def url(self, sandbox_id: SandboxId) -> str:
        return f"http+unix://{quote(str(self.folder(sandbox_id) / 's'), safe='')}"

    def handle(self, sandbox_id: SandboxId, token: str) -> Sandbox:
        return Sandbox(SandboxInfo(sandbox_id, self.url(sandbox_id), "running"), token=token)

    async def end(self, sandbox_id: SandboxId) -> None:
        for number, patience in ((signal.SIGTERM, self.stop_timeout), (signal.SIGKILL, 10.0)):
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while found := self.processes(sandbox_id):
                        for pid in found:
                            with suppress(ProcessLookupError):
                                os.kill(pid, number)
                        await asyncio.sleep(0.02)
        if process := self.started.pop(sandbox_id, None):
            process.wait()
        shutil.rmtree(self.folder(sandbox_id), ignore_errors=True)

    def processes(self, sandbox_id: SandboxId) -> list[int]:
        """Return the processes of a sandbox that have not ended."""
        mark = f"{OWN}={sandbox_id}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


def impatient(seconds: float, kind: Any = PlainProvider) -> PlainProvider:
    provider: PlainProvider = kind(start_timeout=seconds)
    return provider
