"""Which packages a tool consists of on a platform, and which files are its programs."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from mirror.npm import DARWIN, LINUX_ARM64, LINUX_X64, MUSL_X64, NODE, manifest, tarball

from agentix.build.npm.integrity import Integrity
from agentix.build.npm.package import Package, Wanted, exactly
from agentix.build.npm.programs import find_programs
from agentix.build.npm.tree import Unfit, chosen, place
from agentix.errors import LockError
from agentix.platforms import AMD64, ARM64

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def package(name: str, **more: Any) -> Package:
    return Package.model_validate(manifest(name, **more))


def tree(*packages: Package) -> dict[str, Package]:
    return {place(p.name): p for p in packages}


@pytest.mark.parametrize(
    ("fields", "amd64", "arm64"),
    [
        ({}, True, True),
        (LINUX_X64, True, False),
        (LINUX_ARM64, False, True),
        (MUSL_X64, False, False),
        (DARWIN, False, False),
        ({"os": ["!win32"]}, True, True),
        ({"os": ["!linux", "darwin"]}, False, False),
        ({"cpu": "x64"}, True, False),
        ({"cpu": ["any"]}, True, True),
        ({"libc": ["glibc", "musl"]}, True, True),
    ],
)
def test_a_package_fits_as_npm_has_it(fields: Mapping[str, Any], amd64: bool, arm64: bool) -> None:
    made = package("x", **fields)
    assert (made.fits(AMD64), made.fits(ARM64)) == (amd64, arm64)


def test_of_what_tells_no_libc_the_name_does() -> None:
    assert not package("@x/linuxmusl-x64", os=["linux"], cpu=["x64"]).fits(AMD64)
    assert package("@x/linux-x64", os=["linux"], cpu=["x64"]).fits(AMD64)


def test_only_what_the_tool_reaches_on_the_platform_is_taken() -> None:
    made = tree(
        package("tool", optionalDependencies={"a": "1", "b": "1", "mac": "1"}),
        package("a", **LINUX_X64, dependencies={"only-a": "1"}),
        package("b", **LINUX_ARM64, dependencies={"only-b": "1"}),
        package("mac", **DARWIN),
        package("only-a"),
        package("only-b"),
        package("stray"),
    )
    assert [p.name for p in chosen(made, place("tool"), AMD64).values()] == ["a", "only-a", "tool"]
    assert [p.name for p in chosen(made, place("tool"), ARM64).values()] == ["b", "only-b", "tool"]


def test_the_nearest_of_two_versions_is_found() -> None:
    made = tree(package("tool", dependencies={"a": "1", "b": "1"}), package("b", version="2.0.0"))
    made[place("a")] = package("a", dependencies={"b": "1"})
    made[place("b", place("a"))] = package("b", version="1.0.0")
    made[place("b", "node_modules/other")] = package("b", version="3.0.0")
    assert sorted(chosen(made, place("tool"), AMD64)) == [
        "node_modules/a",
        "node_modules/a/node_modules/b",
        "node_modules/b",
        "node_modules/tool",
    ]


def test_a_platform_without_a_package_is_named() -> None:
    made = tree(
        package("tool", optionalDependencies={"a": "1", "b": "1", "mac": "1"}),
        package("a", **LINUX_X64),
        package("b", **MUSL_X64),
        package("mac", **DARWIN),
    )
    assert len(chosen(made, place("tool"), AMD64)) == 2
    with pytest.raises(Unfit, match=r"has no package for linux/arm64 with glibc, only a, b"):
        chosen(made, place("tool"), ARM64)


def test_a_choice_for_other_systems_only_is_none_that_is_missed() -> None:
    made = tree(package("tool", optionalDependencies={"mac": "1"}), package("mac", **DARWIN))
    assert [p.name for p in chosen(made, place("tool"), AMD64).values()] == ["tool"]


def test_what_is_needed_and_for_others_is_named() -> None:
    made = tree(package("tool", dependencies={"mac": "1"}), package("mac", **DARWIN))
    with pytest.raises(Unfit, match=r"mac@1.0.0 does not run on linux/amd64"):
        chosen(made, place("tool"), AMD64)


def test_one_release_is_told_from_a_choice() -> None:
    assert exactly("a", "1.2.3-beta.1") == Wanted("a", "1.2.3-beta.1")
    assert exactly("a", "npm:@x/b@1.0.0-linux-x64") == Wanted("@x/b", "1.0.0-linux-x64")
    for spec in ("^1.2.3", "1.2", "latest", "git+https://x.example/a.git", "npm:b@^1.0.0", "", "*"):
        assert exactly("a", spec) is None, spec
    assert Wanted("@x/a", "1.0.0").file == "x+a-1.0.0.tgz"


def test_the_strongest_hash_counts() -> None:
    both = "sha1-" + "A" * 27 + "= sha512-" + "A" * 86 + "=="
    assert Integrity.parse(both, of="x").algorithm == "sha512"
    for none in ("", "md5-AAAA", "sha512-AAAA", "sha512-?", "sha512-é"):
        with pytest.raises(LockError, match="no usable hash of x"):
            Integrity.parse(none, of="x")


def elf(machine: int = 62) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(11) + machine.to_bytes(2, "little") + bytes(44)


def programs(
    tmp_path: Path, *packages: tuple[Package, Mapping[str, bytes | str | tarfile.TarInfo]]
) -> tuple[Mapping[str, str], bool]:
    tarballs = {}
    for number, (made, files) in enumerate(packages):
        tarballs[place(made.name)] = tmp_path / f"{number}.tgz"
        tarballs[place(made.name)].write_bytes(tarball(files))
    top = place(packages[0][0].name)
    found = find_programs(top, tree(*(p for p, _ in packages)), tarballs, AMD64)
    return found.paths, found.node


def test_a_native_program_stands_for_its_stand_in(tmp_path: Path) -> None:
    tool = package("@x/tool", bin={"tool": "bin/tool.exe", "other": "./cli.js", "tl": "bin/tool"})
    native = package("@x/tool-linux-x64", **LINUX_X64)
    paths, node = programs(
        tmp_path,
        (tool, {"bin/tool.exe": "a note", "cli.js": NODE, "bin/tool": NODE}),
        (native, {"a/b/tool!": elf(), "bin/tool!": elf(), "tool.1": elf(), "other": elf(183)}),
    )
    assert paths == {
        "tool": "node_modules/@x/tool-linux-x64/bin/tool",
        "tl": "node_modules/@x/tool-linux-x64/bin/tool",
        "other": "node_modules/@x/tool/cli.js",
    }
    assert node


def test_programs_may_be_native_themselves_or_scripts_of_others(tmp_path: Path) -> None:
    tool = package("tool", bin={"a": "a", "b": "b"})
    assert programs(tmp_path, (tool, {"a": elf(), "b": "#!/bin/sh\n"})) == (
        {"a": "node_modules/tool/a", "b": "node_modules/tool/b"},
        False,
    )


def test_one_program_is_called_as_its_package(tmp_path: Path) -> None:
    assert programs(tmp_path, (package("@x/tool", bin="cli.js"), {"cli.js": NODE})) == (
        {"tool": "node_modules/@x/tool/cli.js"},
        True,
    )


@pytest.mark.parametrize(
    ("about", "files", "reason"),
    [
        ({}, {}, "has no programs"),
        ({"bin": "cli.js"}, {}, "has no file cli.js"),
        ({"bin": "../../x"}, {}, "lie outside of it"),
        ({"bin": "cli"}, {"cli": "a note"}, "only made by its install script"),
        ({"bin": "cli"}, {"cli": elf(183)}, "only made by its install script"),
    ],
)
def test_a_tool_without_programs_is_none(
    tmp_path: Path, about: dict[str, Any], files: dict[str, bytes | str], reason: str
) -> None:
    with pytest.raises(LockError, match=reason) as caught:
        programs(tmp_path, (package("tool", **about), files))
    assert "\n" not in str(caught.value)


def test_a_tarball_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tgz").write_bytes(b"no tarball")
    tool = package("tool", bin="cli.js")
    with pytest.raises(LockError, match=r"the tarball of tool@1.0.0 cannot be read"):
        find_programs(place("tool"), tree(tool), {place("tool"): tmp_path / "x.tgz"}, AMD64)


def test_a_first_line_is_read_in_no_time(tmp_path: Path) -> None:
    # Which sign separates name and value must not be tried in every way.
    first = "#!/usr/bin/env " + "a==== " * 40
    paths, node = programs(tmp_path, (package("tool", bin="cli.js"), {"cli.js": first}))
    assert (paths, node) == ({"tool": "node_modules/tool/cli.js"}, False)


def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 64 * 1024**2
    with pytest.raises(LockError, match="a header in it has 67108864 bytes"):
        programs(tmp_path, (package("tool", bin="cli.js"), {"x": header, "cli.js": NODE}))


def test_a_tarball_that_would_not_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.build.tar._LARGEST", 1000)
    with pytest.raises(LockError, match=r"more than .* 1000 bytes are in it"):
        programs(tmp_path, (package("tool", bin="cli.js"), {"cli.js": NODE, "large": bytes(1000)}))
