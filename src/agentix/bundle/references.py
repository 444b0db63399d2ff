"""Store paths that files mention, read as if what has only got another hash had kept its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PREFIX = b"/nix/store/"
_MENTION = re.compile(rb"/nix/store/[0-9a-df-np-sv-z]{32}-[0-9A-Za-z+._?=-]{1,211}")
_LONGEST = len(_PREFIX) + 32 + 1 + 211


class References:
    """Pairs of store names, of which the second stands for the first in another bundle.

    ``met`` holds the pairs, by number, that have been seen on either side.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.met: set[int] = set()
        numbered = list(enumerate(pairs))
        self._names = [
            {pair[side].encode(): (number, pair[0].encode()) for number, pair in numbered}
            for side in (0, 1)
        ]
        self._by_hash = [{name[:32]: name for name in names} for names in self._names]

    def text(self, side: int, text: bytes) -> bytes:
        """Return a short *text* of that side, with the first side's names."""
        return b"".join(self.pieces(side, iter((text,))))

    def pieces(self, side: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield a content of that side (0 or 1), with the first side's names."""
        if not self._by_hash[side]:
            yield from pieces
            return
        held = b""
        for piece in pieces:
            held += piece
            # A name that begins here may go on in the next piece.
            ready, held = self._replace(side, held, len(held) - _LONGEST)
            yield ready
        yield self._replace(side, held, len(held))[0]

    def _replace(self, side: int, data: bytes, until: int) -> tuple[bytes, bytes]:
        """Replace the names that begin before *until*; return what is done, and what is left."""
        done, parts = 0, []
        for found in _MENTION.finditer(data):
            if found.start() >= until:
                break
            mention = found[0][len(_PREFIX) :]
            name = self._by_hash[side].get(mention[:32])
            if name is not None and mention.startswith(name):
                number, first = self._names[side][name]
                self.met.add(number)
                start = found.start() + len(_PREFIX)
                parts += [data[done:start], first]
                done = start + len(name)
        end = max(until, done, 0)
        parts.append(data[done:end])
        return b"".join(parts), data[end:]
