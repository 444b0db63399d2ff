"""What builds in these tests start from."""

from __future__ import annotations

import textwrap
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def busybox() -> str:
    """The store path of the static busybox that all builds start from."""
    from agentix import platforms
    from agentix.build import toolchain
    from agentix.build.fetch import Needs, fetch

    seed = toolchain.seeds().programs[platforms.current().name]["busybox"]
    fetch(Needs((), (seed,)), project=Path.cwd(), python="3.11")
    return seed.store_path


@pytest.fixture
def expression(tmp_path: Path, busybox: str) -> Callable[..., Path]:
    """Write an expression that builds by running a shell script; returns its file."""

    def write(script: str, name: str = "step", **inputs: str) -> Path:
        file = tmp_path / f"{name}.nix"
        more = "".join(f"{key} = import {value};" for key, value in inputs.items())
        text = textwrap.dedent(script)
        file.write_text(
            f"""let busybox = "${{builtins.storePath {busybox}}}/bin/busybox"; in
            derivation {{ name = "{name}"; system = builtins.currentSystem; builder = busybox;
              inherit busybox; unique = "{uuid.uuid4()}"; {more}
              args = ["sh" "-c" ''\n{text}'']; }}"""
        )
        return file

    return write
