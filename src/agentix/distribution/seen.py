"""Which repositories of a registry have been given which blobs, so that they can share them.

It is a hint: a registry that has none of them any more is sent them again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING

from agentix.replacing import replacing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agentix.distribution.place import Place

_MOST = 20_000  # blobs of a registry that are remembered, the latest
_LARGEST = 8 * 1024 * 1024


class Seen:
    """What *folder* remembers of the registry of *place*."""

    def __init__(self, folder: Path, place: Place) -> None:
        key = hashlib.sha256(place.host.encode()).hexdigest()[:32]
        self._file = folder / f"{key}.json"
        self._repository = place.repository
        self._known = self._read()

    def elsewhere(self, digest: str) -> str | None:
        """Return another repository that has the blob *digest*, or has had it."""
        found = self._known.get(digest)
        return None if found == self._repository else found

    def note(self, digests: Iterable[str]) -> None:
        """Remember that the repository has these blobs. That it cannot be noted is no error."""
        known = self._read()  # what others have noted meanwhile
        for digest in digests:
            known.pop(digest, None)
            known[digest] = self._repository
        latest = dict(list(known.items())[-_MOST:])
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._file) as draft:
                draft.write_text(json.dumps(latest))

    def _read(self) -> dict[str, str]:
        try:
            with self._file.open("rb") as file:
                found = json.loads(file.read(_LARGEST))
            return {str(key): str(value) for key, value in found.items()}
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}
