from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import SimpleNamespace


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def test_usr_is_merged(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "bin/a", "usr/bin/b", "usr/local/bin/c", "usr/lib/x/d.so", "lib/x/e.so")
    # As a system says itself that the two are one; nothing may be moved onto itself.
    write(tmp_path, "usr/sbin/f")
    (tmp_path / "sbin").symlink_to("usr/sbin")
    builders.tools.merge_usr(tmp_path)
    assert files(tmp_path) == ["bin/a", "bin/b", "bin/c", "lib/x/d.so", "lib/x/e.so", "sbin/f"]


def test_only_what_programs_need_is_kept(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "bin/a", "var/lib/x", "run/y", "share/doc/a/z", "share/a/data", "etc/a.conf")
    builders.tools.prune(tmp_path)
    assert files(tmp_path) == ["bin/a", "etc/a.conf", "share/a/data"]


def test_programs_are_those_of_the_usual_folders(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "bin/a", "sbin/b", "games/c", "lib/d", "share/bin/e")
    assert builders.tools.programs(tmp_path) == {
        "a": Path("bin/a"),
        "b": Path("sbin/b"),
        "c": Path("games/c"),
    }


def test_absolute_links_lead_to_what_is_here(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "lib/git-core/git", "bin/git")
    (tmp_path / "bin/other").symlink_to("/usr/bin/git")
    (tmp_path / "bin/editor").symlink_to("/etc/alternatives/editor")
    (tmp_path / "bin/near").symlink_to("git")
    builders.tools.own_links(tmp_path)
    assert (tmp_path / "bin/other").readlink() == tmp_path / "bin/git"
    assert (tmp_path / "bin/editor").readlink() == Path("/etc/alternatives/editor")
    assert (tmp_path / "bin/near").readlink() == Path("git")


def test_scripts_start_the_interpreter_that_came_along(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    write(tmp_path, "bin/perl", "bin/script", "bin/image", "bin/binary")
    (tmp_path / "bin/script").write_bytes(b"#! /usr/bin/perl -w\nrest \xff\n")
    (tmp_path / "bin/image").write_text("#!/bin/sh\n")
    (tmp_path / "bin/binary").write_bytes(b"\x7fELF\xff")
    builders.tools.own_interpreters(tmp_path)
    script = (tmp_path / "bin/script").read_bytes()
    assert script == b"#!%s -w\nrest \xff\n" % os.fsencode(tmp_path / "bin/perl")
    assert (tmp_path / "bin/image").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "bin/binary").read_bytes() == b"\x7fELF\xff"
