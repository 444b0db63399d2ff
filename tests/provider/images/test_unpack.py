"""Layers go into a folder as an engine would apply them, and nowhere else."""

from __future__ import annotations

import io
import stat
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from agentix.errors import ImageError
from agentix.provider.images.tars import DAMAGED
from agentix.provider.images.unpack import Unpacker

if TYPE_CHECKING:
    from pathlib import Path

Entry = tuple[str, dict[str, Any]]


def file(name: str, content: str = "", **more: Any) -> Entry:
    return name, {"content": content, "mode": 0o644, **more}


def folder(name: str, **more: Any) -> Entry:
    return name, {"type": tarfile.DIRTYPE, "mode": 0o755, **more}


def symlink(name: str, target: str) -> Entry:
    return name, {"type": tarfile.SYMTYPE, "linkname": target}


def hard(name: str, target: str) -> Entry:
    return name, {"type": tarfile.LNKTYPE, "linkname": target}


def layer(*entries: Entry) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, fields in entries:
            member = tarfile.TarInfo(name)
            content = fields.pop("content", "").encode()
            for field, value in fields.items():
                setattr(member, field, value)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    stream.seek(0)
    return stream


def unpack(root: Path, *layers: io.BytesIO) -> None:
    root.mkdir(exist_ok=True)
    unpacker = Unpacker(root)
    for each in layers:
        unpacker.apply(each)
    unpacker.finish()


def tree(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "victim").write_text("untouched")
    return tmp_path / "root"


@pytest.fixture(autouse=True)
def _nothing_happens_outside(tmp_path: Path, root: Path):  # type: ignore[no-untyped-def]
    yield
    assert tree(tmp_path / "outside") == {"victim"}
    assert (tmp_path / "outside" / "victim").read_text() == "untouched"
    assert (tmp_path / "outside" / "victim").stat().st_nlink == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"outside", "root"}


def test_a_later_layer_replaces_and_adds(root: Path) -> None:
    unpack(
        root,
        layer(folder("a"), file("a/x", "old"), file("a/y", "kept"), symlink("l", "a")),
        layer(file("a/x", "new"), file("l", "a file now"), file("b/c/d", "no folder was said")),
    )
    assert (root / "a/x").read_text() == "new"
    assert (root / "a/y").read_text() == "kept"
    assert (root / "l").read_text() == "a file now"
    assert not (root / "l").is_symlink()
    assert (root / "b/c/d").read_text() == "no folder was said"


def test_a_whiteout_removes_a_file_a_tree_or_a_link_but_not_what_it_leads_to(root: Path) -> None:
    unpack(
        root,
        layer(file("f"), folder("d"), file("d/x"), symlink("l", "keep"), folder("keep")),
        layer(file(".wh.f"), file(".wh.d"), file(".wh.l"), file(".wh.never-was")),
    )
    assert tree(root) == {"keep"}


@pytest.mark.parametrize("opaque_first", [True, False])
def test_an_opaque_folder_hides_lower_layers_only(root: Path, opaque_first: bool) -> None:
    opaque = file("d/.wh..wh..opq")
    mine = [folder("d"), folder("d/both"), file("d/both/new"), file("d/new")]
    upper = [mine[0], opaque, *mine[1:]] if opaque_first else [*mine, opaque]
    unpack(
        root,
        layer(folder("d"), file("d/old"), folder("d/both"), file("d/both/old"), folder("d/sub")),
        layer(*upper),
    )
    assert tree(root) == {"d", "d/both", "d/both/new", "d/new"}


def test_bookkeeping_of_other_storage_drivers_does_not_become_a_file(root: Path) -> None:
    unpack(root, layer(file(".wh..wh.aufs"), file(".wh..wh.plnk/x"), file("f")))
    assert "f" in tree(root)
    assert not any(".wh." in name.rpartition("/")[2] for name in tree(root) - {".wh..wh.plnk"})


