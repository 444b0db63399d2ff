"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Give a path beside *file*, nobody else's: what is written there becomes *file* in one step.

    When the block fails, *file* stays as it was and nothing is left beside it.
    """
    draft = file.with_name(f".{file.name}.{os.urandom(8).hex()}")
    try:
        yield draft
        draft.replace(file)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
