from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentix.provider.base import SandboxConfig, SandboxResource


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16g", 16 * 2**30),
        ("9007199254740993", 9007199254740993),
        ("512M", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("4096", 4096),
        (7, 7),
    ],
)
def test_memory_is_bytes_or_a_size_in_units_of_1024(text: Any, size: int) -> None:
    assert SandboxResource(memory=text).memory == size


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "lots"},
        {"memory": "0"},
        {"memory": "-1g"},
        {"memory": 1.5},
        {"memory": True},
        {"memory": "9" * 400 + "g"},
        {"memory": "1." + "9" * 5000},
        {"memory": 2**64},
        {"cpu": 0},
        {"cpu": float("inf")},
        {"cpu": float("nan")},
        {"cpu": 1e300},
        {"gpu": 0},
        {"gpu": 1.0},
        {"gpu": 2**40},
        {"disk": 1},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SandboxResource(**wrong)


def test_the_limits_that_were_asked_for_are_named() -> None:
    assert SandboxResource(cpu=1.5, gpu=1).requested() == ["cpu", "gpu"]
    assert SandboxResource().requested() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"typo": 1},
        {"image": ""},
        {"bundle": " "},
        {"image": "a\0b"},
        {"bundle": "a\0b"},
        {"bundle": Path("a\0b")},
        {"platform": "linux/vax"},
        {"env": {"": "x"}},
        {"env": {"A=B": "x"}},
        {"env": {"A": "x\0"}},
    ],
)
def test_a_sandbox_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SandboxConfig(**({"image": "host", "bundle": "x.tar"} | wrong))


def test_paths_may_be_given_as_paths() -> None:
    config = SandboxConfig.model_validate({"image": Path("/rootfs"), "bundle": Path("x.tar")})
    assert (config.image, config.bundle) == ("/rootfs", Path("x.tar"))


def test_a_configuration_does_not_change_under_a_sandbox() -> None:
    config = SandboxConfig(image="host", bundle="x.tar")
    with pytest.raises(ValidationError):
        config.image = "other"  # type: ignore[misc]
