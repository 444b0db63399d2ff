"""Loading an archive into the engine, under a name that tells what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentix.errors import ImageError
from agentix.provider.docker.problems import RefusedError
from agentix.provider.kit import ImageArchive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.progress import Progress, Step
    from agentix.provider.docker.engine import Engine
    from agentix.provider.kit import Stop

# No registry can be called so: an engine would never look for it elsewhere.
REPOSITORY = "localhost/agentix/archive"


def archive(reference: str) -> Path | None:
    """Return the file that *reference* is the path of, if there is one."""
    try:
        return Path(reference) if Path(reference).is_file() else None
    except OSError:
        return None


def load(engine: Engine, path: Path, architecture: str, stop: Stop, progress: Progress) -> str:
    """Have the engine load the archive at *path*, unless it has; return the image's name.

    Raises ImageError when it is no archive of one image.
    """
    source = ImageArchive(path, architecture, stop)
    name = f"{REPOSITORY}:{source.digest()}"

    def here() -> bool:
        return engine.image(name) is not None

    if here():
        return name
    with progress.step(f"load {path}", unit="bytes") as step:
        try:
            source.load(name, here, lambda pieces: engine.load(_heard(pieces, step)))
        except RefusedError as error:
            raise ImageError(f"image {path} cannot be loaded: {error.reason}") from error
    if not here():
        raise ImageError(f"image {path} was loaded and is gone again")
    return name


def _heard(pieces: Iterator[bytes], step: Step) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        step.advance(len(piece))
