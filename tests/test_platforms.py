"""Platforms have one name each, and an unknown one is refused with the choices."""

from __future__ import annotations

import platform

import pytest

from agentix import platforms


def test_this_machine_is_a_platform_by_the_kernels_name() -> None:
    assert platforms.current().machine == platform.machine()


def test_an_unknown_platform_names_the_choices() -> None:
    with pytest.raises(ValueError, match=r"linux/s390x.*linux/amd64, linux/arm64"):
        platforms.parse("linux/s390x")


def test_a_platform_prints_as_its_name() -> None:
    assert str(platforms.parse("linux/arm64")) == "linux/arm64"
