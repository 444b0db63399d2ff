"""Deployed bundles that do one thing wrong, made without a build: a static busybox and a script."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.wire.protocol import PROTOCOL
from images.recipes import image

if TYPE_CHECKING:
    from pathlib import Path

    from images.config import TaskImage

SHELL = "0" * 32 + "-busybox"
ROOT = "1" * 32 + "-bundle"


def bundle_that_runs(
    script: str, folder: Path, *, platform: str | None = None, busybox: TaskImage | None = None
) -> Path:
    """Return a cache entry below *folder* whose bootstrap.sh is *script*, run by *busybox*.

    That is this machine's, whatever *platform* the bundle says it is for, unless one is given.
    """
    manifest = {
        "format": 1,
        "name": "scripted",
        "version": "0",
        "platform": platform or platforms.current().name,
        "python": "3.11.2",
        "toolchain": "debian-12",
        "libc": "glibc 2.36",
        "protocol": PROTOCOL,
        "agentix": "0.1.0",
        "packages": [],
        "tools": [],
        "root": ROOT,
        "closure": {name: {"sha256": "0" * 64, "size": 1} for name in (SHELL, ROOT)},
    }
    content = json.dumps(manifest)
    entry = folder / f"sha256-{hashlib.sha256((script + content).encode()).hexdigest()}"
    store = entry / "nix/store"
    for path in (store / SHELL / "bin", store / ROOT / "runtime", entry / "nix/run"):
        path.mkdir(parents=True)
    shutil.copy((busybox or image("busybox")).rootfs / "bin/busybox", store / SHELL / "bin/busybox")
    bootstrap = store / ROOT / "runtime/bootstrap.sh"
    bootstrap.write_text(f"#!/nix/store/{SHELL}/bin/busybox sh\n{script}\n")
    (entry / "nix/runtime").symlink_to(f"/nix/store/{ROOT}/runtime")
    (entry / "manifest.json").write_text(content)
    for path in entry.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.name in {"busybox", "bootstrap.sh"}
            path.chmod(0o755 if executable else 0o644)
    return entry
