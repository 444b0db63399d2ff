"""Packages become tools: which files are kept, which programs are offered, what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
    builders.tree.merge_usr(tmp_path)
    assert files(tmp_path) == ["bin/a", "bin/b", "bin/c", "lib/x/d.so", "lib/x/e.so", "sbin/f"]


def test_only_what_programs_need_is_kept(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "bin/a", "var/lib/x", "run/y", "share/doc/a/z", "share/a/data", "etc/a.conf")
    write(tmp_path, "share/locale/de/LC_MESSAGES/a.mo", "lib/gcc/x/12/libasan.a", "include/a.h")
    builders.tree.prune(tmp_path, builders.needs.load().drops)
    assert files(tmp_path) == ["bin/a", "etc/a.conf", "include/a.h", "share/a/data"]
    assert not (tmp_path / "share/locale").exists()


def test_of_one_file_the_first_package_has_it(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path / "one", "bin/a", "share/x/1")
    write(tmp_path / "two", "bin/b", "share/x/2")
    (tmp_path / "two/bin/a").write_text("of the second")
    for part in ("one", "two"):
        builders.tree.move(tmp_path / part, tmp_path / "tree")
    assert files(tmp_path / "tree") == ["bin/a", "bin/b", "share/x/1", "share/x/2"]
    assert (tmp_path / "tree/bin/a").read_text() == "bin/a"


def test_programs_are_those_of_the_usual_folders(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "bin/a", "sbin/b", "games/c", "lib/d", "share/bin/e")
    assert builders.tree.programs(tmp_path) == {
        "a": Path("bin/a"),
        "b": Path("sbin/b"),
        "c": Path("games/c"),
    }


def test_absolute_links_lead_to_what_is_here(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "lib/git-core/git", "bin/git")
    (tmp_path / "bin/other").symlink_to("/usr/bin/git")
    (tmp_path / "bin/editor").symlink_to("/etc/alternatives/editor")
    (tmp_path / "bin/near").symlink_to("git")
    builders.tree.own_links(tmp_path)
    assert (tmp_path / "bin/other").readlink() == tmp_path / "bin/git"
    assert (tmp_path / "bin/editor").readlink() == Path("/etc/alternatives/editor")
    assert (tmp_path / "bin/near").readlink() == Path("git")


def test_a_large_file_that_comes_twice_is_kept_once(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    write(tmp_path, "bin/small", "lib/small")
    for name in ("bin/git", "lib/git-core/git", "lib/git-core/else"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 100_000)
    (tmp_path / "lib/git-core/else").write_bytes(b"y" * 100_000)
    builders.tree.share(tmp_path)
    assert (tmp_path / "lib/git-core/git").readlink() == Path("../../bin/git")
    assert not (tmp_path / "lib/git-core/else").is_symlink()
    assert not (tmp_path / "lib/small").is_symlink()


@pytest.fixture
def unpacked(builders: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    """Two packages with a program of the same name, and one with a library alone."""
    write(tmp_path, "bin/rg", "bin/one", "bin/two", "lib/libthree.so.1", "share/three/data")
    unpacked: SimpleNamespace = builders.tools.Unpacked(tmp_path)
    unpacked.programs = {
        "first": {"rg": Path("bin/one"), "one": Path("bin/one"), "gone": Path("bin/gone")},
        "second": {"rg": Path("bin/two"), "two": Path("bin/two")},
        "three": {},
    }
    unpacked.files = {"three": [Path("lib/libthree.so.1"), Path("share/three/data")]}
    return unpacked


def test_of_one_program_the_package_declared_first_has_it(
    builders: SimpleNamespace, unpacked: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = unpacked.tree
    found = builders.tools.offered(unpacked, ["second", "first"])
    assert found == {"rg": tree / "bin/two", "two": tree / "bin/two", "one": tree / "bin/one"}
    said = "rg is a program of second and of first; taking that of second, which is declared first"
    assert said in capsys.readouterr().err
    assert builders.tools.offered(unpacked, ["first", "second"])["rg"] == tree / "bin/one"


def test_second_names_are_offered_unless_there_is_a_program(
    builders: SimpleNamespace, unpacked: SimpleNamespace
) -> None:
    alternative = builders.alternatives.Alternative
    unpacked.names = {
        "first": [
            alternative("/usr/bin/cc", "/usr/bin/one", 20),
            alternative("/usr/bin/two", "/usr/bin/one", 20),
            alternative("/usr/share/man/cc.1", "/usr/bin/one", 20),
        ],
        "second": [
            alternative("/usr/bin/cc", "/usr/bin/two", 30),
            alternative("/usr/bin/absent", "/usr/bin/absent", 30),
        ],
    }
    found = builders.tools.offered(unpacked, ["first", "second"])
    assert found["cc"] == unpacked.tree / "bin/two"
    assert found["two"] == unpacked.tree / "bin/two"
    assert sorted(found) == ["cc", "one", "rg", "two"]


def test_what_nobody_would_find_is_refused(
    builders: SimpleNamespace, unpacked: SimpleNamespace
) -> None:
    refuse = builders.tools.refuse_useless
    with pytest.raises(SystemExit) as refused:
        refuse(unpacked, ["first", "three"], set())
    assert str(refused.value) == (
        "three has no programs, and none of the declared packages' programs uses its files; "
        "declare the package that has the program"
    )
    refuse(unpacked, ["first"], set())
    refuse(unpacked, ["first", "three"], {unpacked.tree / "share/three"})
    write(unpacked.tree, "lib/gcc/x/12/specs")
    refuse(unpacked, ["first", "three"], set())


def test_second_names_are_read_where_they_are_plain(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    script = tmp_path / "postinst"
    script.write_text(
        "#!/bin/sh\nset -e\n"
        "update-alternatives --quiet \\\n    --install /usr/bin/cc cc /usr/bin/gcc 20 \\\n"
        "    #--slave /usr/share/man/cc.1.gz cc.1.gz /usr/share/man/gcc.1.gz\n\n"
        'for i in $names; do update-alternatives --install "$i" $i /usr/bin/$i 30; done\n'
        "update-alternatives --remove rsh /usr/bin/ssh\n"
        "  update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5 "
        "--slave /usr/bin/nawk nawk /usr/bin/mawk || true\n"
    )
    found = [(a.link, a.path, a.priority) for a in builders.alternatives.read(script)]
    assert found == [
        ("/usr/bin/cc", "/usr/bin/gcc", 20),
        ("/usr/share/man/cc.1.gz", "/usr/share/man/gcc.1.gz", 20),
        ("/usr/bin/awk", "/usr/bin/mawk", 5),
        ("/usr/bin/nawk", "/usr/bin/mawk", 5),
    ]
    assert builders.alternatives.read(tmp_path / "absent") == []


@pytest.fixture
def interpreters(builders: SimpleNamespace, tmp_path: Path) -> SimpleNamespace:
    write(tmp_path / "toolchain", "bin/python3")
    write(tmp_path / "tree", "bin/perl")
    write(tmp_path / "busybox", "bin/busybox")
    found: SimpleNamespace = builders.scripts.Interpreters(
        tmp_path / "tree", tmp_path / "toolchain", "3.11", tmp_path / "busybox"
    )
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#! /usr/bin/perl -w", "#!{tree}/bin/perl -w"),
        ("#!/usr/bin/env perl", "#!{tree}/bin/perl"),
        ("#!/usr/bin/env -S perl -w", "#!/usr/bin/env -S perl -w"),
        ("#!/bin/sh", "#!{tree}/libexec/sh"),
        ("#!/bin/sh -e", "#!{tree}/libexec/sh -e"),
        ("#!/bin/bash", "#!/bin/bash"),
        ("#!/usr/bin/python3", "#!{tree}/libexec/python/bin/python3 -Es"),
        ("#!/usr/bin/python3.11 -Iu", "#!{tree}/libexec/python/bin/python3 -Esu"),
        ("#!/usr/bin/env python3", "#!{tree}/libexec/python/bin/python3 -Es"),
        ("#!/usr/bin/python2", "#!/usr/bin/python2"),
        ("#!/usr/bin/python3.9", "#!/usr/bin/python3.9"),
        ("#!", "#!"),
    ],
)
def test_scripts_start_the_interpreters_that_came_along(
    interpreters: SimpleNamespace, tmp_path: Path, before: str, after: str
) -> None:
    tree = tmp_path / "tree"
    script = tree / "share/some/script"
    script.parent.mkdir(parents=True)
    script.write_bytes(before.encode() + b"\nrest \xff\n")
    script.chmod(0o555)
    (tree / "bin/binary").write_bytes(b"\x7fELF\xff")
    interpreters.own()
    assert script.read_bytes() == after.format(tree=tree).encode() + b"\nrest \xff\n"
    assert script.stat().st_mode & 0o777 == 0o555
    assert (tree / "bin/binary").read_bytes() == b"\x7fELF\xff"


def test_what_is_done_before_a_program_starts_is_a_script(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    launch = builders.needs.Launch(
        ("tool",), str(tmp_path / "sh"), ("--shell={shell}", "a b"), {"SHELL": "{shell}"}
    )
    table = builders.needs.Needs(launches=(launch,))
    assert table.launch("other", shell="/s") == []
    script = "\n".join([*table.launch("tool", shell="/s"), 'echo "$SHELL" "$@"'])

    def run(**variables: str) -> str:
        command = ["sh", "-c", script, "sh", "x  y"]
        return subprocess.run(command, env=variables, capture_output=True, text=True).stdout

    assert run() == "/s --shell=/s a b x  y\n"
    assert run(SHELL="/own") == "/own --shell=/s a b x  y\n"
    (tmp_path / "sh").touch()
    assert run(SHELL="/own") == "/own x  y\n"


def test_every_entry_of_the_table_has_a_reason(builders: SimpleNamespace) -> None:
    import tomllib

    table = tomllib.loads(Path(builders.needs.__file__).with_name("needs.toml").read_text())
    for kind, entries in table.items():
        for entry in entries:
            assert entry["reason"].strip(), (kind, entry)
            assert "\\\n" not in entry["reason"]


def test_gcc_is_told_where_its_parts_are(builders: SimpleNamespace, tmp_path: Path) -> None:
    tree, toolchain = tmp_path / "tree", tmp_path / "toolchain"
    triple, loader = "x86_64-linux-gnu", "ld-linux-x86-64.so.2"
    write(tree, f"lib/gcc/{triple}/12/cc1", f"bin/{triple}-as", f"bin/{triple}-ld", "bin/as")
    write(toolchain, "lib/libc.so.6", f"lib/{loader}")
    script = tree / f"lib/{triple}/libc.so"
    script.parent.mkdir(parents=True)
    write(toolchain, "lib/libz.so.1.2")
    (tree / f"lib/{triple}/libz.so").symlink_to(f"/lib/{triple}/libz.so.1.2")
    write(tree, f"lib/{triple}/libc_nonshared.a")
    script.write_text(
        f"/* GNU ld script */\nGROUP ( /lib/{triple}/libc.so.6 /usr/lib/{triple}/libc_nonshared.a"
        f"  AS_NEEDED ( /lib64/{loader} ) )\n"
    )
    builders.compiler.settle(tree, toolchain, triple, loader)
    specs = (tree / f"lib/gcc/{triple}/12/specs").read_text()
    assert f"--sysroot={tree} -mglibc}}" in specs
    assert f"-rpath {tree}/lib/{triple}:{toolchain}/lib " in specs
    assert f"-dynamic-linker {toolchain}/lib/{loader}}}}}}}}}" in specs
    for kind in ("self_spec", "libgcc", "link"):
        # A section ends with an empty line, and its text is one line.
        (text,) = [part for part in specs.split("\n\n") if part.startswith(f"*{kind}:\n")]
        assert text.count("\n") == 1, text
        assert text.count("{") == text.count("}")
    assert (tree / f"{triple}/bin/as").resolve() == tree / f"bin/{triple}-as"
    named = script.read_text().split("GROUP")[1].split()
    libraries = [Path(word) for word in named if word.startswith("/")]
    assert [path.name for path in libraries] == ["libc.so.6", "libc_nonshared.a", loader]
    assert all(path.is_relative_to(tree) and path.exists() for path in libraries)
    assert (tree / "usr/bin/as").exists()
    # What a -dev package leads to may be one of the toolchain's libraries.
    assert (tree / f"lib/{triple}/libz.so").resolve() == toolchain / "lib/libz.so.1.2"


def test_no_gcc_no_traces(builders: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path, "tree/bin/a", "toolchain/lib/libc.so.6")
    builders.compiler.settle(tmp_path / "tree", tmp_path / "toolchain", "x", "ld.so")
    assert files(tmp_path / "tree") == ["bin/a"]


def test_the_shell_of_scripts_needs_nothing_of_an_image(
    interpreters: SimpleNamespace, busybox: Path, builders: SimpleNamespace, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    real = builders.scripts.Interpreters(tree, tmp_path / "toolchain", "3.11", busybox)
    script = tree / "bin/script"
    script.write_text("#!/bin/sh -e\necho a | sed s/a/b/\nfalse\necho not reached\n")
    script.chmod(0o755)
    real.own()
    done = subprocess.run([script], env={"PATH": "/nonexistent"}, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("b\n", 1)
