"""What an engine cannot limit is refused where it was asked for, and told where it was not."""

from __future__ import annotations

import logging
import resource
from typing import TYPE_CHECKING, Any

import pytest

from agentix.errors import ProviderError
from agentix.provider.base import SandboxResource
from agentix.provider.docker import DockerProviderConfig, limits
from agentix.provider.docker.facts import Ability

if TYPE_CHECKING:
    from pathlib import Path

INFO = {
    "OSType": "linux",
    "Architecture": "x86_64",
    "NCPU": 2,
    "CpuCfsQuota": True,
    "MemoryLimit": True,
    "PidsLimit": True,
    "CgroupVersion": "2",
}
OF_AN_ORDINARY_USER = {"Rootless": True, "CgroupVersion": "1", "Architecture": "amd64"}


def ability(**changes: Any) -> Ability:
    return Ability.of(INFO | changes)


def test_what_the_engine_says_is_what_it_can_do() -> None:
    whole = ability()
    assert (whole.platform, whole.cpus) == ("linux/amd64", 2)
    assert (whole.cpu, whole.memory, whole.pids) == (True, True, True)
    delegated = ability(Rootless=True)
    assert (delegated.cpu, delegated.memory, delegated.pids) == (True, True, True)
    assert ability(Architecture="aarch64").platform == "linux/arm64"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cpu", OF_AN_ORDINARY_USER),
        ("memory", OF_AN_ORDINARY_USER),
        ("pids", OF_AN_ORDINARY_USER),
        ("cpu", {"CpuCfsQuota": False}),
        ("memory", {"MemoryLimit": False}),
        ("pids", {"PidsLimit": False}),
    ],
)
def test_a_limit_that_was_asked_for_and_cannot_be_kept_is_refused(
    name: str, changes: dict[str, Any]
) -> None:
    wanted = SandboxResource(cpu=1) if name == "cpu" else None
    wanted = SandboxResource(memory=2**30) if name == "memory" else wanted
    choices = DockerProviderConfig(pids_limit=7) if name == "pids" else DockerProviderConfig()
    with pytest.raises(ProviderError, match=f"docker cannot limit {name} here: "):
        limits.require("docker", ability(**changes), wanted, choices)


def test_the_limit_that_nobody_asked_for_is_left_out_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_said", set())
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        weak = ability(**OF_AN_ORDINARY_USER)
        choices = limits.require("podman", weak, None, DockerProviderConfig())
        assert choices.pids_limit is None
    assert [record.getMessage() for record in caplog.records] == [
        "podman does not limit processes here: it runs as an ordinary user on cgroup v1,"
        " which only root may use"
    ]


def test_an_engine_that_leaves_a_limit_out_is_not_believed_to_keep_it() -> None:
    limits.kept("docker", ["Memory limited without swap."])
    with pytest.raises(
        ProviderError, match=r"docker cannot keep the limits .* PIDs limit discarded"
    ):
        limits.kept("docker", ["Your kernel does not support it. PIDs limit discarded."])


def test_limits_are_no_higher_than_those_of_who_starts_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_PROC", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7/limits").write_text(
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max processes             1000                 2000                 processes \n"
        "Max open files            300                  unlimited            files     \n"
    )
    found = {each["Name"]: (each["Soft"], each["Hard"]) for each in limits.no_higher_than(7)}
    assert found == {"nproc": (2000, 2000), "nofile": (-1, -1)}
    own = {each["Name"]: each["Hard"] for each in limits.no_higher_than(None)}
    assert own["nofile"] == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
