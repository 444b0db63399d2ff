"""The last things that a sandbox's own process said, for the moment when it dies."""

from __future__ import annotations

LIMIT = 16 * 1024
QUOTED = 600


class OutputTail:
    """Take any amount of output and keep its end.

    Whoever runs a sandbox feeds this for as long as it lives: a pipe that nobody reads would stop
    the runtime once it is full.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, data: bytes) -> None:
        """Append *data*, forgetting the oldest bytes beyond the limit."""
        self._kept += data[-self._limit :]
        if len(self._kept) > 2 * self._limit:  # cut rarely: cutting moves what is kept
            del self._kept[: -self._limit]

    def text(self) -> str:
        """Return what is kept."""
        return self._kept[-self._limit :].decode(errors="replace")


def account(output: str) -> str:
    """Return a clause about *output* on one line, for the end of an error message."""
    lines = (line.strip() for line in output[-LIMIT:].splitlines())
    joined = " | ".join("".join(filter(str.isprintable, line)) for line in lines if line)
    if not joined:
        return "it printed nothing"
    return f"its output ends with: {joined if len(joined) <= QUOTED else f'… {joined[-QUOTED:]}'}"
