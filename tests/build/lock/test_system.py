"""Which of the declared system tools are locked, and which are there anyway."""

from __future__ import annotations

import pytest

from agentix.build.lock.system import declared_tools, refuse_what_is_there
from agentix.build.toolchain import toolchains
from agentix.errors import ProjectError


def test_declared_tools_keep_their_order_each_once() -> None:
    assert declared_tools(["ripgrep", "git", "ripgrep", "curl"]) == ["ripgrep", "git", "curl"]


@pytest.mark.parametrize("toolchain", toolchains())
def test_data_that_every_bundle_has_may_be_declared(toolchain: str) -> None:
    assert declared_tools(["ca-certificates", "git", "tzdata"]) == ["git"]
    pinned = toolchains()[toolchain]
    refuse_what_is_there(["ca-certificates", "git", "tzdata"], pinned)
    # It says so because it is so.
    assert all(
        {"ca-certificates", "tzdata"} <= pinned.names(platform) for platform in pinned.packages
    )


@pytest.mark.parametrize("toolchain", toolchains())
@pytest.mark.parametrize("name", ["python3", "libc6", "zlib1g"])
def test_a_second_interpreter_or_c_library_is_refused(toolchain: str, name: str) -> None:
    with pytest.raises(ProjectError, match=f"'{name}' is already part of every bundle"):
        refuse_what_is_there(["git", name], toolchains()[toolchain])
