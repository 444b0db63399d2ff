"""Every example, and the README's first program, as their reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]
REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command in *cwd*, with this environment's programs first on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path} | (env or {})
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_says_what_came_back_and_who_answered() -> None:
    command = f"{sys.executable} examples/demo.py 2>&1"
    said = run("sh", "-c", command, cwd=REPOSITORY)
    assert "Hello, sandbox!" in said
    assert re.search(r"answered by +CPython 3\.11\.\d+ on glibc 2\.36\n", said)
    assert re.search(r"inside +an image that holds only bin, dev, etc, nix, proc, sys\n", said)
    assert len(re.findall(r"sha256:[0-9a-f]{64}\n", said)) == 2
    again = run("sh", "-c", command, cwd=REPOSITORY)
    assert "hello-world 0.1.0 for linux/amd64, unchanged" in again
    assert "already deployed" in again


def test_data_report_returns_a_dataclass_with_arrays_in_it(tmp_path: Path) -> None:
    run("agentix", "build", EXAMPLES / "data-report", "--output", tmp_path, cwd=tmp_path)
    (tmp_path / "image").mkdir()
    (tmp_path / "main.py").write_text(
        """
import asyncio
from pathlib import Path
import numpy as np
from agentix import SandboxConfig
from agentix.provider.bubblewrap import BubblewrapProvider
from data_report import Report, summarize

TABLE = "x,y,name\\n" + "".join(f"{i},{2 * i + 1},n{i}\\n" for i in range(101))

async def main() -> None:
    [bundle] = Path().glob("*.bundle.tar")
    async with BubblewrapProvider().session(
        SandboxConfig(image="image", bundle=str(bundle))
    ) as sandbox:
        report = await sandbox.remote(summarize, TABLE)
    assert type(report) is Report and report.rows == 101
    assert report.columns["x"].mean == 50.0
    np.testing.assert_array_equal(report.columns["y"].quartiles, [51.0, 101.0, 151.0])
    assert report.columns["x"].counts.dtype == np.int64 and report.columns["x"].counts.sum() == 101
    np.testing.assert_allclose(report.correlation, np.ones((2, 2)))
    print(sorted(report.columns))

asyncio.run(main())
"""
    )
    sources = os.pathsep.join(
        str(EXAMPLES / f"{name}/src") for name in ("data-report", "column-stats")
    )
    said = run(sys.executable, "main.py", cwd=tmp_path, env={"PYTHONPATH": sources})
    assert said == "['x', 'y']\n"


def test_the_first_program_of_the_readme_runs_as_it_is_printed(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    words = tmp_path / "words"
    words.mkdir()
    for name in ("words/pyproject.toml", "words/words.py", "main.py"):
        language = "toml" if name.endswith("toml") else "python"
        found = re.search(rf"```{language}\n# {re.escape(name)}\n(.*?)```", readme, re.DOTALL)
        assert found is not None, name
        (tmp_path / name).write_text(found[1])
    build, start = "agentix build words", "PYTHONPATH=words python main.py"
    assert f"    {build}\n    {start}\n" in readme
    run("sh", "-c", build, cwd=tmp_path)
    said = run("sh", "-c", start, cwd=tmp_path).splitlines()
    assert said == ["[3 8 4]", f"{os.uname().sysname} {os.uname().release}"]
    left = {path.name for path in words.iterdir()} - {"__pycache__"}
    assert left == {"bundle.lock", "dist", "pyproject.toml", "words.py"}
