"""A bundle for tests of providers that needs no Nix: its runtime is one script for this Python.

It answers ``GET /health`` and misbehaves on request (see :mod:`stub_runtime.program`). It runs
where this interpreter is visible, so on the image ``host``.
"""

from __future__ import annotations

import ast
import asyncio
import json
import platform
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentix import platforms
from agentix.bundle import write_bundle
from agentix.bundle.nar import nar_hash
from agentix.nix import StorePath
from agentix.provider.base import SandboxConfig
from agentix.provider.runtime_folder import RuntimeFolder
from agentix.wire.protocol import PROTOCOL

if TYPE_CHECKING:
    from agentix.provider.base import Sandbox

ROOT = f"{'0' * 32}-stub-bundle"
PROGRAM = Path(__file__).with_name("program.py")


def make_entry(folder: Path, *, for_platform: str | None = None, bootstrap: str = "") -> Path:
    """Make a cache entry in *folder* and return its path; *bootstrap* replaces the program."""
    entry = folder / f"sha256-{'5' * 64}"
    runtime = entry / "nix/store" / ROOT / "runtime"
    runtime.mkdir(parents=True)
    (entry / "nix/run").mkdir()
    (entry / "nix/runtime").symlink_to(f"/nix/store/{ROOT}/runtime")
    python = Path(sys.executable).resolve()
    program = runtime / "bootstrap.sh"
    program.write_text(bootstrap or f"#!{python} -ISB\n{PROGRAM.read_text()}")
    program.chmod(0o755)
    manifest = {
        "format": 1,
        "name": "stub",
        "version": "1.0",
        "platform": for_platform or platforms.current().name,
        "python": platform.python_version(),
        "toolchain": "none",
        "libc": "none",
        "protocol": PROTOCOL,
        "agentix": "0.1.0",
        "packages": [],
        "tools": [],
        "closure": {ROOT: {"sha256": "0" * 64, "size": 0}},
        "root": ROOT,
    }
    (entry / "manifest.json").write_text(json.dumps(manifest))
    return entry


def make_tar(folder: Path) -> Path:
    """Make the tar of that bundle in *folder*, which a cache takes, and return its path."""
    entry = make_entry(folder)
    root = entry / "nix/store" / ROOT
    known = json.loads((entry / "manifest.json").read_text())
    info = {key: value for key, value in known.items() if key not in ("closure", "root")}
    (root / "info.json").write_text(json.dumps(info))
    content = nar_hash(root)
    tar = folder / "stub.bundle.tar"
    write_bundle(root, [StorePath(root, content.sha256, content.size)], tar)
    return tar


def host(bundle: Path, **env: str) -> SandboxConfig:
    """Return the configuration of a sandbox of this bundle on the host's own root."""
    return SandboxConfig(image="host", bundle=bundle, env=env)


def python(code: str, *arguments: str) -> list[str]:
    """Return the command line of this Python for an indented piece of *code*."""
    return [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments]


async def look(sandbox: Sandbox, expression: str) -> Any:
    """Evaluate *expression* in the stub and return its value."""
    folder, _ = RuntimeFolder.find(sandbox.sandbox_id)
    reader, writer = await asyncio.open_unix_connection(folder.socket)
    try:
        writer.write(
            f"GET /run?{quote(expression)} HTTP/1.0\r\n"
            f"Authorization: Bearer {folder.token}\r\n\r\n".encode()
        )
        answer = (await asyncio.wait_for(reader.read(), 20)).decode()
    finally:
        writer.close()
        await writer.wait_closed()
    return ast.literal_eval(answer.partition("\r\n\r\n")[2])
