"""A bundle for tests of providers that needs no Nix: its runtime is one script for this Python.

It answers ``GET /health`` and misbehaves on request (see :mod:`stub_runtime.program`). It runs
where this interpreter is visible, so on the image ``host``.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from agentix import platforms

ROOT = f"{'0' * 32}-stub-bundle"
PROGRAM = Path(__file__).with_name("program.py")


def make_entry(folder: Path, *, platform_name: str | None = None, first_line: str = "") -> Path:
    """Make a cache entry in *folder* and return its path."""
    entry = folder / f"sha256-{'5' * 64}"
    runtime = entry / "nix/store" / ROOT / "runtime"
    runtime.mkdir(parents=True)
    (entry / "nix/run").mkdir()
    (entry / "nix/runtime").symlink_to(f"/nix/store/{ROOT}/runtime")
    python = Path(sys.executable).resolve()
    bootstrap = runtime / "bootstrap.sh"
    first_line = first_line or f"#!{python} -ISB"
    bootstrap.write_text(f"{first_line}\n{PROGRAM.read_text()}")
    bootstrap.chmod(0o755)
    manifest = {
        "format": 1,
        "name": "stub",
        "version": "1.0",
        "platform": platform_name or platforms.current().name,
        "python": platform.python_version(),
        "toolchain": "none",
        "libc": "none",
        "protocol": 1,
        "agentix": "0.1.0",
        "packages": [],
        "tools": [],
        "closure": {ROOT: {"sha256": "0" * 64, "size": 0}},
        "root": ROOT,
    }
    (entry / "manifest.json").write_text(json.dumps(manifest))
    return entry
