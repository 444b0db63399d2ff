"""An image as Nix builds them: all that it has lives in its own /nix/store.

Its programs are those of a bundle's closure under other hashes, so that they cannot be mistaken for
the bundle's: a hash is as long as any other, so it can be replaced wherever it stands.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from images.config import ImageConfig, TaskImage

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.bundle import CachedBundle

APPLETS = ("cat", "env", "id", "ls", "sh", "touch")


class NixBuilt:
    """What such an image is made of, in *folder*: a busybox and a Python, as store paths."""

    def __init__(self, bundle: CachedBundle, folder: Path) -> None:
        self._bundle = bundle
        self._folder = folder
        store = folder / "rootfs/nix/store"
        store.mkdir(parents=True)
        self.busybox = self._adopt("-busybox", store)
        self.python = self._adopt(f"-{bundle.manifest.toolchain}-python-3", store)
        self.profile = f"/nix/store/{'p' * 32}-profile"
        programs = folder / f"rootfs{self.profile}/bin"
        programs.mkdir(parents=True)
        for applet in APPLETS:
            (programs / applet).symlink_to(f"{self.busybox}/bin/busybox")
        (programs / "python3").symlink_to(f"{self.python}/bin/python3")

    def image(self, name: str, path: str, links: dict[str, str]) -> TaskImage:
        """Return the image with these *links* and PATH; every call adds to the same folder."""
        rootfs = self._folder / "rootfs"
        for place, target in links.items():
            (rootfs / place).parent.mkdir(parents=True, exist_ok=True)
            (rootfs / place).symlink_to(target)
        config = ImageConfig(env=(("PATH", path),))
        machine = self._bundle.manifest.platform.removeprefix("linux/")
        return TaskImage(name, "0", rootfs, config, machine)

    def _adopt(self, name: str, store: Path) -> str:
        """Copy what has *name* in its name from the bundle's store, under another hash."""
        original = next(each for each in self._bundle.manifest.closure if name in each)
        old = original[:32].encode()
        new = hashlib.sha256(old).hexdigest()[:32].encode()
        source, target = self._bundle.nix / "store" / original, store / original
        for path in (source, *sorted(source.rglob("*"))):
            copy = target / path.relative_to(source)
            if path.is_symlink():
                copy.symlink_to(str(path.readlink()).replace(old.decode(), new.decode()))
            elif path.is_dir():
                copy.mkdir()
            else:
                copy.write_bytes(path.read_bytes().replace(old, new))
                copy.chmod(path.stat().st_mode)
        renamed = f"{new.decode()}{original[32:]}"
        target.rename(store / renamed)
        return f"/nix/store/{renamed}"
