"""The provider: a process of this machine, owned by the process that created it."""

from __future__ import annotations

import logging
import os
import pwd
from functools import partial
from typing import TYPE_CHECKING

from agentix.errors import ImageError, ProviderError
from agentix.provider.base import Finding
from agentix.provider.kit import (
    HostedProcess,
    LocalProvider,
    OutputTail,
    SandboxProcesses,
    account,
    quoted,
    remove_leftovers,
    stoppable,
    until_ready,
)
from agentix.provider.uv.config import UvProviderConfig
from agentix.provider.uv.environments import Environments
from agentix.provider.uv.program import Uv, find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from agentix.provider.base import Sandbox, SandboxConfig
    from agentix.provider.kit import CachedBundle, RuntimeFolder, Stop

HOST = "host"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What the loader would act on before the runtime does; it gives them back to the task.
_ASIDE = ("LD_", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "LC_CTYPE")
_log = logging.getLogger("agentix.provider.uv")


class UvProvider(LocalProvider):
    """Runs tasks in virtual environments on this machine, without any isolation.

    ``image`` is ``"host"``. A sandbox ends with the process that created it, at the latest;
    meanwhile other processes of the same user can ``get`` and ``delete`` it.
    """

    name = "uv"

    def __init__(self, config: UvProviderConfig | None = None) -> None:
        self.config = config or UvProviderConfig()

    def diagnose(self) -> Iterable[Finding]:
        """Say which uv there is, and what it does not do."""
        program = find_program(self.config.program)
        yield Finding("note", f"{program}; it isolates nothing: tasks see and change this machine")

    async def create(self, config: SandboxConfig) -> Sandbox:
        """Return a new sandbox that answers, and warn that it isolates nothing.

        Raises ImageError, BundleError, or ProviderError when uv cannot make the environment, or
        this provider cannot do what *config* asks for.
        """
        self._refuse(config)
        remove_leftovers(self.name)
        bundle, environment = await stoppable(partial(self._find, config), name="agentix-uv")
        async with self.making(config.image, bundle) as making:
            folder = making.folder
            _warn(folder, bundle)
            tail = OutputTail()
            work = folder.path / "work"
            try:
                work.mkdir(mode=0o700)
            except OSError as error:
                raise ProviderError(
                    f"cannot make the folder of a sandbox, {work}: {error}"
                ) from error
            try:
                making.process = process = HostedProcess.start(
                    _command(environment, folder),
                    tail=tail,
                    env=_variables(environment, config.env),
                    cwd=work,
                )
            except OSError as error:
                raise ProviderError(
                    f"the Python of {environment} cannot be started: {error}"
                ) from error
            await until_ready(
                folder,
                death=process.ended,
                account=lambda: account(tail.text()),
                within=self.config.start_timeout,
            )
            return making.finish(SandboxProcesses(process.itself, process.itself))

    @property
    def grace(self) -> float:
        """How many seconds a sandbox has to end by itself when it is deleted."""
        return self.config.stop_timeout

    def _refuse(self, config: SandboxConfig) -> None:
        if config.image != HOST:
            raise ImageError(
                f"uv cannot use image {quoted(config.image)}, as it runs on this machine itself; "
                f"give image={HOST!r}, or use a provider that has images, such as bubblewrap"
            )
        self.refuse_limits(config)

    def _find(self, config: SandboxConfig, stop: Stop) -> tuple[CachedBundle, Path]:
        """Find the bundle, and make its environment."""
        uv = Uv(find_program(self.config.program), stop)
        bundle = self.open_bundle(config)
        environments = Environments(uv, self.config.cache, self.config.python)
        return bundle, environments.open(bundle)


def _warn(folder: RuntimeFolder, bundle: CachedBundle) -> None:
    tools = ", ".join(tool.package for tool in bundle.manifest.tools)
    _log.warning(
        "sandbox %s isolates nothing: the provider uv runs its code as this user on this machine, "
        "with all that this user may do%s",
        folder.sandbox_id,
        f"; the bundle's system packages ({tools}) are not in it" if tools else "",
    )


def _command(environment: Path, folder: RuntimeFolder) -> list[str]:
    """Return what every bundle's bootstrap.sh does, for the host's own paths."""
    return [
        str(environment / "bin/python"),
        *("-I", "-m", "agentix_runtime"),
        *("--socket", str(folder.socket), "--token-file", str(folder.mount / "token")),
        *("--name", folder.sandbox_id, "--logs", str(folder.path / "logs"), "--end-with-stdin"),
    ]


def _variables(environment: Path, added: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a task: what a login of this user has at least, and *added*."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = "/"
    found = {"PATH": PATH, "HOME": home} | dict(added or {})
    found["PATH"] = f"{found['PATH']}:{environment / 'bin'}"
    return {
        f"AGENTIX_ASIDE_{name}" if name.startswith(_ASIDE) else name: value
        for name, value in found.items()
    }
