"""Other programs read our tar, and there is one way only to write a member."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from agentix.bundle.archive import BLOCK, END, Member, check, extended_size, parse
from agentix.bundle.tree import Kind
from agentix.errors import BundleError
from bundle.handmade import block, pax, record

if TYPE_CHECKING:
    from pathlib import Path

LONG = b"nix/store/" + b"d" * 60 + b"/"  # with what follows, above 100 bytes
MEMBERS = [
    Member(b"a", Kind.FILE, size=7),
    Member(b"a", Kind.FILE, size=7, executable=True),
    Member(b"folder", Kind.DIRECTORY),
    Member(b"link", Kind.SYMLINK, target=b"/absolute/target"),
    Member(b"link", Kind.SYMLINK, target=b"t" * 100),
    Member(b"link", Kind.SYMLINK, target=b"t" * 101),
    Member(b"n" * 100, Kind.FILE),
    Member(LONG + b"n" * 100, Kind.FILE),
    Member(LONG + b"n" * 101, Kind.FILE),
    Member(b"d" * 155 + b"/" + b"n" * 100, Kind.FILE),
    Member(b"d" * 156 + b"/" + b"n" * 99, Kind.FILE),
    Member(b"/".join([b"x" * 250] * 15), Kind.FILE),
    Member(b"not utf-8 \xff", Kind.FILE),
    Member(LONG + b"not utf-8 \xff" * 10, Kind.SYMLINK, target=b"\xfe" * 200),
    Member(LONG * 3 + "schön".encode() * 10, Kind.SYMLINK, target="ä".encode() * 90),
    Member(b"eight gigabytes", Kind.FILE, size=8**11),
    Member(b"almost", Kind.FILE, size=8**11 - 1),
]


def split(header: bytes) -> tuple[bytes, bytes]:
    return header[:-BLOCK], header[-BLOCK:]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_header_reads_back_as_the_same_member(member: Member) -> None:
    extended, last = split(member.header())
    assert parse(extended, last) == member
    assert bool(extended) == (extended_size(member.header()[:BLOCK]) is not None)


@pytest.mark.parametrize("member", MEMBERS)
def test_pythons_tarfile_reads_the_same(member: Member) -> None:
    stream = io.BytesIO(member.header() + bytes(BLOCK) + END)
    with tarfile.open(fileobj=stream, errors="surrogateescape", encoding="utf-8") as tar:
        info = tar.next()
    assert info is not None
    assert info.name.encode(errors="surrogateescape") == member.path
    assert info.linkname.encode(errors="surrogateescape") == member.target
    assert info.size == member.size
    assert (info.isreg(), info.isdir(), info.issym()) == (
        member.kind is Kind.FILE,
        member.kind is Kind.DIRECTORY,
        member.kind is Kind.SYMLINK,
    )
    executable = member.executable or member.kind is not Kind.FILE
    assert info.mode == (0o555 if executable else 0o444)
    assert (info.mtime, info.uid, info.gid, info.uname, info.gname) == (1, 0, 0, "", "")


def test_gnu_tar_reads_the_same(tmp_path: Path) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar on this machine")
    members = [m for m in MEMBERS if m.size < 100 and m.path.isascii() and m.path != b"link"]
    data = b"".join(m.header() + bytes(-(-m.size // BLOCK) * BLOCK) for m in members) + END
    command = ["tar", "--list", "--file", "-"]
    result = subprocess.run(command, input=data, capture_output=True, check=True)
    assert result.stderr == b""
    listed = [line.rstrip(b"/") for line in result.stdout.splitlines()]
    assert listed == [m.path for m in members]


def test_pax_records_are_there_only_where_a_header_cannot_do() -> None:
    assert len(Member(LONG + b"n" * 100, Kind.FILE).header()) == BLOCK
    assert len(Member(b"d" * 155 + b"/" + b"n" * 100, Kind.FILE).header()) == BLOCK
    assert len(Member(b"d" * 156 + b"/" + b"n" * 99, Kind.FILE).header()) > BLOCK
    assert len(Member(b"link", Kind.SYMLINK, target=b"t" * 100).header()) == BLOCK
    assert len(Member(b"link", Kind.SYMLINK, target=b"t" * 101).header()) == 3 * BLOCK


def test_headers_are_those_that_the_format_asks_for() -> None:
    assert Member(b"a/b", Kind.FILE, size=5).header() == block(b"a/b", size=5)
    link = Member(b"l", Kind.SYMLINK, target=b"t" * 101)
    by_hand = pax(record(b"linkpath", b"t" * 101)) + block(b"l", b"2", link=b"t" * 100)
    assert link.header() == by_hand


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (b"/etc/passwd", "absolute path"),
        (b"../x", "climbs out"),
        (b"a/../../x", "climbs out"),
        (b"a/..", "climbs out"),
        (b"", "not a plain path"),
        (b"a//b", "not a plain path"),
        (b"a/", "not a plain path"),
        (b"./a", "not a plain path"),
        (b"a/.", "not a plain path"),
        (b"a\0b", "not a plain path"),
        (b"x" * 256, "too long"),
        (b"x/" * 2000 + b"x", "too long or too deep"),
        (b"/".join([b"x"] * 129), "too deep"),
    ],
)
def test_a_path_that_is_not_a_plain_way_down_is_refused(path: bytes, problem: str) -> None:
    with pytest.raises(BundleError, match=problem):
        check(Member(path, Kind.FILE))


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (Member(b"d", Kind.DIRECTORY, size=1), "folder with content"),
        (Member(b"l", Kind.SYMLINK, size=1, target=b"x"), "symbolic link with content"),
        (Member(b"f", Kind.FILE, target=b"x"), "no link"),
        (Member(b"l", Kind.SYMLINK), "empty or too long"),
        (Member(b"l", Kind.SYMLINK, target=b"x" * 4001), "empty or too long"),
        (Member(b"l", Kind.SYMLINK, target=b"a\0b"), "target"),
    ],
)
def test_data_where_none_belongs_is_refused(member: Member, problem: str) -> None:
    with pytest.raises(BundleError, match=problem):
        check(member)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (block(b"a", b"1", link=b"/etc/passwd"), "a hard link"),
        (block(b"a", b"3"), "a character device"),
        (block(b"a", b"4"), "a block device"),
        (block(b"a", b"6"), "a fifo"),
        (block(b"a", b"7"), "contiguous"),
        (block(b"a", b"\0"), "older than POSIX"),
        (block(b"a", b"S"), "GNU sparse"),
        (block(b"a", b"L", size=5), "GNU long name"),
        (block(b"a", b"K", size=5), "GNU long link"),
        (block(b"a", b"D"), "GNU directory dump"),
        (block(b"a", b"g", size=5), "global pax"),
        (block(b"a", b"Z"), "unknown type 'Z'"),
        (block(b"a", mode=0o644), "mode"),
        (block(b"a", mode=0o4555), "mode"),
        (block(b"a", b"5", mode=0o444), "not one that agentix build writes"),
        (block(b"a", raw_uid=b"0001750\0"), "not one that"),
        (block(b"a", raw_gid=b"0001750\0"), "not one that"),
        (block(b"a", raw_mtime=b"14000000000\0"), "not one that"),
        (block(b"a", raw_uname=b"root"), "not one that"),
        (block(b"a", raw_magic=b"ustar  \0"), "not one that"),
        (block(b"a", raw_magic=b""), "not one that"),
        (block(b"a", raw_major=b""), "not one that"),
        (block(b"a", raw_rest=b"x"), "not one that"),
        (block(b"a", raw_size=b"\x80" + b"\0" * 10 + b"\x05"), "size is not a number"),
        (block(b"a", raw_size=b"-0000000001\0"), "size is not a number"),
        (block(b"a", raw_size=b"         10\0"), "size is not a number"),
        (block(b"a", raw_size=b"00000000009\0"), "size is not a number"),
        (block(b"a", raw_checksum=b"000000\0 "), "checksum is wrong"),
        (block(b"a", prefix=b"b"), "not one that"),
        (block(b"b", prefix=b"/etc"), "absolute"),
        (block(b"a\0b"), "not one that"),
    ],
)
def test_any_other_header_is_refused_and_named(raw: bytes, problem: str) -> None:
    with pytest.raises(BundleError, match=problem):
        parse(b"", raw)


@pytest.mark.parametrize(
    "extended",
    [
        pax(record(b"path", b"short")),
        pax(record(b"path", b"p" * 101), record(b"path", b"q" * 101)),
        pax(record(b"path", b"p" * 101), record(b"comment", b"hi")),
        pax(record(b"GNU.sparse.major", b"1"), record(b"path", b"p" * 101)),
        pax(record(b"size", b"5")),
        pax(record(b"size", b"9" * 40)),
        pax(record(b"mtime", b"1.5")),
        pax(b"13 path=short\n", record(b"linkpath", b"x")),
        pax(b"nonsense"),
        pax(b"99999 path=x\n"),
        pax(b"0 path=x\n"),
        pax(b"-5 path=x\n"),
        pax(record(b"path", b"p" * 101))[:-1] + b"x",
        pax(record(b"hdrcharset", b"BINARY"), record(b"path", b"p" * 101)),
        pax(record(b"path", b"../" + b"p" * 101)),
        pax(record(b"path", b"p" * 101 + b"\0")),
    ],
)
def test_pax_records_have_one_form_only(extended: bytes) -> None:
    with pytest.raises(BundleError):
        parse(extended, block(b"p" * 100))


def test_large_pax_headers_are_refused_before_they_are_read() -> None:
    for size in (0, 16 * 1024 + 1, 8**11 - 1):
        with pytest.raises(BundleError, match="pax header"):
            extended_size(block(b"pax", b"x", size=size))
