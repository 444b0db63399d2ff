"""The tar format of a bundle, one member at a time: POSIX ustar, with pax records where it must.

There is exactly one way to write a member. Reading is therefore strict without a list of tricks to
refuse: a header is taken apart, written again, and must come out the same, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from agentix.bundle.tree import Kind
from agentix.errors import BundleError
from agentix.text import plain

BLOCK = 512
END = bytes(2 * BLOCK)
MAX_EXTENDED = 16 * 1024  # a path and a link target of 4095 bytes each, and to spare
MAX_PATH = 4000  # what Linux admits, less what comes in front of it in a cache
MAX_NAME = 255
MAX_DEPTH = 128  # one descriptor a level is open while a bundle is unpacked

_OWNER = b"0000000\0" * 2
_TIME = b"00000000001\0"
_MAGIC = b"ustar\0" + b"00"
_NOBODY = bytes(64)  # names of user and group
_DEVICE = b"0000000\0" * 2
_MODE = {False: b"0000444\0", True: b"0000555\0"}
_TYPE = {Kind.FILE: b"0", Kind.SYMLINK: b"2", Kind.DIRECTORY: b"5"}
_KIND = {letter: kind for kind, letter in _TYPE.items()}
_EXTENDED = b"x"
_REFUSED = {
    b"\0": "a file in a form older than POSIX",
    b"1": "a hard link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a fifo",
    b"7": "a contiguous file",
    b"D": "a GNU directory dump",
    b"K": "a GNU long link",
    b"L": "a GNU long name",
    b"M": "a GNU multi-volume part",
    b"S": "a GNU sparse file",
    b"V": "a GNU volume label",
    b"g": "a global pax header",
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a bundle's tar."""

    path: bytes
    kind: Kind
    size: int = 0
    executable: bool = False
    target: bytes = b""

    def header(self) -> bytes:
        """Return everything that precedes the content: one block, or three or more with pax."""
        records: dict[bytes, bytes] = {}
        name, prefix = self.path, b""
        if len(name) > 100:
            # The shortest prefix that will do.
            cut = name.find(b"/", len(name) - 101)
            if 0 < cut <= 155 and cut + 1 < len(name):
                prefix, name = name[:cut], name[cut + 1 :]
            else:
                records[b"path"] = name
                name = name[:100]
        target = self.target
        if len(target) > 100:
            records[b"linkpath"] = target
            target = target[:100]
        size = self.size
        if size >= 8**11:
            records[b"size"] = b"%d" % size
            size = 0
        executable = self.executable or self.kind is not Kind.FILE
        block = _block(_TYPE[self.kind], name, prefix, size, executable, target)
        return _extended(records) + block if records else block


def padding(size: int) -> int:
    """Return how many zeros follow *size* bytes of content."""
    return -size % BLOCK


def extended_size(block: bytes) -> int | None:
    """Return the size of the pax records that *block* announces; None when it announces none.

    Raises BundleError for more of them than two long paths can need.
    """
    if block[156:157] != _EXTENDED:
        return None
    size = _number(block[124:136])
    if size is None or not 0 < size <= MAX_EXTENDED:
        raise BundleError(f"it has a pax header that is not between 1 and {MAX_EXTENDED} bytes")
    return size


def parse(extended: bytes, block: bytes) -> Member:
    """Read the header whose last block is *block*, with the pax blocks *extended* before it.

    Raises BundleError for every header that :meth:`Member.header` would not have written.
    """
    if block[257:265] != _MAGIC and _number(block[124:136]) is None:  # nor any other tar's
        raise BundleError("there is no header of a tar where one has to be")
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0]
    path = prefix + b"/" + name if prefix else name
    target = block[157:257].split(b"\0", 1)[0]
    size = _number(block[124:136])
    if size is None:
        raise BundleError(f"member {plain(path)!r} is damaged: its size is not a number")
    if extended:
        records = _records(extended[BLOCK:])
        path = records.get(b"path", path)
        target = records.get(b"linkpath", target)
        if b"size" in records and records[b"size"].isdigit() and len(records[b"size"]) < 20:
            size = int(records[b"size"])
    letter = block[156:157]
    kind = _KIND.get(letter)
    if kind is None:
        what = _REFUSED.get(letter, f"of the unknown type {plain(letter)!r}")
        raise BundleError(f"member {plain(path)!r} is {what}, which no bundle contains")
    executable = kind is Kind.FILE and block[100:108] == _MODE[True]
    member = Member(path, kind, size, executable, target)
    check(member)
    if member.header() != extended + block:
        raise BundleError(_difference(member, block))
    return member


