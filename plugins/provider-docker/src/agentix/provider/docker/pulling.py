"""Pulling an image: with progress, and again where the registry says "not now"."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from agentix.errors import ImageError
from agentix.provider.docker.problems import RefusedError, why_not_pulled

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from agentix.provider.docker.engine import Engine

RETRIES = 3
# What registries answer when they mean "not now": too many requests, or a failure of their own.
PASSING = re.compile(r"too ?many ?requests|\b(429|500|502|503|504)\b", re.IGNORECASE)
_log = logging.getLogger("agentix.provider.docker")


def pull(
    engine: Engine,
    reference: str,
    platform: str,
    stop: threading.Event,
    advance: Callable[[int], None],
) -> None:
    """Have *engine* pull *reference*; try again when its registry says "not now".

    *advance* hears how many bytes have arrived; *stop* ends it at the next sign of progress. Raises
    ImageError when the image cannot be had.
    """
    had: dict[str, int] = {}

    def wanted(line: Mapping[str, Any]) -> bool:
        if line.get("status") == "Downloading":
            now = line.get("progressDetail", {}).get("current", 0)
            advance(max(0, now - had.get(line["id"], 0)))
            had[line["id"]] = now
        return not stop.is_set()

    pause = 1.0
    for attempt in range(1, RETRIES + 1):
        try:
            engine.pull(reference, platform, wanted)
        except RefusedError as error:
            again = attempt < RETRIES and PASSING.search(error.reason)
            if not again:
                why = why_not_pulled(engine.where.kind, reference, platform, error.reason)
                raise ImageError(why) from error
            _log.warning("pulling %s again in %g s: %s", reference, pause, error.reason)
        else:
            return
        if stop.wait(pause):
            return
        pause *= 2
