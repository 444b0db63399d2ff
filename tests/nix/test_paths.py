"""Paths that programs have compiled in lead to the packages' files, and no others do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import SimpleNamespace

MULTIARCH = "x86_64-linux-gnu"
FILES = (
    *("lib/git-core/git-x", "share/git-core/templates/HEAD", "bin/helper", "share/misc/magic"),
    *("share/nodejs/acorn/acorn.js", f"lib/{MULTIARCH}/sasl2/libx.so", "lib/gcc/x/12/include/a.h"),
    *("etc/ssl/certs/ca-certificates.crt", "etc/tool.conf", "share/abc", "share/ab"),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\0")
    return tmp_path


@pytest.fixture
def rewriting(builders: SimpleNamespace, tree: Path) -> SimpleNamespace:
    table = builders.needs.load()
    needs = builders.needs.Needs(untouched=table.untouched, taken=table.taken)
    found: SimpleNamespace = builders.paths.Rewriting(tree, MULTIARCH, needs)
    return found


def compiled(make_elf: Callable[..., bytes], *texts: str) -> bytes:
    return make_elf() + b"\0" + b"\0".join(text.encode() for text in texts) + b"\0"


@pytest.mark.parametrize(
    ("path", "becomes"),
    [
        ("/usr/lib/git-core", "/nix/runtime/core"),
        ("/usr/lib/git-core/", "/nix/runtime/core/"),
        ("/usr/lib/git-core/git-x", "/nix/runtime/core/git-x"),
        ("/usr/lib/git-core/%s", "/nix/runtime/core/%s"),
        ("/usr/share/git-core/templates", "/nix/runtime/t-core/templates"),
        ("/etc:/usr/lib/git-core:/opt", "/etc:/nix/runtime/core:/opt"),
        ("/etc/ssl/certs/ca-certificates.crt", "/nix/runtime/s/ca-certificates.crt"),
        (f"/usr/lib/{MULTIARCH}/sasl2", "/nix/runtime/64-linux-gnu-sasl2"),
        ("/usr/bin/helper", "/nix/runtime/er"),
        # In a folder of ours, so its absence is ours, too.
        ("/usr/share/nodejs/missing.js", "/nix/runtime/dejs/missing.js"),
    ],
)
def test_what_came_with_the_packages_is_found_here(
    rewriting: SimpleNamespace,
    make_elf: Callable[..., bytes],
    tree: Path,
    path: str,
    becomes: str,
) -> None:
    program = tree / "bin/program"
    program.write_bytes(compiled(make_elf, path))
    program.chmod(0o555)
    size = program.stat().st_size
    rewriting.run()
    assert program.read_bytes().split(b"\0")[-2].decode() == becomes
    assert (program.stat().st_size, program.stat().st_mode & 0o777) == (size, 0o555)
    (name, target) = next(iter(rewriting.aliases.items()))
    assert len(f"/nix/runtime/{name}") <= len(path)
    assert target.exists()


@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib",
        "/usr/bin",
        f"/usr/lib/{MULTIARCH}",
        "/usr/share/misc/pci.ids",
        "/usr/share/other",
        "/usr/share/git",
        "/usr/share/git-core-more",
        "/etc/tool.conf",
        "/usr/lib/gcc/x/12/include",
        "/sysroot/usr/lib/git-core",
        "lib/git-core",
        "/usr/lib/../lib/git-core",
        "/usr/share/ab",  # too short for an alias
        "/bin/helper",
    ],
)
def test_all_else_means_the_images(
    rewriting: SimpleNamespace, make_elf: Callable[..., bytes], tree: Path, path: str
) -> None:
    program = tree / "bin/program"
    program.write_bytes(compiled(make_elf, path))
    before = program.read_bytes()
    rewriting.run()
    assert program.read_bytes() == before
    assert rewriting.aliases == {}


def test_texts_name_the_files_themselves(rewriting: SimpleNamespace, tree: Path) -> None:
    script = tree / "bin/script"
    script.write_text("use lib '/usr/share/abc';\nexec /bin/helper /usr/bin/env /usr/share/x\n")
    for untouched in ("include/paths.h", "lib/libc.so", "lib/data"):
        (tree / untouched).parent.mkdir(exist_ok=True)
        (tree / untouched).write_text("/usr/share/abc")
    (tree / "lib/data").write_text("/usr/share/abc\0")
    rewriting.run()
    assert script.read_text() == (
        f"use lib '{tree}/share/abc';\nexec {tree}/bin/helper /usr/bin/env /usr/share/x\n"
    )
    assert (tree / "include/paths.h").read_text() == "/usr/share/abc"
    assert (tree / "lib/libc.so").read_text() == "/usr/share/abc"
    assert (tree / "lib/data").read_text() == "/usr/share/abc\0"
    assert rewriting.reached == {tree / "share/abc", tree / "bin/helper"}


def test_a_relative_text_of_the_table_becomes_absolute(
    builders: SimpleNamespace, make_elf: Callable[..., bytes], tree: Path
) -> None:
    program = tree / "bin/git"
    program.write_bytes(
        compiled(make_elf, "more/share/git-core/templates", "share/git-core/templates")
    )
    rewriting = builders.paths.Rewriting(tree, MULTIARCH, builders.needs.load())
    rewriting.run()
    assert b"\0more/share/git-core/templates\0/nix/runtime/e-templates\0" in program.read_bytes()
    assert rewriting.aliases == {"e-templates": tree / "share/git-core/templates"}


def test_a_text_of_the_table_that_is_not_there_fails_the_build(
    builders: SimpleNamespace, make_elf: Callable[..., bytes], tree: Path
) -> None:
    (tree / "bin/git").write_bytes(compiled(make_elf, "something else"))
    rewriting = builders.paths.Rewriting(tree, MULTIARCH, builders.needs.load())
    with pytest.raises(SystemExit, match="bin/git has no text 'share/git-core/templates'"):
        rewriting.run()


def test_two_paths_with_one_end_get_two_names(
    rewriting: SimpleNamespace, make_elf: Callable[..., bytes], tree: Path
) -> None:
    for name in ("lib/one/dir", "lib/two/dir"):
        (tree / name).mkdir(parents=True)
    paths = ("/usr/lib/one/dir", "/usr/lib/two/dir")
    # Their folders are theirs as well, and too short; what is left of both is "dir".
    (tree / "bin/program").write_bytes(compiled(make_elf, *paths))
    rewriting.run()
    assert len(rewriting.aliases) == 2
    assert rewriting.aliases["dir"] == tree / "lib/one/dir"
    assert set(rewriting.aliases.values()) == {tree / "lib/one/dir", tree / "lib/two/dir"}
    assert all(len(name) == 3 for name in rewriting.aliases)


def test_a_library_of_the_toolchain_that_names_our_data_is_copied_with_its_names(
    builders: SimpleNamespace,
    rewriting: SimpleNamespace,
    make_elf: Callable[..., bytes],
    tree: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    libraries = tmp_path_factory.mktemp("toolchain")
    (libraries / "libtinfo.so.6.4").write_bytes(compiled(make_elf, "/usr/lib/git-core"))
    (libraries / "libtinfo.so.6").symlink_to("libtinfo.so.6.4")
    (libraries / "libz.so.1").write_bytes(compiled(make_elf, "/usr/share"))
    (libraries / "libc.so.6").write_bytes(compiled(make_elf, "/usr/lib/git-core"))
    builders.paths.adopt(libraries, tree, MULTIARCH, rewriting.names_ours)
    own = tree / "lib" / MULTIARCH
    assert sorted(p.name for p in own.glob("*.so*")) == ["libtinfo.so.6", "libtinfo.so.6.4"]
    rewriting.run()
    assert b"/nix/runtime/core" in (own / "libtinfo.so.6").read_bytes()
    assert b"/usr/lib/git-core" in (libraries / "libtinfo.so.6").read_bytes()


def test_data_of_the_table_comes_with_what_it_is_for(
    builders: SimpleNamespace,
    make_elf: Callable[..., bytes],
    tree: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    libraries = tmp_path_factory.mktemp("toolchain")
    (libraries / "libc.so.6").write_bytes(compiled(make_elf, "/etc/nsswitch.conf"))
    table = builders.needs.load()
    copy = tree / "lib" / MULTIARCH / "libc.so.6"
    builders.paths.complete(libraries, tree, MULTIARCH, table)
    assert not copy.exists()
    (tree / "lib" / MULTIARCH / "libnss_unknown.so.2").write_bytes(make_elf())
    builders.paths.complete(libraries, tree, MULTIARCH, table)
    rewriting = builders.paths.Rewriting(tree, MULTIARCH, table)
    rewriting.run()
    (name, target) = next(iter(rewriting.aliases.items()))
    assert f"/nix/runtime/{name}\0".encode() in copy.read_bytes()
    assert len(name) == len("/etc/nsswitch.conf") - len("/nix/runtime/")
    assert "passwd: files unknown\n" in target.read_text()
    assert target.read_text()[0] != "\n"
