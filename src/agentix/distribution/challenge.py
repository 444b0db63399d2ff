"""How a registry asks who somebody is: the ``WWW-Authenticate`` of its 401."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_SCHEME = re.compile(r"\s*(?:,\s*)?([A-Za-z][A-Za-z0-9_-]*)(?:\s+|$)")
_PARAMETER = re.compile(r'\s*(?:,\s*)?([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in: ``scheme`` in lower case, with its parameters."""

    scheme: str
    parameters: dict[str, str]


def challenges(headers: Iterable[str]) -> list[Challenge]:
    """Take apart what *headers* say, as far as it makes sense."""
    found = []
    for header in headers:
        at, text = 0, header[:_LONGEST]
        while (scheme := _SCHEME.match(text, at)) is not None:
            at = scheme.end()
            parameters = {}
            while (pair := _PARAMETER.match(text, at)) is not None:
                at = pair.end()
                quoted = pair[2]
                value = pair[3] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                parameters[pair[1].lower()] = value
            found.append(Challenge(scheme[1].lower(), parameters))
    return found
