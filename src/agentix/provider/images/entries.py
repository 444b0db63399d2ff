"""The folder of unpacked images: each one is complete, or is not there."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pydantic import ValidationError

from agentix.bundle.removal import remove
from agentix.bundle.staging import hold
from agentix.errors import BundleError, ImageError
from agentix.provider.images.formats import ImageDescription
from agentix.provider.images.unpack import Unpacker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentix.provider.stopping import Stop


class Entries:
    """Unpacked images by digest (hex), below *root*, the cache; see :mod:`.store`."""

    def __init__(self, root: Path, stop: Stop) -> None:
        self.folder = root / "images"
        self._staging = root / "staging"
        self._stop = stop

    def find(self, digest: str) -> tuple[Path, ImageDescription] | None:
        """Return the root file system of the image *digest*, and its description, if it is here."""
        entry = self.folder / f"sha256-{digest}"
        try:
            content = (entry / "image.json").read_bytes()
            return entry / "rootfs", ImageDescription.model_validate_json(content)
        except (OSError, ValidationError):
            return None

    def make(self, digest: str, fill: Callable[[Unpacker, Path], ImageDescription]) -> None:
        """Have *fill* unpack the image *digest*, unless it is here; it also gets a scratch folder.

        It is made once, however many threads and processes ask for it.
        """
        entry = self.folder / f"sha256-{digest}"
        if self.find(digest) is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.hold(f"image-{digest[:32]}") as folder:
            if self.find(digest) is not None:
                return
            root = folder / "new" / "rootfs"
            root.mkdir(parents=True)
            for made in (root.parent, root):
                made.chmod(0o755)
            scratch = folder / "scratch"
            scratch.mkdir()
            unpacker = Unpacker(root)
            description = fill(unpacker, scratch)
            unpacker.finish()
            file = root.parent / "image.json"
            file.write_text(description.model_dump_json(by_alias=True))
            file.chmod(0o644)
            remove(entry)  # not complete, or it would have been found
            root.parent.rename(entry)

    @contextmanager
    def hold(self, key: str) -> Iterator[Path]:
        """Hold the empty folder *key*, alone among threads and processes; then remove it."""
        with ExitStack() as held:
            try:
                folder = held.enter_context(hold(self._staging, key, check=self._stop.check))
            except BundleError as error:
                raise ImageError(str(error)) from error
            yield folder
