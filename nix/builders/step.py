"""What every step shares: its one input value, its output path, and how it fails."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn


def config() -> dict[str, Any]:
    """Return the value that the derivation was given."""
    value: dict[str, Any] = json.loads(Path(os.environ["configPath"]).read_bytes())  # noqa: SIM112 - Nix's name
    return value


def out() -> Path:
    """Return the path that the step has to make."""
    return Path(os.environ["out"])  # noqa: SIM112 - Nix's name


def fail(sentence: str) -> NoReturn:
    """End the build with *sentence* as the last line of its log."""
    sys.stdout.flush()
    sys.exit(sentence)


def warn(sentence: str) -> None:
    """Say something that does not end the build; whoever started it is told by this mark."""
    print(f"agentix warning: {sentence}", file=sys.stderr, flush=True)


def toolchain(path: Path) -> dict[str, Any]:
    """Return what a toolchain says of itself: ``name``, ``python``, ``libc`` and ``licences``."""
    value: dict[str, Any] = json.loads((path / "toolchain.json").read_bytes())
    return value
