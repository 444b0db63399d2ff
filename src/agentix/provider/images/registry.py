"""Images of registries: which one a name means today, fetched once and unpacked into the cache.

What a name meant is kept, so that a registry is asked at most every few seconds about it, and that
work goes on, with a warning, while it cannot be reached. A digest means the same for ever.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from agentix import platforms
from agentix.errors import ImageError
from agentix.provider.images import layers
from agentix.provider.images.formats import (
    INDEX_TYPES,
    MAX_JSON,
    ImageDescription,
    Index,
    Manifest,
    parse,
)
from agentix.provider.images.skopeo import RegistryError, Skopeo
from agentix.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import TypeVar

    from agentix.progress import Progress
    from agentix.provider.images.entries import Entries
    from agentix.provider.images.unpack import Unpacker
    from agentix.provider.stopping import Stop
    from agentix.reference import Reference

    T = TypeVar("T")

Pull = Literal["changed", "missing", "never"]
_ATTEMPTS = 4
_FIRST_PAUSE = 1.0
_WITHIN = 30.0  # seconds that an answer may take
_WITHIN_IF_HERE = 10.0  # the same, when there is an image to go on with
_FRESH = 10.0  # seconds for which an answer holds, so that a hundred sandboxes ask once
_log = logging.getLogger("agentix.provider.images")


@dataclass(frozen=True, slots=True)
class _Known:
    """The image (its manifest's digest) that a name meant at a time (seconds since 1970).

    ``asked`` is when a registry was last asked for it, also when it did not answer.
    """

    digest: str
    at: float
    asked: float


class Registries:
    """Finds images by name and keeps them in *entries*; the rest is as in ImageStore."""

    def __init__(
        self,
        entries: Entries,
        pull: Pull,
        insecure: Sequence[str],
        progress: Progress,
        stop: Stop,
    ) -> None:
        self._entries = entries
        self._names = entries.folder / "names"
        self._pull = pull
        self._insecure = frozenset(insecure)
        self._progress = progress
        self._stop = stop
        self._skopeo = Skopeo(stop)
        self._architecture = platforms.current().debian

    def digest(self, reference: Reference) -> str:
        """Return the digest (hex) of the unpacked image that *reference* means.

        Raises ImageError, and OSError when it cannot be unpacked.
        """
        if (known := self._good(reference)) is not None:
            return known
        if self._pull == "never":
            raise ImageError(
                f"image {reference} is not in the cache, and pulling is switched off (pull='never')"
            )
        self._names.mkdir(parents=True, exist_ok=True)
        with self._entries.hold(f"name-{self._key(reference)[:32]}"):
            # Somebody else has asked meanwhile.
            return self._good(reference) or self._ask(reference)

    def _good(self, reference: Reference) -> str | None:
        """Return the digest for which no registry needs to be asked."""
        known = self._recall(reference)
        if known is None:
            return None
        current = 0 <= time.time() - known.asked < _FRESH
        settled = reference.digest is not None or self._pull != "changed"
        return known.digest if settled or current else None

    def _ask(self, reference: Reference) -> str:
        known = self._recall(reference)
        try:
            digest, manifest = self._resolve(reference, here=known is not None)
        except RegistryError as error:
            if known is None or not error.unreachable:
                raise RegistryError(f"image {reference} cannot be pulled: {error}") from error
            day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(known.at))
            message = "cannot ask for image %s (%s); using what it was on %s, sha256:%s"
            _log.warning(message, reference, error, day, known.digest)
            self._remember(reference, _Known(known.digest, known.at, time.time()))
            return known.digest
        try:
            self._fetch(reference, digest, manifest)
        except RegistryError as error:
            raise RegistryError(f"image {reference} cannot be pulled: {error}") from error
        self._remember(reference, _Known(digest, time.time(), time.time()))
        return digest

    def _resolve(self, reference: Reference, *, here: bool) -> tuple[str, Manifest]:
        """Ask which image the name means, on this machine's platform."""
        location, expected, within = reference.location, reference.digest, _WITHIN
        attempts = _ATTEMPTS
        if here:
            attempts, within = 1, _WITHIN_IF_HERE

        def ask() -> bytes:
            return self._skopeo.manifest(
                location, insecure=self._may_be_insecure(reference), within=within
            )

        for _ in range(2):
            content = self._patiently(ask, reference, attempts)
            digest = hashlib.sha256(content).hexdigest()
            if len(content) > MAX_JSON or (expected is not None and digest != expected):
                raise RegistryError("its registry has something else under that digest")
            kind = _kind(content)
            if kind not in INDEX_TYPES:
                break
            index = parse(Index, content, image=str(reference), what="index")
            expected = index.suiting(self._architecture, image=str(reference))[0].hex
            location = reference.pinned(expected)
        else:
            raise ImageError(f"image {reference} has an index in an index")
        if "v1+" in kind and "docker" in kind:
            raise ImageError(f"image {reference} has a format that was given up long ago ({kind})")
        return digest, parse(Manifest, content, image=str(reference), what="manifest")

    def _fetch(self, reference: Reference, digest: str, manifest: Manifest) -> None:
        location = reference.pinned(digest)
        insecure = self._may_be_insecure(reference)

        def fill(unpacker: Unpacker, scratch: Path) -> ImageDescription:
            files = scratch / "files"
            with self._progress.step(f"pull {reference}", unit="bytes") as step:

                def copy() -> None:
                    self._skopeo.copy(location, files, insecure=insecure, advance=step.advance)

                self._patiently(copy, reference, _ATTEMPTS)
            with self._progress.step(f"unpack {reference}"):
                return self._unpack(reference, manifest, files, unpacker)

        self._entries.make(digest, fill)

    def _unpack(
        self, reference: Reference, manifest: Manifest, files: Path, unpacker: Unpacker
    ) -> ImageDescription:
        content = (files / manifest.config.hex).read_bytes()
        if hashlib.sha256(content).hexdigest() != manifest.config.hex:
            raise ImageError(f"image {reference} is damaged: its configuration was altered")
        name = str(reference)
        description = parse(ImageDescription, content, image=name, what="configuration")
        digests = [each.removeprefix("sha256:") for each in description.rootfs.diff_ids]
        if len(digests) != len(manifest.layers):
            raise ImageError(f"image {reference} is no image of a file system")
        for digest in digests:
            if not (files / digest).is_file():
                raise ImageError(f"image {reference} does not hold the layers that it describes")
            layers.apply(
                (files / digest).open("rb"),
                unpacker,
                packed=None,
                unpacked=digest,
                what=(name, digest),
                stop=self._stop,
            )
        return description

    def _patiently(self, ask: Callable[[], T], reference: Reference, attempts: int) -> T:
        pause = _FIRST_PAUSE
        for left in reversed(range(attempts)):
            try:
                return ask()
            except RegistryError as error:
                if not error.passing or not left:
                    raise
                _log.warning("asking for image %s again in %g s: %s", reference, pause, error)
            self._stop.sleep(pause)
            pause *= 2
        raise AssertionError  # the last attempt returned or raised

    def _may_be_insecure(self, reference: Reference) -> bool:
        return reference.host in self._insecure

    def _key(self, reference: Reference) -> str:
        return hashlib.sha256(f"{reference} {self._architecture}".encode()).hexdigest()

    def _recall(self, reference: Reference) -> _Known | None:
        """Return what *reference* meant when it was last asked for, if that image is here."""
        try:
            content = json.loads((self._names / self._key(reference)).read_bytes())
            known = _Known(str(content["digest"]), float(content["at"]), float(content["asked"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if self._entries.find(known.digest) is not None else None

    def _remember(self, reference: Reference, known: _Known) -> None:
        content = {"name": str(reference), **asdict(known)}
        with replacing(self._names / self._key(reference)) as draft:
            draft.write_text(json.dumps(content))


def _kind(content: bytes) -> str:
    """Return the media type of a manifest, which tells what it is."""
    try:
        found = json.loads(content)
        if isinstance(found, dict):
            if "mediaType" not in found and "manifests" in found:
                return INDEX_TYPES[0]  # the OCI's may leave it out
            return str(found.get("mediaType", "v1+docker" if "fsLayers" in found else ""))
    except (ValueError, RecursionError):
        pass
    return ""
