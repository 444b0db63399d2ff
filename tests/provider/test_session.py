"""A session owns its sandbox: whatever happens in it, the sandbox is deleted, once."""

from __future__ import annotations

import asyncio

import pytest

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.base import (
    Sandbox,
    SandboxConfig,
    SandboxId,
    SandboxInfo,
    SandboxProvider,
)

CONFIG = SandboxConfig(image="any", bundle="any")


class Shelf(SandboxProvider):
    """Sandboxes that are only names; ``broken`` ones stay, ``slow`` ones go when released."""

    def __init__(self, *, broken: bool = False, slow: bool = False) -> None:
        self.alive: list[SandboxId] = []
        self.deleted: list[SandboxId] = []
        self.broken = broken
        self.deleting = asyncio.Event()
        self.release = asyncio.Event()
        if not slow:
            self.release.set()

    async def create(self, config: SandboxConfig) -> Sandbox:
        info = SandboxInfo(SandboxId(f"s-{len(self.alive)}"), "http://127.0.0.1:9", "running")
        self.alive.append(info.sandbox_id)
        return Sandbox(info)

    async def delete(self, sandbox_id: SandboxId) -> None:
        self.deleting.set()
        await self.release.wait()
        if self.broken:
            raise ProviderError("it does not go away")
        self.deleted.append(sandbox_id)

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        raise SandboxNotFound(sandbox_id)


async def test_it_is_deleted_after_success() -> None:
    shelf = Shelf()
    async with shelf.session(CONFIG, timeout=7) as sandbox:
        assert sandbox.sandbox_id == "s-0"
        assert sandbox.status == "running"
        assert shelf.deleted == []
    assert shelf.deleted == ["s-0"]
    with pytest.raises(ProviderError, match="closed"):
        await sandbox.health()


async def test_it_is_deleted_after_an_error_which_is_raised() -> None:
    shelf = Shelf()
    with pytest.raises(ZeroDivisionError):
        async with shelf.session(CONFIG):
            raise ZeroDivisionError
    assert shelf.deleted == ["s-0"]


async def test_an_error_in_the_session_is_not_hidden_by_a_failed_deletion() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        async with Shelf(broken=True).session(CONFIG):
            raise ZeroDivisionError
    assert caught.value.__notes__ == ["then it does not go away"]


async def test_a_failed_deletion_after_success_is_an_error() -> None:
    with pytest.raises(ProviderError, match="does not go away"):
        async with Shelf(broken=True).session(CONFIG):
            pass


async def test_it_is_deleted_when_cancelled_and_again_while_being_deleted() -> None:
    shelf = Shelf(slow=True)
    inside = asyncio.Event()

    async def use() -> None:
        async with shelf.session(CONFIG):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    await inside.wait()
    task.cancel()
    await shelf.deleting.wait()
    task.cancel()
    await asyncio.sleep(0)
    shelf.release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shelf.deleted == ["s-0"]


async def test_a_deletion_has_as_long_as_the_provider_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentix.provider.base._CLOSE_BOUND", 0.03)
    monkeypatch.setattr(Shelf, "delete_bound", 0.02)
    with pytest.raises(ProviderError, match=r"deleting sandbox s-0 did not end within 0\.05 s"):
        async with Shelf(slow=True).session(CONFIG):
            pass


async def test_a_timeout_that_cannot_be_is_refused_and_nothing_stays() -> None:
    shelf = Shelf()
    with pytest.raises(ValueError, match="positive"):
        async with shelf.session(CONFIG, timeout=0):
            pass
    assert shelf.deleted == ["s-0"]


async def test_configuring_a_closed_sandbox_is_an_error() -> None:
    sandbox = await Shelf().create(CONFIG)
    sandbox.configure(timeout=5)
    await sandbox.aclose()
    await sandbox.aclose()
    with pytest.raises(ProviderError, match="before the first call"):
        sandbox.configure(timeout=6)


async def test_a_sandbox_is_its_own_context() -> None:
    async with await Shelf().create(CONFIG) as sandbox:
        assert sandbox.runtime_url == "http://127.0.0.1:9"
    with pytest.raises(ProviderError, match="closed"):
        await sandbox.remote(len, [])


def test_a_provider_must_implement_the_three() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SandboxProvider()  # type: ignore[abstract]