def test_hard_links_stay_links_and_later_layers_part_them(root: Path) -> None:
    unpack(root, layer(file("a", "one"), hard("b", "a"), hard("c", "./a")))
    assert (root / "a").stat().st_ino == (root / "c").stat().st_ino
    unpack(root, layer(file("b", "two")))
    assert (root / "a").read_text() == "one"
    assert (root / "b").read_text() == "two"


def test_a_hard_link_to_a_symbolic_link_is_one(root: Path) -> None:
    unpack(root, layer(symlink("s", "/etc/nowhere"), hard("h", "s")))
    assert (root / "h").is_symlink()


def test_modes_and_times_are_those_of_the_image_less_what_would_act_on_the_host(
    root: Path,
) -> None:
    unpack(
        root,
        layer(
            folder("d", mode=0o1777, mtime=1000),
            file("d/suid", mode=0o6755, mtime=2000),
            file("d/shadow", mode=0o640),
            file("d/sealed", mode=0o000),
            folder("closed", mode=0o555),
        ),
        layer(file("closed/x")),
    )
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}
    assert modes["d"] == 0o1777
    assert modes["suid"] == 0o755
    assert modes["shadow"] == 0o640
    assert modes["sealed"] == 0o600
    assert modes["closed"] == 0o755
    assert (root / "d").stat().st_mtime == 1000
    assert (root / "d/suid").stat().st_mtime == 2000


def test_links_lead_around_inside_the_image_only(root: Path) -> None:
    unpack(
        root,
        layer(folder("usr/lib"), symlink("lib", "usr/lib"), symlink("abs", "/usr")),
        layer(file("lib/a", "1"), file("abs/lib/b", "2")),
        layer(symlink("up", "../../outside"), file("up/victim", "written inside")),
    )
    assert {"usr/lib/a", "usr/lib/b", "outside/victim"} <= tree(root)


def test_what_is_written_below_an_absolute_link_stays_inside(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    unpack(root, layer(symlink("l", str(outside)), file("l/victim", "x")))
    assert root.joinpath(*outside.parts[1:], "victim").read_text() == "x"


def test_a_file_never_goes_through_a_link_of_its_own_name(root: Path, tmp_path: Path) -> None:
    unpack(root, layer(symlink("l", str(tmp_path / "outside/victim")), file("l", "x")))
    assert (root / "l").read_text() == "x"


def test_a_folder_over_a_link_is_a_folder(root: Path, tmp_path: Path) -> None:
    unpack(root, layer(symlink("l", str(tmp_path / "outside")), folder("l", mode=0o700)))
    assert (root / "l").is_dir()
    assert not (root / "l").is_symlink()


def test_a_link_that_was_followed_once_is_looked_at_again_after_it_changed(root: Path) -> None:
    unpack(
        root,
        layer(
            folder("a"),
            folder("b"),
            symlink("l", "a"),
            file("l/one"),
            symlink("l", "b"),
            file("l/two"),
        ),
    )
    assert {"a/one", "b/two"} <= tree(root)


def test_device_nodes_are_left_out_and_a_fifo_is_one(root: Path) -> None:
    unpack(
        root,
        layer(
            ("dev/null", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
            ("dev/sda", {"type": tarfile.BLKTYPE}),
            ("pipe", {"type": tarfile.FIFOTYPE}),
        ),
    )
    assert tree(root) == {"dev", "pipe"}
    assert (root / "pipe").is_fifo()


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (file("../escape"), "leads outside"),
        (file("a/../../escape"), "leads outside"),
        (hard("h", "../outside/victim"), "leads outside"),
        (hard("h", "/outside/victim"), "to what is no file"),
        (hard("h", "nothing"), "to what is no file"),
        (hard("h", "folder"), "to what is no file"),
        (file("folder/.wh.."), "must not"),
        (file("folder/.wh..."), "must not"),
        (file("plain/below"), "no folder"),
        (("odd", {"type": b"W"}), "unknown kind"),
        (file("round/x"), "round in circles"),
    ],
)
def test_a_hostile_member_is_named_and_refused(root: Path, member: Entry, reason: str) -> None:
    before = layer(folder("folder"), file("plain"), symlink("round", "round"))
    with pytest.raises(ImageError, match=reason):
        unpack(root, before, layer(member))


