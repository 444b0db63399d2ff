"""What one test of the suite works with, and the watch on what it leaves."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from agentix.testing.census import MARK
from agentix.testing.scripted import scripted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from agentix.provider.base import Sandbox, SandboxConfig, SandboxProvider
    from agentix.testing.census import Place
    from agentix.testing.subject import Subject

T = TypeVar("T")
SOON = 30  # seconds, on a busy machine, for what waits for no time of its own


@dataclass(frozen=True, slots=True)
class Case:
    """A test's view of the subject."""

    subject: Subject
    place: Place
    scratch: Path

    def provider(self) -> SandboxProvider:
        """Return a new provider."""
        return self.subject.provider()

    def config(self, *, env: dict[str, str] | None = None, **other: Any) -> SandboxConfig:
        """Return what a sandbox is made from; it has the mark in its environment."""
        return self.subject.config(env={MARK: self.place.mark, **(env or {})}, **other)

    def scripted(self, script: str, *, platform: str | None = None) -> SandboxConfig:
        """Return what makes a sandbox of a bundle that starts with *script*."""
        self.require(self.subject.takes_entries, "takes_entries: bundles cannot be made for it")
        bundle = scripted(self.subject.bundle, self.scratch, script, platform=platform)
        return self.config(bundle=bundle)

    def require(self, fact: object, what: str) -> None:
        """Skip the test unless the subject declares *fact*."""
        if not fact:
            pytest.skip(f"not declared: {what}")

    def isolates(self, what: str) -> None:
        """Skip the test unless the subject declares to isolate *what*."""
        self.require(what in self.subject.isolates, f"isolates {what!r}")

    def run(self, scenario: Coroutine[Any, Any, T], *, of_this_process: bool = True) -> T:
        """Run *scenario* on a loop of its own, in bounded time; nothing may be left of it."""

        def count() -> frozenset[str]:
            return self.place.census(self.subject, of_this_process=of_this_process)

        async def bounded() -> T:
            async with asyncio.timeout(self.subject.patience):
                value = await scenario
            others = asyncio.all_tasks() - {asyncio.current_task()}
            assert not others, "it leaves tasks behind on the loop"
            return value

        before = count()
        value = asyncio.run(bounded())
        left = self.place.left(before, count, self.subject.settles)
        assert not left, "it leaves something behind:\n" + "\n".join(left)
        return value


@dataclass(frozen=True, slots=True)
class Inside:
    """A sandbox that tests share who only look around in it."""

    sandbox: Sandbox
    runner: asyncio.Runner
    patience: float

    def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Call *fn* in the sandbox."""

        async def bounded() -> T:
            async with asyncio.timeout(self.patience):
                value: T = await self.sandbox.remote(fn, *args)
            return value

        return self.runner.run(bounded())


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make an ``async def`` test of a suite an ordinary one, run by its ``case``.

    So the suite needs no plugin for asynchronous tests, and gets along with any.
    """
    assert "case" in inspect.signature(test).parameters

    @functools.wraps(test)
    def run(self: object, **arguments: Any) -> None:
        arguments["case"].run(test(self, **arguments))

    return run


async def refused(provider: SandboxProvider, config: SandboxConfig, *kinds: type[Exception]) -> str:
    """Return the one line, an error of one of *kinds*, with which *provider* makes no sandbox."""
    begun = time.monotonic()
    try:
        sandbox = await provider.create(config)
    except kinds as error:
        message = str(error)
    else:
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
        pytest.fail("it makes a sandbox of what it has to refuse")
    assert time.monotonic() - begun < SOON, "it takes long to refuse"
    assert message, "it does not say why"
    assert "\n" not in message, "it says why on more than one line"
    return message
