"""Where the store keeps content that is known by its hash, computed without asking Nix."""

from __future__ import annotations

import hashlib
import re

STORE = "/nix/store"

_ALPHABET = "0123456789abcdfghijklmnpqrsvwxyz"  # no e, o, t, u: Nix's own base 32
_FOREIGN = re.compile(r"[^0-9A-Za-z+._?=-]")
_DIGEST_BYTES = 20


def store_name(file: str) -> str:
    """Return the name under which the store keeps a file called *file*."""
    return _FOREIGN.sub("-", file)


def fixed_path(name: str, sha256: str, *, recursive: bool = False) -> str:
    """Return the store path of the content with that hash, added under *name*.

    *sha256* is hexadecimal: of the file itself, or of the NAR when *recursive*.

    >>> fixed_path("empty", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    '/nix/store/1p6ssmwq7sp0zhc4hv9l0hjrh0x7zxdz-empty'
    """
    if recursive:
        kind, inner = "source", sha256
    else:
        kind = "output:out"
        inner = hashlib.sha256(f"fixed:out:sha256:{sha256}:".encode()).hexdigest()
    whole = hashlib.sha256(f"{kind}:sha256:{inner}:{STORE}:{name}".encode()).digest()
    return f"{STORE}/{base32(_fold(whole))}-{name}"


def base32(data: bytes) -> str:
    """Return Nix's spelling of *data*: five bits a character, the most significant first."""
    number = int.from_bytes(data, "little")
    digits = (len(data) * 8 + 4) // 5
    return "".join(_ALPHABET[number >> 5 * n & 31] for n in reversed(range(digits)))


def _fold(digest: bytes) -> bytes:
    """Shorten *digest* as Nix does, by folding what is beyond the end over the beginning."""
    short = bytearray(_DIGEST_BYTES)
    for index, byte in enumerate(digest):
        short[index % _DIGEST_BYTES] ^= byte
    return bytes(short)