@pytest.mark.parametrize(
    "entry",
    [file("x" * 300), file("/".join(["y" * 200] * 30)), symlink("l", ""), symlink("l", "x" * 5000)],
)
def test_a_member_that_no_file_system_can_hold_is_named_and_not_the_disk(
    root: Path, entry: Entry
) -> None:
    with pytest.raises(ImageError, match=f"cannot be made, '{entry[0][:100]}") as caught:
        unpack(root, layer(entry))
    assert len(str(caught.value)) < 400


def _sparse(size: int, holding: str, content: str = "") -> Entry:
    """Return a file in the second of GNU's sparse forms: a few bytes stand for *size*."""
    headers = {"GNU.sparse.size": str(size), "GNU.sparse.map": holding}
    return file("sparse", content, pax_headers=headers)


def test_holes_in_a_file_stay_holes(root: Path) -> None:
    unpack(root, layer(_sparse(2**40, f"0,3,{2**39},2", "abcde")))
    assert (root / "sparse").stat().st_size == 2**40
    assert (root / "sparse").stat().st_blocks * 512 < 2**20
    with (root / "sparse").open("rb") as content:
        assert content.read(5) == b"abc\0\0"
        content.seek(2**39)
        assert content.read(3) == b"de\0"


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_what_gnu_tar_writes_of_a_file_with_holes_is_read(
    root: Path, tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    made = tmp_path_factory.mktemp("made")
    for name, end in (("some", b"end"), ("all", b"")):
        with (made / name).open("wb") as content:
            content.write(end)
            content.seek(2**20)
            content.write(end)
            content.truncate(2**21)
    command = ["tar", "--create", "--sparse", f"--format={form}", "some", "all", "some"]
    packed = subprocess.run(command, cwd=made, check=True, capture_output=True)
    unpack(root, io.BytesIO(packed.stdout))
    for name in ("some", "all"):
        assert (root / name).read_bytes() == (made / name).read_bytes()


@pytest.mark.parametrize("holding", ["a,b", "0,-3", "-5,2", f"0,{2**70}"])
def test_a_map_of_holes_without_sense_is_the_images_fault(root: Path, holding: str) -> None:
    with pytest.raises((ImageError, *DAMAGED)):
        unpack(root, layer(_sparse(100, holding, "abcde")))


def test_the_memory_for_a_name_is_bounded(root: Path) -> None:
    name = tarfile.TarInfo("././@LongLink")
    name.type, name.size = tarfile.GNUTYPE_LONGNAME, 2**33
    with pytest.raises(tarfile.ReadError, match=str(2**33)):
        unpack(root, io.BytesIO(name.tobuf(tarfile.GNU_FORMAT) + bytes(10240)))


def test_headers_nested_without_end_are_the_images_fault(root: Path) -> None:
    header = tarfile.TarInfo("pax")
    header.type = tarfile.XHDTYPE
    with pytest.raises(tarfile.ReadError):
        unpack(root, io.BytesIO(header.tobuf(tarfile.GNU_FORMAT) * 5000))


def test_folders_deeper_than_the_stack_can_be_hidden_and_removed(root: Path) -> None:
    deep = "/".join(["d"] * 1500)
    opaque = layer(file(f"{deep}/kept"), file(".wh..wh..opq"))
    unpack(root, layer(folder(deep), file(f"{deep}/hidden")), opaque)
    assert [path.name for path in (root / deep).iterdir()] == ["kept"]
    unpack(root, layer(file(".wh.d")))
    assert tree(root) == set()


def test_a_hard_link_through_a_link_stays_inside(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="to what is no file"):
        unpack(root, layer(symlink("l", str(tmp_path / "outside")), hard("h", "l/victim")))


def test_a_leading_slash_means_the_images_root(root: Path) -> None:
    unpack(root, layer(file("/etc/passwd", "x"), hard("/h", "/etc/passwd")))
    assert (root / "h").read_text() == "x"
