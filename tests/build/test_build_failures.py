"""A build that cannot be says why, and leaves what there was."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from patience import eventually
from procfs import processes
from tiny_job import AGENTIX, snapshot

from agentix.build.build import build_bundle
from agentix.errors import NixError, ProjectError

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.nix


def test_a_failing_backend_is_quoted_and_leaves_what_was_there(root: Path) -> None:
    first = build_bundle(root)
    before = snapshot(root / "dist")
    (root / "backend.py").write_text(
        "from hatchling.build import *\n"
        "def build_wheel(*a, **k):\n    raise SystemExit('the flux capacitor is empty')\n"
    )
    with pytest.raises(NixError, match=r"building tiny-job\S* failed with exit status 1") as caught:
        build_bundle(root)
    assert "flux capacitor" in caught.value.log
    assert snapshot(root / "dist") == before
    assert first.path.exists()


def test_a_failure_on_the_command_line_is_one_line_and_status_one(root: Path) -> None:
    (root / "backend.py").write_text("raise ImportError('no such backend')\n")
    result = subprocess.run([*AGENTIX, "build", str(root)], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("agentix: building tiny-job")
    assert "ImportError: no such backend" in last
    assert "Traceback" not in result.stderr
    assert result.stderr.count("no such backend") == 1


def test_what_a_failing_backend_printed_is_shown_above_the_error(root: Path) -> None:
    (root / "backend.py").write_text(
        "from hatchling.build import *\n"
        "def build_wheel(*a, **k):\n    print('the last words')\n    raise ValueError('nope')\n"
    )
    result = subprocess.run([*AGENTIX, "build", str(root)], capture_output=True, text=True)
    assert result.returncode == 1
    assert "  | the last words\n" in result.stderr
    assert "  | ValueError: nope\n" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("agentix: building tiny-job")
    assert not (root / "dist").exists()


@pytest.mark.parametrize("name", ["../../victim", "/abs", "a/b:c"])
def test_a_name_cannot_lead_out_of_the_folder(root: Path, tmp_path: Path, name: str) -> None:
    before = snapshot(root.parent)
    for more in ([], ["--dry-run"]):
        command = [*AGENTIX, "build", str(root), "--name", name, *more]
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 1
        assert "a bundle cannot be called" in result.stderr
    assert snapshot(root.parent) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a Python project"),
        ("[tool.x]\n", r"no \[project\] table"),
        ("[", "not valid TOML"),
    ],
)
def test_what_is_no_project_is_said_to_be_none(
    tmp_path: Path, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ProjectError, match=message):
        build_bundle(tmp_path)


def test_an_output_that_cannot_be_written_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = subprocess.run(
        [*AGENTIX, "build", str(root), "-o", str(tmp_path / "file" / "x.tar")],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert f"cannot write into {tmp_path / 'file'}" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_half_made(
    root: Path, tmp_path: Path, number: signal.Signals
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    marker = f"marked-{time.time_ns()}"
    (root / "backend.py").write_text(
        "from hatchling.build import *\nimport subprocess, sys\n"
        "def build_wheel(*a, **k):\n"
        f"    subprocess.run([sys.executable, '-c', 'import time; time.sleep(3600)', {marker!r}])\n"
    )
    environment = os.environ | {"TMPDIR": str(scratch)}
    process = subprocess.Popen(
        [*AGENTIX, "build", str(root)], env=environment, stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: processes(marker), "the backend starts")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number)
    assert "Traceback" not in errors
    eventually(lambda: not processes(marker), "the backend ends")
    assert not (root / "dist").exists()
    if number != signal.SIGKILL:
        assert list(scratch.iterdir()) == []
