"""A bundle of another Python than the host's: everything works but code that travels by value."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from agentix import RemoteCallError, SandboxConfig
from agentix.build.build import build_bundle
from agentix.provider.bubblewrap import BubblewrapProvider

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]

MODULE = """
import sys
from dataclasses import dataclass


@dataclass
class Item:
    name: str
    size: int


def version() -> str:
    return "%d.%d" % sys.version_info[:2]


def larger(items: list[Item], by: int = 1) -> list[Item]:
    return [Item(item.name, item.size + by) for item in items]


def back(value):
    return value


def called(function, *args):
    return function(*args)


def count(to: int):
    yield from range(to)


def fail() -> None:
    raise ValueError("no")
"""


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Build a project for a Python that this is not, and import its module here."""
    python = "3.13" if sys.version_info[:2] != (3, 13) else "3.11"
    (tmp_path / "elsewhere.py").write_text(MODULE)
    (tmp_path / "pyproject.toml").write_text(
        f"""
[project]
name = "elsewhere"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["numpy"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.agentix]
python = "{python}"
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("elsewhere")
    yield python, module, build_bundle(tmp_path, output=tmp_path)
    del sys.modules["elsewhere"]


async def test_a_host_calls_into_a_bundle_of_another_python(other: Any, tmp_path: Path) -> None:
    python, module, built = other
    here = ".".join(map(str, sys.version_info[:2]))
    config = SandboxConfig(image="host", bundle=str(built.path))
    async with BubblewrapProvider().session(config) as sandbox:
        assert await sandbox.remote(module.version) == python
        items = [module.Item("a", 1), module.Item("b", 2)]
        larger = [dataclasses.replace(item, size=item.size + 5) for item in items]
        assert await sandbox.remote(module.larger, items, by=5) == larger
        numbers = np.arange(100_000).reshape(100, 1000)
        np.testing.assert_array_equal(await sandbox.remote(module.back, numbers), numbers)
        assert [number async for number in sandbox.remote(module.count, 5)] == [0, 1, 2, 3, 4]
        assert await sandbox.remote(module.called, len, "four") == 4
        with pytest.raises(RemoteCallError, match="ValueError: no"):
            await sandbox.remote(module.fail)
        with pytest.raises(RemoteCallError) as caught:
            await sandbox.remote(module.called, lambda: 1)
        said = str(caught.value).splitlines()
        assert len(said) == 1
        assert here in said[0]
        assert python in said[0]
        assert "[tool.agentix] python" in said[0]
        assert await sandbox.remote(module.version) == python
