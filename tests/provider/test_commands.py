"""``agentix deploy`` and ``agentix plugin``, run as a script would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from stub_runtime import make_entry

from agentix import platforms

if TYPE_CHECKING:
    from pathlib import Path


def agentix(
    *arguments: str | Path,
    path: Path | None = None,
    cache: Path | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    if cache is not None:
        environment["AGENTIX_CACHE_DIR"] = str(cache)
    command = [sys.executable, "-c", "from agentix.cli import main; main()", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False, cwd=cwd
    )


def broken_plugin(site: Path) -> None:
    info = site / "agentix_broken-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: agentix-broken\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[agentix.provider]\nbroken = agentix_broken:X\n")
    (site / "agentix_broken.py").write_text("raise RuntimeError('it is broken')\n")


def test_json_is_exactly_the_three_keys_and_alone_on_stdout(tmp_path: Path) -> None:
    entry = make_entry(tmp_path)
    result = agentix("deploy", "bubblewrap", entry, "--format", "json", cache=tmp_path / "cache")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert list(document) == ["bundle", "platform", "metadata"]
    assert document["bundle"] == str(entry)
    assert document["platform"] == platforms.current().name
    assert document["metadata"]["name"] == "stub"


def test_the_text_form_gives_a_shell_the_bundle(tmp_path: Path) -> None:
    entry = make_entry(tmp_path)
    result = agentix("deploy", "bubblewrap", entry, "--name", "mine", cache=tmp_path / "cache")
    assert result.stdout == f"{entry}\n"
    assert "name: mine" in result.stderr


@pytest.mark.parametrize("ref", ["missing.tar", "", "sha256-" + "0" * 64])
def test_without_a_bundle_there_is_no_output_and_the_exit_code_says_so(
    tmp_path: Path, ref: str
) -> None:
    result = agentix("deploy", "bubblewrap", ref, "--format", "json", cache=tmp_path / "cache")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("agentix: ") == 1
    assert "Traceback" not in result.stderr


def test_an_empty_bundle_is_not_the_folder_that_the_command_runs_in(tmp_path: Path) -> None:
    entry = make_entry(tmp_path)
    for ref in ("", " "):
        result = agentix("deploy", "bubblewrap", ref, cwd=entry)
        assert (result.returncode, result.stdout) == (1, "")
        assert "no bundle was given" in result.stderr


def test_a_platform_that_does_not_exist_is_not_offered_to_be_built(tmp_path: Path) -> None:
    result = agentix("deploy", "bubblewrap", make_entry(tmp_path), "--platform", "linux/vax")
    assert result.returncode == 1
    assert "linux/arm64" in result.stderr
    assert "build it" not in result.stderr


def test_a_bundle_for_another_platform_than_wanted_is_refused(tmp_path: Path) -> None:
    other = "linux/arm64" if platforms.current().name == "linux/amd64" else "linux/amd64"
    entry = make_entry(tmp_path)
    result = agentix("deploy", "bubblewrap", entry, "--platform", other)
    assert result.returncode == 1
    assert other in result.stderr
    assert platforms.current().name in result.stderr


def test_an_unknown_backend_is_one_line_that_lists_the_others() -> None:
    result = agentix("deploy", "nosuch", "x.tar")
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "provider 'nosuch' is not installed" in line
    assert "bubblewrap" in line


def test_a_broken_backend_is_one_line_and_harms_no_other(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    broken_plugin(site)
    result = agentix("deploy", "broken", "x.tar", path=site)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "it is broken" in line
    assert "bubblewrap" in line
    entry = make_entry(tmp_path)
    assert agentix("deploy", "bubblewrap", entry, path=site).returncode == 0
    assert "broken" in agentix("deploy", "--help", path=site).stdout


def test_the_backends_are_listed() -> None:
    assert "bubblewrap" in agentix("deploy", "list").stdout.split()
    assert "bubblewrap" in json.loads(agentix("deploy", "list", "--format", "json").stdout)


def test_the_help_of_a_backend_names_its_options() -> None:
    text = agentix("deploy", "bubblewrap", "--help").stdout
    assert all(option in text for option in ("--name", "--platform", "--format"))


def test_plugins_are_listed_with_their_origin_and_state(tmp_path: Path) -> None:
    broken_plugin(tmp_path)
    result = agentix("plugin", "list", "--format", "json", path=tmp_path)
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["bubblewrap"]["distribution"] == "agentix-provider-bubblewrap"
    assert rows["bubblewrap"]["version"] == "0.1.0"
    assert rows["bubblewrap"]["status"] == "loads"
    assert rows["broken"]["status"] == "broken"
    assert rows["broken"]["error"] == "RuntimeError: it is broken"
    text = agentix("plugin", "list", path=tmp_path).stdout
    assert "it is broken" in text
    assert result.returncode == 0
