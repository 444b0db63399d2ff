"""Ids of sandboxes that another provider made."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.bubblewrap import BubblewrapProvider
from agentix.provider.docker import DockerProvider
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from agentix.provider.base import SandboxProvider


@pytest.mark.parametrize(
    ("provider", "other"), [(BubblewrapProvider(), "docker"), (DockerProvider(), "bwrap")]
)
async def test_a_sandbox_of_another_provider_is_left_alone_and_that_is_said(
    provider: SandboxProvider, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="ax") as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", base)
        folder = RuntimeFolder.create(other)
        folder.record({})
        for ask in (provider.get, provider.delete):
            with pytest.raises(ProviderError, match="another provider") as caught:
                await ask(folder.sandbox_id)
            assert not isinstance(caught.value, SandboxNotFound)
        assert folder.path.exists()
