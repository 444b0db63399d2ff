"""What npm calls the integrity of a file: hashes of which the strongest counts."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentix.errors import LockError

if TYPE_CHECKING:
    from hashlib import _Hash

_STRONGEST = ("sha512", "sha384", "sha256", "sha1")  # releases of long ago have the last one only


@dataclass(frozen=True, slots=True)
class Integrity:
    """The hash that a file must have."""

    algorithm: str
    digest: bytes

    @classmethod
    def parse(cls, text: str, *, of: str) -> Integrity:
        """Return the strongest hash in *text*; LockError says what *of* when there is none."""
        known = dict(word.partition("?")[0].split("-", 1) for word in text.split() if "-" in word)
        for algorithm in _STRONGEST:
            try:
                digest = base64.b64decode(known[algorithm], validate=True)
            except (KeyError, ValueError):  # ValueError: no base64, or not even ASCII
                continue
            if len(digest) == hashlib.new(algorithm).digest_size:
                return cls(algorithm, digest)
        raise LockError(f"the registry gives no usable hash of {of}, so it cannot be locked")

    def agrees(self, text: str) -> bool:
        """Say whether *text*, what npm resolved, promises the same file."""
        other = Integrity.parse(text, of="it")
        return other.algorithm != self.algorithm or other.digest == self.digest


@dataclass(slots=True)
class Digests:
    """The hashes of bytes that arrive: the promised one, and the one that a lock pins."""

    promised: Integrity
    size: int = 0
    _own: _Hash = field(default_factory=hashlib.sha256)
    _other: _Hash = field(init=False)

    def __post_init__(self) -> None:
        self._other = hashlib.new(self.promised.algorithm)

    def update(self, data: bytes) -> None:
        """Take the next bytes."""
        self.size += len(data)
        self._own.update(data)
        self._other.update(data)

    @property
    def right(self) -> bool:
        """Whether these are the bytes that were promised."""
        return self._other.digest() == self.promised.digest

    @property
    def sha256(self) -> str:
        """The hash that a lock pins."""
        return self._own.hexdigest()
