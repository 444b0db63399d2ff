from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from agentix.build.toolchain import choose, seeds, toolchains, toolchains_folder
from agentix.errors import ProjectError
from agentix.platforms import PLATFORMS

if TYPE_CHECKING:
    from agentix.build.artifact import Artifact


def pins() -> list[Artifact]:
    found = [pin for t in toolchains().values() for p in t.packages.values() for pin in p]
    for programs in seeds().programs.values():
        found += [seed.artifact for seed in programs.values()]
    return [*found, *seeds().wheels]


def test_both_debians_are_pinned_for_both_platforms() -> None:
    assert {name: (t.suite, t.python) for name, t in toolchains().items()} == {
        "debian-12": ("bookworm", "3.11"),
        "debian-13": ("trixie", "3.13"),
    }
    for toolchain in toolchains().values():
        assert set(toolchain.packages) == set(PLATFORMS)
        for platform in PLATFORMS:
            names = toolchain.names(platform)
            assert {"libc6", "libstdc++6", "libgomp1", "ca-certificates", "tzdata"} <= names
            assert not names & {"perl", "debconf", "dpkg", "openssl", "media-types"}
            assert toolchain.python_version(platform).startswith(toolchain.python + ".")


def test_a_toolchain_downloads_little() -> None:
    for toolchain in toolchains().values():
        for platform in PLATFORMS:
            assert sum(pin.size or 0 for pin in toolchain.packages[platform]) < 17_000_000


def test_the_seeds_are_there_for_both_platforms() -> None:
    assert {p: set(programs) for p, programs in seeds().programs.items()} == {
        platform: {"busybox", "patchelf"} for platform in PLATFORMS
    }
    assert {pin.package for pin in seeds().wheels} == {"installer", "pyproject-hooks"}


def test_pins_hold_no_address_and_tell_packages_from_wheels() -> None:
    for file in toolchains_folder().glob("*.json"):
        assert "://" not in file.read_text()
    for pin in pins():
        assert pin.file.endswith(".deb" if pin.pool else ".whl")


def test_the_files_are_in_the_form_that_the_maintainers_command_writes() -> None:
    for name, toolchain in toolchains().items():
        data = toolchain.model_dump(mode="json", exclude_none=True)
        file = toolchains_folder() / f"{name}.json"
        assert file.read_text() == json.dumps(data, indent=2) + "\n"


def test_the_choice_is_what_is_asked_then_what_is_preferred_then_the_newest() -> None:
    everything = SpecifierSet(">=3.11")
    assert choose(everything, asked="3.11", preferred=["3.13"]).python == "3.11"
    assert choose(everything, preferred=["3.12", "3.11"]).python == "3.11"
    assert choose(everything).python == "3.13"
    assert choose(SpecifierSet("<3.13"), preferred=["3.13"]).python == "3.11"


def test_the_patch_version_counts() -> None:
    assert toolchains()["debian-12"].python_version("linux/amd64") == "3.11.2"
    assert choose(SpecifierSet(">=3.11.4"), preferred=["3.11"]).python == "3.13"


@pytest.mark.parametrize(
    ("specifiers", "asked", "says"),
    [
        (">=3.14", None, "no toolchain satisfies requires-python = '>=3.14'"),
        (">=3.11", "3.12", "no toolchain with Python 3.12"),
        ("<3.13", "3.13", "asks for Python 3.13"),
    ],
)
def test_a_python_that_cannot_be_had_is_one_line_with_what_there_is(
    specifiers: str, asked: str | None, says: str
) -> None:
    with pytest.raises(ProjectError, match=says):
        choose(SpecifierSet(specifiers), asked=asked)
