"""A tar from anywhere is the bundle that it claims to be, or it is refused and touches nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import tarfile
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from left_over import nothing_left

from agentix.bundle.nar import nar_hash
from agentix.bundle.reader import read_bundle
from agentix.errors import BundleError
from bundle.handmade import (
    END,
    INFO,
    Link,
    Part,
    Program,
    block,
    file,
    nar,
    padded,
    parts,
    pax,
    record,
    root_tree,
    store_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentix.bundle.reader import ReadBundle
    from bundle.handmade import Bundle, Workshop

PYTHON = b"nix/store/" + store_name("python-3.11").encode()
ROOT = b"nix/store/" + store_name("bundle").encode()


def read(data: bytes, into: Path, chunk: int = 1024 * 1024) -> ReadBundle:
    into.mkdir()
    into.chmod(0o700)  # whatever the umask
    return read_bundle(iter(partial(io.BytesIO(data).read, chunk), b""), into)


def raw(members: list[Part]) -> bytes:
    return b"".join(member.raw for member in members) + END


@pytest.fixture
def good(bundle: Bundle) -> list[Part]:
    return parts(bundle)


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[Callable[[bytes, str], str]]:
    """Assert that a tar is refused in one line that says so, with nothing outside its folder."""
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "into").mkdir()
    count = 0

    def check(data: bytes, problem: str) -> str:
        nonlocal count
        count += 1
        with pytest.raises(BundleError) as caught:
            read(data, tmp_path / f"into/{count}")
        message = str(caught.value)
        assert problem in message
        assert message.isprintable()
        assert not (tmp_path / f"into/{count}/manifest.json").exists(), "it looks complete"
        shutil.rmtree(tmp_path / f"into/{count}")
        return message

    ours = {"into", "workshop"}
    before = {path for path in tmp_path.rglob("*") if ours.isdisjoint(path.parts)}
    with nothing_left():
        yield check
    assert {path for path in tmp_path.rglob("*") if ours.isdisjoint(path.parts)} == before
    assert (tmp_path / "victim").read_text() == "untouched"


@pytest.mark.parametrize("chunk", [1, 511, 512, 1000, 1024 * 1024])
def test_a_good_bundle_comes_out_as_it_went_in(
    bundle: Bundle, good: list[Part], tmp_path: Path, chunk: int
) -> None:
    result = read(raw(good), tmp_path / "into", chunk)
    assert result.sha256 == hashlib.sha256(raw(good)).hexdigest()
    assert result.size == len(raw(good))
    assert json.loads(result.manifest.to_bytes()) == bundle.manifest()
    into = tmp_path / "into"
    assert sorted(path.name for path in into.iterdir()) == ["manifest.json", "nix"]
    assert sorted(path.name for path in (into / "nix").iterdir()) == ["run", "runtime", "store"]
    assert list((into / "nix/run").iterdir()) == []
    assert str((into / "nix/runtime").readlink()) == f"/nix/store/{store_name('bundle')}/runtime"
    for entry in bundle.closure:
        unpacked = nar_hash(into / "nix/store" / entry.path.name)
        assert (unpacked.sha256, unpacked.size) == (entry.sha256, entry.size)
    assert (into / "manifest.json").read_bytes() == result.manifest.to_bytes()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_modes_and_times_do_not_depend_on_the_umask(
    good: list[Part], tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        read(raw(good), tmp_path / "into")
    finally:
        os.umask(before)
    for path in (tmp_path / "into").rglob("*"):
        status = path.lstat()
        if path.is_symlink():
            pass
        elif path.is_dir():
            assert status.st_mode & 0o7777 == 0o755, path
        else:
            executable = path.name in {"bootstrap.sh", "python3"}
            assert status.st_mode & 0o7777 == (0o555 if executable else 0o444), path
        if "store" in path.parts:
            assert status.st_mtime == 1, path
    assert (tmp_path / "into").stat().st_mode & 0o7777 == 0o755


HOSTILE: dict[str, tuple[bytes, str]] = {
    "absolute path": (file(b"/tmp/evil", b"x"), "'/tmp/evil' has an absolute path"),
    "climbing path": (file(b"../evil", b"x"), "'../evil' climbs out"),
    "climbing in the middle": (file(PYTHON + b"/../../../evil", b"x"), "climbs out"),
    "climbing by pax": (
        pax(record(b"path", PYTHON + b"/.." * 40)) + block((PYTHON + b"/.." * 40)[:100]),
        "climbs out",
    ),
    "dot": (file(PYTHON + b"/./x", b"x"), "not a plain path"),
    "double slash": (file(PYTHON + b"//x", b"x"), "not a plain path"),
    "trailing slash": (block(PYTHON + b"/lib2/", b"5"), "not a plain path"),
    "outside the store": (file(b"nix/evil", b"x"), "outside the store paths"),
    "beside nix": (file(b"evil", b"x"), "outside the store paths"),
    "the store itself": (block(b"nix/store", b"5"), "outside the store paths"),
    "other case": (file(b"Nix/Store/x", b"x"), "outside the store paths"),
    "undeclared store path": (
        block(b"nix/store/" + store_name("other").encode(), b"5"),
        f"'{store_name('other')}' is not declared",
    ),
    "declared name, other case": (block(PYTHON.upper(), b"5"), "outside the store paths"),
    "hard link": (block(PYTHON + b"/x", b"1", link=b"/etc/passwd"), "a hard link"),
    "character device": (block(PYTHON + b"/x", b"3"), "a character device"),
    "block device": (block(PYTHON + b"/x", b"4"), "a block device"),
    "fifo": (block(PYTHON + b"/x", b"6"), "a fifo"),
    "sparse": (block(PYTHON + b"/x", b"S"), "a GNU sparse file"),
    "gnu long name": (block(b"././@LongLink", b"L", size=5), "a GNU long name"),
    "global pax": (block(b"pax", b"g", size=5), "a global pax header"),
    "unknown type": (block(PYTHON + b"/x", b"\xff"), "unknown type"),
    "setuid": (block(PYTHON + b"/x", mode=0o4555), "mode"),
    "other owner": (block(PYTHON + b"/x", raw_uid=b"0001750\0"), "not one that agentix"),
    "huge pax": (block(b"pax", b"x", size=2**32 - 1), "pax header"),
    "pax after pax": (
        pax(record(b"path", PYTHON + b"/" + b"x" * 200)) * 2,
        "unknown type 'x'",
    ),
    "second manifest": (file(b"manifest.json", b"{}"), "'manifest.json' is outside"),
    "larger than declared": (block(PYTHON + b"/x", size=2**33 - 1), "larger than"),
    "negative size": (block(PYTHON + b"/x", raw_size=b"-0000000001\0"), "not a number"),
    "binary size": (block(PYTHON + b"/x", raw_size=b"\x80" + bytes(10) + b"\1"), "not a number"),
    "folder with content": (block(PYTHON + b"/x", b"5", size=5), "folder with content"),
    "link with content": (block(PYTHON + b"/x", b"2", link=b"y", size=5), "link with content"),
    "empty link": (block(PYTHON + b"/x", b"2"), "target is empty"),
    "bad checksum": (block(PYTHON + b"/x", raw_checksum=b"012345\0 "), "checksum"),
    "the end, early": (END, "is declared but missing"),
    "runtime, early": (block(b"nix/runtime", b"2", link=b"/x"), "is declared but missing"),
    "control characters": (file(b"\x1b[31m\n/../x", b"x"), "climbs out"),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("where", ["in front", "inside", "behind"])
def test_a_hostile_member_is_refused_wherever_it_comes(
    good: list[Part], refused: Callable[[bytes, str], str], case: str, where: str
) -> None:
    member, problem = HOSTILE[case]
    # In front of all store paths, in the root of the first, behind its last member.
    first = 1
    paths = [part.path for part in good]
    inside = next(i for i, path in enumerate(paths) if path.startswith(PYTHON)) + 1
    at = {"in front": first, "inside": inside, "behind": len(good) - 1}[where]
    data = raw([*good[:at], Part(b"", member), *good[at:]])
    if where == "behind" and problem == "is declared but missing":
        problem = ""  # everything has come by then: something else is wrong
    if "larger" in problem and where != "inside":
        problem = ""  # refused already for where it is
    if case in {"hard link", "setuid"}:
        assert problem
    refused(data, problem)


def test_a_link_is_never_followed(good: list[Part], refused: Callable[[bytes, str], str]) -> None:
    """A link out, and then a member 'below' it: the oldest trick."""
    at = next(i for i, part in enumerate(good) if part.path == PYTHON + b"/bin")
    link = Part(PYTHON + b"/bi", block(PYTHON + b"/bi", b"2", link=b"/tmp"))
    evil = Part(PYTHON + b"/bi/x", file(PYTHON + b"/bi/x", b"x"))
    refused(raw([*good[:at], link, evil, *good[at:]]), "has no folder to be in")


def test_a_link_cannot_take_the_place_of_a_folder(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    for path in (PYTHON, PYTHON + b"/bin"):
        at = next(i for i, part in enumerate(good) if part.path == path)
        link = Part(b"", block(path, b"2", link=b"/tmp"))
        refused(raw([*good[: at + 1], link, *good[at + 1 :]]), "comes twice")
        refused(raw([*good[:at], link, *good[at + 1 :]]), "has no folder to be in")


def test_no_member_comes_twice_or_too_late(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    for index in range(1, len(good)):
        refused(raw([*good[:index], good[index], *good[index:]]), "")
        if index < len(good) - 1:
            swapped = [*good[:index], good[index + 1], good[index], *good[index + 2 :]]
            refused(raw(swapped), "")


def test_store_paths_come_in_the_order_of_their_names(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    first = [part for part in good if part.path.startswith(PYTHON)]
    second = [part for part in good if part.path.startswith(ROOT)]
    if good[1] == second[0]:
        first, second = second, first
    refused(raw([good[0], *second, *first, good[-1]]), "comes twice or out of order")
    refused(raw([*good[:-1], *first, good[-1]]), "comes twice or out of order")


def test_no_member_may_be_missing(good: list[Part], refused: Callable[[bytes, str], str]) -> None:
    for index in range(len(good)):
        refused(raw([*good[:index], *good[index + 1 :]]), "")


def test_a_tar_cut_anywhere_is_refused(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    data = raw(good)
    cuts = {len(data) * tenth // 10 for tenth in range(10)} | {0, 1, 511, len(data) - 1}
    cuts |= set(range(0, len(data), 512))
    for cut in sorted(cuts):
        refused(data[:cut], "")
    assert "truncated" in refused(data[: len(data) // 2], "")


def test_any_flipped_byte_is_noticed(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    data = raw(good)
    # Every byte of the first header, and a sample of all that follows.
    places = {*range(512), *range(0, len(data), 199), *range(len(data) - 1600, len(data), 31)}
    for place in sorted(places):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        refused(bytes(flipped), "")


@pytest.mark.parametrize("garbage", [b"x", bytes(512), bytes(9216), b"\x1f\x8b" + bytes(600)])
def test_nothing_may_follow_the_end(
    good: list[Part], refused: Callable[[bytes, str], str], garbage: bytes
) -> None:
    refused(raw(good) + garbage, "more data after its end")


def test_members_after_the_runtime_link_are_refused(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    refused(raw([*good, Part(b"", file(b"x", b"x"))]), "members after nix/runtime")
    refused(raw([*good, good[-1]]), "members after nix/runtime")


@pytest.mark.parametrize(
    "target", [b"/etc", b"../../..", b"/nix/store/x/runtime", b"/nix/store", ROOT + b"/runtime"]
)
def test_the_runtime_link_leads_to_the_root_and_nowhere_else(
    good: list[Part], refused: Callable[[bytes, str], str], target: bytes
) -> None:
    link = Part(b"", block(b"nix/runtime", b"2", link=target))
    refused(raw([*good[:-1], link]), "its nix/runtime is not a link to /nix/store/")


def test_the_runtime_is_a_link(good: list[Part], refused: Callable[[bytes, str], str]) -> None:
    for other in (block(b"nix/runtime", b"5"), file(b"nix/runtime", b"x")):
        refused(raw([*good[:-1], Part(b"", other)]), "its nix/runtime is not a link")


@pytest.mark.parametrize(
    "root",
    [
        root_tree() | {"runtime": {"bin": {}}},
        root_tree() | {"runtime": {"bootstrap.sh": b"not executable"}},
        root_tree() | {"runtime": {"bootstrap.sh": Link("/bin/sh")}},
        root_tree() | {"runtime": {"bootstrap.sh": {}}},
        root_tree() | {"runtime": Link("/nix/store/other/runtime")},
    ],
    ids=["missing", "not executable", "a link", "a folder", "in a linked folder"],
)
def test_a_bundle_without_a_program_to_start_is_refused(
    workshop: Workshop, refused: Callable[[bytes, str], str], root: Any
) -> None:
    refused(raw(parts(workshop.bundle(root=root))), "no executable file runtime/bootstrap.sh")


@pytest.mark.parametrize("info", [None, Link("/etc/passwd"), {}], ids=["missing", "link", "folder"])
def test_a_root_without_info_is_refused(
    workshop: Workshop, refused: Callable[[bytes, str], str], info: Any
) -> None:
    root = root_tree()
    del root["info.json"]
    if info is not None:
        root["info.json"] = info
    refused(raw(parts(workshop.bundle(root=root))), "has no info.json")


def test_a_manifest_that_contradicts_the_root_is_refused(
    workshop: Workshop, refused: Callable[[bytes, str], str]
) -> None:
    bundle = workshop.bundle(root=root_tree(INFO | {"platform": "linux/arm64"}))
    refused(raw(parts(bundle)), "manifest.json contradicts the info.json of its root")


def links_to(path: Path) -> str:
    return os.readlink(path)  # noqa: PTH115 - pathlib would tidy the target


def manifest_part(value: dict[str, Any] | bytes) -> Part:
    if isinstance(value, dict):
        value = (json.dumps(value, sort_keys=True, indent=2) + "\n").encode()
    return Part(b"manifest.json", file(b"manifest.json", value))


def test_a_manifest_that_lies_about_content_is_refused(
    bundle: Bundle, good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    for entry in bundle.closure:
        name = entry.path.name
        for change in ({"sha256": "0" * 64}, {"size": entry.size + 8}):
            lie = bundle.manifest()
            lie["closure"][name] |= change
            refused(raw([manifest_part(lie), *good[1:]]), f"store path {name} does not have")
        lie = bundle.manifest()
        lie["closure"][name]["size"] -= 8
        refused(raw([manifest_part(lie), *good[1:]]), "")
        lie = bundle.manifest()
        del lie["closure"][name]
        refused(raw([manifest_part(lie), *good[1:]]), "")
    lie = bundle.manifest()
    lie["closure"][store_name("other")] = {"sha256": "0" * 64, "size": 96}
    refused(raw([manifest_part(lie), *good[1:]]), "")


def test_a_manifest_has_one_text_only(
    bundle: Bundle, good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    compact = json.dumps(bundle.manifest(), sort_keys=True).encode()
    refused(raw([manifest_part(compact), *good[1:]]), "not written as agentix build writes it")
    text = json.dumps(bundle.manifest(), sort_keys=True, indent=2).encode() + b"\n"
    twice = text.replace(b'  "format": 2', b'  "format": 2,\n  "format": 2', 1)
    assert twice != text
    refused(raw([manifest_part(twice), *good[1:]]), "not written as agentix build writes it")


def test_what_does_not_begin_with_a_manifest_is_no_bundle(
    good: list[Part], refused: Callable[[bytes, str], str]
) -> None:
    refused(raw(good[1:]), "it begins with")
    refused(END, "it begins with nothing")
    refused(b"", "it is not a bundle made by agentix build (it is truncated)")
    refused(b"\x1f\x8b" + bytes(range(256)) * 40, "it is not a bundle made by agentix build")
    refused(b"PK\3\4" + bytes(1020), "it is not a bundle made by agentix build")
    text = b"Some text, which may have \x1b[31mcolours\n" * 40
    said = "it is not a bundle made by agentix build (there is no header of a tar where one"
    refused(text, said)
    link = Part(b"", block(b"manifest.json", b"2", link=b"/etc/passwd"))
    refused(raw([link, *good[1:]]), "not with manifest.json")
    big = Part(b"", block(b"manifest.json", size=2**32))
    refused(raw([big, *good[1:]]), "above 16777216 bytes")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_tar_made_by_other_means_is_refused(
    good: list[Part], tmp_path: Path, refused: Callable[[bytes, str], str], form: int
) -> None:
    """Also when its content is right: a bundle has one digest, so it has one form."""
    read(raw(good), tmp_path / "into/first")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for name in ("manifest.json", "nix"):
            tar.add(tmp_path / "into/first" / name, name)
    refused(stream.getvalue(), "it is not a bundle made by agentix build")


def test_links_are_data_whatever_they_point_to(workshop: Workshop, tmp_path: Path) -> None:
    """Real store paths hold dangling links, absolute ones, and links out of everything."""
    links: dict[str | bytes, Link] = {
        "dangling": Link("nowhere"),
        "absolute": Link("/build/source/result"),
        "up": Link("../" * 50 + "etc/passwd"),
        "itself": Link("itself"),
        "long": Link("/" + "x/" * 1900),
        b"\xff": Link("\udcfe"),
    }
    bundle = workshop.bundle({"gcroots": links, "single-link": Link("/etc"), "single-file": b"1"})
    read(bundle.write(tmp_path / "x.tar").path.read_bytes(), tmp_path / "into")
    store = tmp_path / "into/nix/store"
    for name, target in links.items():
        assert links_to(store / store_name("gcroots") / os.fsdecode(name)) == target
    assert links_to(store / store_name("single-link")) == "/etc"
    assert (store / store_name("single-file")).read_bytes() == b"1"


def test_deep_and_long_paths_survive(workshop: Workshop, tmp_path: Path) -> None:
    deep: Any = Program(b"bottom")
    for level in range(120):
        deep = {f"level-{level}": deep}
    long = {"n" * 255: {"m" * 255: {"o" * 255: b"1"}}}
    bundle = workshop.bundle({"deep": deep, "long": long})
    read(bundle.write(tmp_path / "x.tar").path.read_bytes(), tmp_path / "into")
    unpacked = nar_hash(tmp_path / "into/nix/store" / store_name("deep"))
    assert unpacked.sha256 == hashlib.sha256(nar(bundle.trees["deep"])).hexdigest()


def test_memory_stays_bounded_for_a_large_file(workshop: Workshop, tmp_path: Path) -> None:
    """256 MB in a single file, of which never more than a few chunks are held."""
    size = 256 * 1024 * 1024
    chunk = bytes(1024 * 1024)
    digest, total = hashlib.sha256(), 0
    frame = nar(Program(b""))
    head, tail = frame[: -16 - 8], frame[-16:]
    for piece in (head, size.to_bytes(8, "little"), *[chunk] * (size // len(chunk)), tail):
        digest.update(piece)
        total += len(piece)
    bundle = workshop.bundle()
    manifest = bundle.manifest()
    name = store_name("huge")
    manifest["closure"][name] = {"sha256": digest.hexdigest(), "size": total}
    members = parts(bundle)[1:]
    before = [
        m for m in members if m.path < b"nix/store/" + name.encode() and m.path != b"nix/runtime"
    ]
    after = members[len(before) :]

    def chunks() -> Iterator[bytes]:
        yield manifest_part(manifest).raw + b"".join(m.raw for m in before)
        yield block(b"nix/store/" + name.encode(), size=size, mode=0o555)
        for _ in range(size // len(chunk)):
            yield bytes(1024 * 1024)
        yield b"".join(m.raw for m in after) + END

    (tmp_path / "into").mkdir()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_bundle(chunks(), tmp_path / "into")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) // 1024
    assert grown < 64, f"{grown} MB"
    assert (tmp_path / "into/nix/store" / name).stat().st_size == size


def test_padding_holds_nothing(good: list[Part], refused: Callable[[bytes, str], str]) -> None:
    at = next(i for i, part in enumerate(good) if part.path.endswith(b"/os.py"))
    content = b"import sys\n"
    header = good[at].raw[:512]
    smuggled = header + padded(content)[:-1] + b"!"
    refused(raw([*good[:at], Part(b"", smuggled), *good[at + 1 :]]), "its padding is not empty")
