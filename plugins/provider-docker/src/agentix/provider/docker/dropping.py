"""Which images go with the last sandbox of them: those that were brought for one."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

from agentix.errors import ProviderError
from agentix.provider.docker.loading import REPOSITORY
from agentix.provider.kit import cache_root, quoted, what_to_do

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.docker.address import Address


def note(where: Address, reference: str) -> None:
    """Remember that *reference* was pulled for a sandbox, and may go with it.

    Raises ProviderError when that cannot be written down.
    """
    path = _note(where, reference)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{where.url} {reference}\n")
    except OSError as error:
        raise ProviderError(
            f"cannot note in {path.parent} that image {quoted(reference)} is to go with its"
            f" sandboxes (keep_images=False): {error.strerror or error}; {what_to_do(error)}"
        ) from error


def may_go(where: Address, reference: str) -> bool:
    """Tell whether the image was pulled for a sandbox, or loaded from an archive."""
    return reference.startswith(f"{REPOSITORY}:") or _note(where, reference).exists()


def forget(where: Address, reference: str) -> None:
    """Forget that it was pulled: it is gone."""
    with suppress(OSError):
        _note(where, reference).unlink(missing_ok=True)


def _note(where: Address, reference: str) -> Path:
    key = hashlib.sha256(f"{where.url} {reference}".encode()).hexdigest()
    return cache_root() / "images/pulled" / key
