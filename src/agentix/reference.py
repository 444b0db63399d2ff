"""Names of images at registries, as people write them: ``debian:12``, ``host:5000/x@sha256:…``."""

from __future__ import annotations

import re
from dataclasses import dataclass

SCHEME = "docker://"

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?P<host>{_HOST})/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@sha256:(?P<digest>[0-9a-f]{64}))?"
)
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """An image at a registry; a *digest* (hex) says which one for ever, and then *tag* nothing.

    ``host`` is empty where the name leaves open which registry is meant.
    """

    name: str
    host: str
    tag: str
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Reference | None:
        """Return what *text* names; None when it can be no name."""
        match = _REFERENCE.fullmatch(text.removeprefix(SCHEME))
        if match is None or len(match["name"]) > _LONGEST_NAME:
            return None
        host = match["host"] or ""
        if not ("." in host or ":" in host or host == "localhost"):
            host = ""  # the first part of a name at the usual registry
            if match["name"] != match["name"].lower():
                return None
        return cls(match["name"], host, match["tag"] or "latest", match["digest"])

    @property
    def location(self) -> str:
        """What a registry's client is asked for."""
        return self.pinned(self.digest) if self.digest else f"{SCHEME}{self.name}:{self.tag}"

    def pinned(self, digest: str) -> str:
        """Return the same for the one of *digest* (hex)."""
        return f"{SCHEME}{self.name}@sha256:{digest}"

    def __str__(self) -> str:
        return self.location.removeprefix(SCHEME)