def check(member: Member) -> None:
    """Refuse a path that could mean anything but a plain way down, and data where none belongs."""
    path = member.path
    parts = path.split(b"/")
    problem = None
    if path.startswith(b"/"):
        problem = "has an absolute path"
    elif b".." in parts:
        problem = "climbs out with '..'"
    elif b"" in parts or b"." in parts or b"\0" in path:
        problem = "is not a plain path"
    elif len(parts) > MAX_DEPTH or (len(path) > MAX_NAME and _too_long(path, parts)):
        problem = "has a path that is too long or too deep"
    elif member.kind is not Kind.FILE and member.size:
        problem = f"is a {member.kind.value} with content"
    elif member.kind is not Kind.SYMLINK and member.target:
        problem = "has a link target but is no link"
    elif member.kind is Kind.SYMLINK:
        target = member.target
        if not target or len(target) > MAX_PATH or b"\0" in target:
            problem = "is a link whose target is empty or too long"
    if problem:
        raise BundleError(f"member {plain(path)!r} {problem}")


def _too_long(path: bytes, parts: list[bytes]) -> bool:
    return len(path) > MAX_PATH or max(map(len, parts)) > MAX_NAME


def _block(
    letter: bytes, name: bytes, prefix: bytes, size: int, executable: bool, target: bytes
) -> bytes:
    head = b"%b%b%b%011o\0%b" % (name.ljust(100, b"\0"), _MODE[executable], _OWNER, size, _TIME)
    tail, checksum = _tail(letter, prefix, target)
    return b"%b%06o\0 %b" % (head, sum(head) + checksum, tail)


@lru_cache(256)
def _tail(letter: bytes, prefix: bytes, target: bytes) -> tuple[bytes, int]:
    """Return what follows the checksum, which neighbours share, and its part of the checksum."""
    tail = b"%b%b%b%b%b%b" % (
        letter,
        target.ljust(100, b"\0"),
        _MAGIC,
        _NOBODY,
        _DEVICE,
        prefix.ljust(167, b"\0"),
    )
    return tail, sum(tail) + 8 * 32


def _extended(records: dict[bytes, bytes]) -> bytes:
    pairs = sorted(records.items())
    try:
        b"".join(records.values()).decode()
    except UnicodeDecodeError:
        pairs.insert(0, (b"hdrcharset", b"BINARY"))
    data = b"".join(_record(key, value) for key, value in pairs)
    return _block(_EXTENDED, b"pax", b"", len(data), False, b"") + data + bytes(padding(len(data)))


def _record(key: bytes, value: bytes) -> bytes:
    """Return ``LENGTH key=value``, where the length counts its own digits."""
    body = b" %b=%b\n" % (key, value)
    length = len(body)
    while len(body) + len(str(length)) != length:
        length = len(body) + len(str(length))
    return b"%d%b" % (length, body)


def _records(data: bytes) -> dict[bytes, bytes]:
    """Take pax records apart, forgivingly: writing them again is what judges them."""
    records: dict[bytes, bytes] = {}
    while data and (digits := data[:6].split(b" ", 1)[0]).isdigit() and int(digits) > 0:
        record, data = data[: int(digits)], data[int(digits) :]
        key, _, value = record[len(digits) + 1 :].partition(b"=")
        records[key] = value.removesuffix(b"\n")
    return records


def _number(field: bytes) -> int | None:
    digits = field[:-1]
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _difference(member: Member, block: bytes) -> str:
    shown = plain(member.path)
    checksum = sum(block) - sum(block[148:156]) + 8 * 32
    if _number(block[148:155]) != checksum:
        return f"the header of member {shown!r} is damaged: its checksum is wrong"
    if block[100:108] not in _MODE.values():
        return f"member {shown!r} has a mode that no store path has"
    return f"the header of member {shown!r} is not one that agentix build writes"
