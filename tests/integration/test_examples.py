"""Every example, and the README's first program, as their reader would run them."""

from __future__ import annotations

import json
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
    [tar] = (EXAMPLES / "hello-world/dist").glob("hello-world-0.1.0-*.bundle.tar")
    assert tar.stat().st_size <= 75e6
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


def _page(name: str) -> dict[str, str]:
    """Collect the files that a page of the docs prints, by the name in their first line."""
    text = (REPOSITORY / "docs" / name).read_text()
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", text, re.DOTALL))


def test_the_program_of_the_page_on_remote_calls_runs_as_it_is_printed(tmp_path: Path) -> None:
    files = _page("remote-calls.md")
    assert {*files} == {"rollout.py", "main.py", "frames.py"}
    project = tmp_path / "rollout"
    project.mkdir()
    (project / "rollout.py").write_text(files["rollout.py"])
    (project / "frames.py").write_text(
        files["frames.py"]
        + "\n\ndef table(count: int) -> pd.DataFrame:\n"
        + "    return pd.DataFrame({'n': range(count), 'half': [n / 2 for n in range(count)]})\n"
    )
    (project / "pyproject.toml").write_text(
        """
[project]
name = "rollout"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["pandas"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build]
include = ["*.py"]
"""
    )
    more = """
async def frame() -> None:
    from frames import table
    config = SandboxConfig(image="host", bundle=BUNDLE)
    async with BubblewrapProvider().session(config) as sandbox:
        print((await sandbox.remote(table, 5))["half"].sum())


asyncio.run(frame())
"""
    (tmp_path / "main.py").write_text(files["main.py"] + more)
    run("agentix", "build", "rollout", cwd=tmp_path)
    environment = {"PYTHONPATH": "rollout", "AGENTIX_LOG_LEVEL": "INFO"}
    said = run("sh", "-c", f"{sys.executable} main.py 2>log", cwd=tmp_path, env=environment)
    assert said.splitlines() == ["ValueError no such task", "too slow", "5.0"]
    log = (tmp_path / "log").read_text()
    assert "solving sum" in log
    assert "plain output comes along, too" in log
    lines = [json.loads(line) for line in (tmp_path / "traces.jsonl").read_text().splitlines()]
    spans = {line["name"]: line for line in lines}
    assert spans["think"]["parent_id"] == spans["solve"]["span_id"]
    assert {line["trace_id"] for line in lines} == {spans["rollout"]["trace_id"]}
