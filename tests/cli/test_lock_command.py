"""``agentix lock`` tells a project's folder from the names of packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentix.cli.lock import _split

AGENTIX = str(Path(sys.executable).parent / "agentix")


@pytest.mark.parametrize(
    ("words", "path", "names"),
    [
        ([], ".", []),
        (["aiohttp"], ".", ["aiohttp"]),
        (["aiohttp", "jq"], ".", ["aiohttp", "jq"]),
        (["project"], "project", []),
        (["project", "jq"], "project", ["jq"]),
        (["./jq"], "jq", []),
        (["..", "jq"], "..", ["jq"]),
        (["package", "jq"], ".", ["package", "jq"]),
    ],
)
def test_with_upgrade_a_word_is_a_package_unless_it_is_a_project(
    words: list[str],
    path: str,
    names: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/pyproject.toml").write_text("")
    (tmp_path / "package").mkdir()
    assert _split(words, upgrade=True) == (Path(path), names)


@pytest.mark.parametrize("words", [["a", "b"], ["--check", "--upgrade"]])
def test_words_that_make_no_sense_are_wrong_usage(words: list[str]) -> None:
    result = subprocess.run([AGENTIX, "lock", *words], capture_output=True, text=True)
    assert result.returncode == 2
    assert "Usage: agentix lock" in result.stderr


def test_without_upgrade_the_only_word_is_the_folder() -> None:
    assert _split(["aiohttp"], upgrade=False) == (Path("aiohttp"), [])


def test_an_interrupt_ends_what_uv_runs_and_reaches_us_alone(tmp_path: Path) -> None:
    waits = "import os, time\nopen('pid.new', 'w').write(str(os.getpid()))\n"
    waits += "os.rename('pid.new', 'pid')\ntime.sleep(600)\n"
    (tmp_path / "setup.py").write_text(waits)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\ndynamic = ["version"]\n')
    end = time.monotonic() + 60
    with subprocess.Popen(
        [AGENTIX, "lock", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            while not (tmp_path / "pid").exists():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.02)
            backend = int((tmp_path / "pid").read_text())
            assert os.getpgid(backend) != process.pid  # else a terminal would interrupt it first
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.terminate()
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "agentix: interrupted"
    while Path(f"/proc/{backend}").exists() and _state(backend) != "Z":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert not (tmp_path / "bundle.lock").exists()


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None
