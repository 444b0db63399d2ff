"""Making an image from its recipe, once for each digest of the recipe."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from images.config import MACHINES, ImageConfig, TaskImage
from images.debian import download, held, unpack
from images.musl import compile_with_musl

if TYPE_CHECKING:
    from images.recipes import Recipe

FORMAT = 1
# Documentation is most of what small packages weigh, and no program of a task reads it.
LEFT_OUT = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")


def cache_root() -> Path:
    """Return where images and packages are kept: AGENTIX_TEST_IMAGES or the user's cache."""
    chosen = os.environ.get("AGENTIX_TEST_IMAGES")
    return Path(chosen) if chosen else user_cache_path("agentix-test-images")


def build(recipe: Recipe, cache: Path | None = None, machine: str | None = None) -> TaskImage:
    """Return the image that *recipe* describes, for this machine or for another kind of *machine*.

    The cache holds it afterwards.
    """
    cache = cache or cache_root()
    machine = machine or platform.machine()
    digest = hashlib.sha256(f"{FORMAT} {machine} {recipe!r}".encode()).hexdigest()[:16]
    target = cache / "images" / f"{recipe.name}-{digest}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with held(target.with_suffix(".lock")):
        if not target.exists():
            # A leading dot keeps the half-made out of the way; the rename is what commits.
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as folder:
                rootfs = Path(folder, "image", "rootfs")
                rootfs.mkdir(parents=True)
                for path in (rootfs.parent, rootfs):
                    path.chmod(0o755)
                _fill(rootfs, recipe, machine, Path(folder, "scratch"), cache)
                rootfs.parent.rename(target)
    return TaskImage(
        name=recipe.name,
        digest=digest,
        rootfs=target / "rootfs",
        config=_spell(recipe.config, machine),
        architecture=MACHINES[machine],
        environment_program=recipe.environment_program,
        python=recipe.python,
        read_only=recipe.read_only,
    )


def _fill(rootfs: Path, recipe: Recipe, machine: str, scratch: Path, cache: Path) -> None:
    if recipe.packages:
        # apt's own idea of this machine needs no folder of its own.
        other = None if machine == platform.machine() else MACHINES[machine]
        debs = download(
            recipe.suite, recipe.packages, cache, alone=recipe.alone, architecture=other
        )
        unpack(debs, rootfs)
    for name in LEFT_OUT:
        shutil.rmtree(rootfs / name, ignore_errors=True)
    for name in recipe.folders:
        _folder(rootfs, name)
    if (rootfs / "tmp").exists():
        (rootfs / "tmp").chmod(0o1777)
    for name, destination in recipe.links:
        (rootfs / name).symlink_to(destination)
    for name, text in recipe.files:
        path = _folder(rootfs, str(Path(name).parent)) / Path(name).name
        path.write_text(_triplet(text, machine))
        path.chmod(0o644)
    for name, source in recipe.musl:
        compile_with_musl(source, rootfs / name, machine=machine, scratch=scratch, cache=cache)


def _folder(rootfs: Path, name: str) -> Path:
    """Make the folder *name*, readable by everybody whatever the umask is."""
    path = rootfs
    for part in Path(name).parts:
        path /= part
        if not path.exists():
            path.mkdir()
            path.chmod(0o755)
    return path


def _spell(config: ImageConfig, machine: str) -> ImageConfig:
    return replace(config, env=tuple((name, _triplet(v, machine)) for name, v in config.env))


def _triplet(text: str, machine: str) -> str:
    return text.replace("{triplet}", f"{machine}-linux-gnu")
