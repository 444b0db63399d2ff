from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentix.build.lock.wheels import Interpreter, read, select
from agentix.build.toolchain import toolchains
from agentix.errors import LockError
from agentix.platforms import AMD64, ARM64

if TYPE_CHECKING:
    from packaging.pylock import Pylock

    from agentix.platforms import Platform


def target(platform: Platform = AMD64, toolchain: str = "debian-12") -> Interpreter:
    return Interpreter(toolchains()[toolchain], platform)


def lock(*packages: dict[str, Any]) -> Pylock:
    return read({"lock-version": "1.0", "created-by": "test", "packages": [*packages]})


def package(name: str, *tags: str, sdist: bool = False, **more: Any) -> dict[str, Any]:
    hashes = {"sha256": "0" * 64}
    wheels = [
        {"url": f"https://example.org/{name}-1.0-{tag}.whl", "hashes": hashes, "size": 1}
        for tag in tags
    ]
    source = {"url": f"https://example.org/{name}-1.0.tar.gz", "hashes": hashes, "size": 1}
    found: dict[str, Any] = {"name": name, "version": "1.0"} | more
    if wheels:
        found["wheels"] = wheels
    return found | ({"sdist": source} if sdist else {})


def chosen(interpreter: Interpreter, *tags: str) -> str | None:
    selection, unusable = select(lock(package("x", *tags)), interpreter)
    assert bool(selection.wheels) != bool(unusable)
    return selection.wheels[0][1].filename[len("x-1.0-") : -len(".whl")] if not unusable else None


@pytest.mark.parametrize(
    ("tag", "usable"),
    [
        ("py3-none-any", True),
        ("py2.py3-none-any", True),
        ("py310-none-any", True),
        ("py312-none-any", False),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("cp311-cp311-manylinux2014_x86_64", True),
        ("cp311-cp311-manylinux2010_x86_64", True),
        ("cp311-cp311-manylinux1_x86_64", True),
        ("cp311-cp311-linux_x86_64", True),
        ("cp311-cp311-manylinux_2_36_x86_64", True),
        ("cp311-cp311-manylinux_2_37_x86_64", False),
        ("cp311-cp311-manylinux_2_17_aarch64", False),
        ("cp311-cp311-musllinux_1_1_x86_64", False),
        ("cp311-cp311-macosx_11_0_arm64", False),
        ("cp312-cp312-manylinux_2_17_x86_64", False),
        ("cp311-cp311t-manylinux_2_17_x86_64", False),
        ("cp38-abi3-manylinux_2_17_x86_64", True),
        ("cp312-abi3-manylinux_2_17_x86_64", False),
        ("py3-none-manylinux_2_17_x86_64", True),
    ],
)
def test_a_wheel_is_usable_if_it_runs_on_the_toolchain(tag: str, usable: bool) -> None:
    assert chosen(target(), tag) == (tag if usable else None)


def test_another_platform_and_toolchain_takes_other_wheels() -> None:
    tags = [f"cp311-cp311-manylinux_2_17_{m}" for m in ("x86_64", "aarch64")]
    newer = "cp313-cp313-manylinux_2_41_aarch64"
    assert chosen(target(ARM64), *tags) == tags[1]
    assert chosen(target(ARM64, "debian-13"), *tags, newer) == newer
    assert chosen(target(ARM64), "cp311-cp311-manylinux1_aarch64") is None


def test_the_most_specific_wheel_wins() -> None:
    own = "cp311-cp311-manylinux_2_28_x86_64"
    assert chosen(target(), "py3-none-any", "cp38-abi3-manylinux_2_17_x86_64", own) == own


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("'linux' in sys_platform", True),
        ("sys_platform not in 'win32 darwin'", True),
        ("sys_platform == 'win32'", False),
        ("platform_release < '3'", False),
        ("python_full_version < '3.11.3'", True),
        ("python_full_version >= '3.11.3'", False),
        ("python_version < '3.12'", True),
        ("implementation_name == 'cpython'", True),
        ("platform_python_implementation == 'PyPy'", False),
        ("platform_machine == 'x86_64'", True),
        ("platform_machine == 'aarch64'", False),
        ("os_name == 'posix' and platform_system == 'Linux'", True),
    ],
)
def test_markers_see_the_bundle_not_this_machine(marker: str, holds: bool) -> None:
    selection, _ = select(lock(package("x", "py3-none-any", marker=marker)), target())
    assert bool(selection.wheels) == holds


def test_a_release_without_a_usable_wheel_is_named_with_the_tags_it_has() -> None:
    here, elsewhere = package("good", "py3-none-any"), package("x", "cp310-cp310-win_amd64")
    _, unusable = select(lock(here, elsewhere), target())
    assert [(u.package, u.reason) for u in unusable] == [
        (
            "x",
            "x 1.0 has no wheel for Python 3.11 on linux/amd64; "
            "its wheels are for cp310-cp310-win_amd64",
        )
    ]


@pytest.mark.parametrize("tags", [[], ["cp310-cp310-win_amd64"]])
def test_a_release_without_a_usable_wheel_is_taken_as_its_source_archive(tags: list[str]) -> None:
    selection, unusable = select(lock(package("x", *tags, sdist=True)), target())
    assert not unusable
    assert not selection.wheels
    assert [package.name for package, _ in selection.sources] == ["x"]


def test_a_release_of_which_nothing_was_left_is_named() -> None:
    _, unusable = select(lock(package("good", "py3-none-any"), package("x")), target())
    assert [u.package for u in unusable] == ["x"]
    assert "x 1.0 has no wheel for Linux, and no source archive" in unusable[0].reason


def test_source_trees_are_told_from_wheels() -> None:
    tree = {"name": "lib", "directory": {"path": "../lib"}}
    selection, unusable = select(lock(tree, package("x", "py3-none-any")), target())
    assert selection.directories == (("lib", "../lib"),)
    assert len(selection.wheels) == 1
    assert not unusable


@pytest.mark.parametrize(
    "source",
    [
        {"vcs": {"type": "git", "url": "https://example.org/x", "commit-id": "0" * 40}},
        {"archive": {"url": "https://example.org/x.zip", "hashes": {"sha256": "0" * 64}}},
    ],
)
def test_what_no_index_has_is_a_source(source: dict[str, Any]) -> None:
    selection, unusable = select(lock({"name": "x", "version": "1.0"} | source), target())
    assert [package.name for package, _ in selection.sources] == ["x"]
    assert not unusable


def test_a_wheel_at_an_address_of_its_own_is_a_wheel_where_it_runs() -> None:
    def at(tag: str) -> Pylock:
        place = {"url": f"https://example.org/x-1.0-{tag}.whl?y#z", "hashes": {"sha256": "0" * 64}}
        return lock({"name": "x", "version": "1.0", "archive": place})

    selection, _ = select(at("cp38-abi3-manylinux_2_17_x86_64"), target())
    assert selection.wheels[0][1].filename == "x-1.0-cp38-abi3-manylinux_2_17_x86_64.whl"
    selection, unusable = select(at("cp38-abi3-manylinux_2_17_x86_64"), target(ARM64))
    assert not selection.wheels
    assert "its wheels are for cp38-abi3-manylinux_2_17_x86_64" in unusable[0].reason
    with pytest.raises(LockError, match=r"x-1\.0-y\.whl is not the name of a wheel"):
        select(at("y"), target())
