"""Which image a sandbox gets, and whether the bundle and the engine can live with it."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.docker import dropping, loading
from agentix.provider.docker.engine import Engine
from agentix.provider.docker.pulling import pull
from agentix.provider.docker.threads import abandonable, finished
from agentix.provider.kit import plain, quoted, stoppable

if TYPE_CHECKING:
    from agentix.progress import Progress
    from agentix.provider.docker.address import Address, Kind
    from agentix.provider.docker.config import DockerProviderConfig
    from agentix.provider.docker.facts import Image
    from agentix.provider.kit import Stop


async def bring(
    engine: Engine,
    reference: str,
    platform: str,
    choices: DockerProviderConfig,
    progress: Progress,
) -> tuple[str, Image]:
    """Return the image called *reference*, loaded or pulled if need be, and its name there.

    Raises ImageError when it cannot be had.
    """
    where = engine.where
    if (path := loading.archive(reference)) is not None:
        reference = await _load(where, path, platform, progress)
    found = await finished(engine.image, reference)
    if found is None:
        if error := cannot_be_pulled(where.kind, reference):
            raise error
        if choices.pull == "never":
            raise ImageError(
                f"image {quoted(reference)} is not on this machine, and pulling is switched off"
                f" (pull='never'); {where.kind} pull {plain(reference)} gets it"
            )
        await _pull(where, reference, platform, progress)
        if not choices.keep_images:
            dropping.note(where, reference)
        found = await finished(engine.image, reference)
        if found is None:
            raise ImageError(f"image {quoted(reference)} was brought here and is gone again")
    return reference, found


async def _load(where: Address, path: Path, platform: str, progress: Progress) -> str:
    architecture = platform.removeprefix("linux/")

    def work(stop: Stop) -> str:
        with Engine(where) as engine:
            return loading.load(engine, path, architecture, stop, progress)

    return await stoppable(work, name=f"load {path}")


async def _pull(where: Address, reference: str, platform: str, progress: Progress) -> None:
    stop = threading.Event()
    with progress.step(f"pull {reference}", unit="bytes") as step:

        def advance(amount: int) -> None:
            if not stop.is_set():
                step.advance(amount)

        def work() -> None:
            # A connection of its own, since nobody waits for this after a cancellation.
            with Engine(where) as engine:
                pull(engine, reference, platform, stop, advance)

        try:
            await abandonable(work, name=f"pull {reference}")
        finally:
            stop.set()


def require_platforms(bundle: str, built_for: str, *, image: str, found: Image) -> None:
    """Check that the *bundle* and the *image* are for one platform.

    Raises ImageError that names the two when they differ.
    """
    if found.platform and found.platform != built_for:
        raise ImageError(
            f"image {quoted(image)} is made for {found.platform}, but bundle {bundle} is for"
            f" {built_for}; pull the image for {built_for}"
        )


def cannot_be_pulled(kind: Kind, reference: str) -> ImageError | None:
    """Return the error for a *reference* that no registry could know; None when one could."""
    why = None
    if reference.startswith(("/", ".", "~")):
        why = f"{kind} takes images by name or as archives; {_how_to_name(kind, reference)}"
    elif reference.startswith("sha256:"):
        why = "an id cannot be pulled; use a name"
    return ImageError(f"image {quoted(reference)} is not on this machine: {why}") if why else None


def _how_to_name(kind: Kind, reference: str) -> str:
    """Return how the engine is given a folder, which other providers take as an image."""
    path = Path(reference).expanduser()
    name = shlex.quote(str(path))
    if path.is_dir():
        return f"tar -C {name} -c . | {kind} import - NAME, and use that name"
    return f"{name} is no file"
