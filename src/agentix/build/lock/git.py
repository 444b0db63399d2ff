"""The source tree of a Git commit, as a folder: by the user's own git, credentials and all."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.build.command import Command
from agentix.errors import LockError
from agentix.text import plain

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT = 1800.0  # seconds for each git command; histories are large, networks slow
# What would make the same commit another tree on another machine.
_SAME = ("core.autocrlf=false", "core.eol=lf", "core.symlinks=true", "advice.detachedHead=false")


async def check_out(address: str, commit: str, folder: Path) -> None:
    """Make *folder* the tree of *commit* in the repository at *address*, submodules included.

    Nothing but the tree stays there. LockError tells why it cannot be had; then no folder is left.
    """
    repository = _Repository(address, commit, folder)
    try:
        await repository.fetch()
        await asyncio.to_thread(repository.forget_history)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise


@dataclass(frozen=True, slots=True)
class _Repository:
    address: str
    commit: str
    folder: Path

    async def fetch(self) -> None:
        await asyncio.to_thread(self.folder.mkdir, parents=True)
        await self._git("init", "--quiet")
        await self._git("remote", "add", "origin", self.address)  # submodules may be relative to it
        depth = ("--depth", "1") if "://" in self.address else ()
        fetch = ("fetch", "--quiet", "--no-tags", "origin")
        try:
            await self._git(*fetch, *depth, self.commit)
        except LockError:  # not every server gives a commit by its name
            await self._git(
                *fetch, "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"
            )
        await self._git("checkout", "--quiet", "--detach", self.commit)
        if (self.folder / ".gitmodules").is_file():
            await self._git("submodule", "--quiet", "update", "--init", "--recursive")

    def forget_history(self) -> None:
        for found in [*self.folder.rglob(".git")]:
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found)
            else:
                found.unlink()

    async def _git(self, *words: str) -> None:
        clean = {key: value for key, value in os.environ.items() if not _is_about_here(key)}
        settings = [word for setting in _SAME for word in ("-c", setting)]
        try:
            ended = await Command(
                ["git", *settings, *words],
                raises=LockError,
                timeout=_TIMEOUT,
                cwd=self.folder,
                environment=clean
                | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"},
            ).run_aside()
        except FileNotFoundError as error:
            raise LockError(
                f"cannot get commit {self.commit}: git is not installed; install it"
            ) from error
        if ended.status != 0:
            reason = plain(" ".join(ended.errors.split())).replace(self.address, "it")
            raise LockError(
                f"cannot get commit {self.commit} with git: {reason}; check that `git fetch` works "
                "for the address that the project gives"
            )


def _is_about_here(variable: str) -> bool:
    """Say whether a variable tells git about some repository of this machine (as in a hook)."""
    return variable in {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
    }
