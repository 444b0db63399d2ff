"""The page on testing a provider: its example runs as it stands, and it names every fact."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import agentix.testing
from agentix.testing import Subject
from agentix.testing.subject import EVERYTHING

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/testing-a-provider.md").read_text()
FLY = """
from bad_providers.plain import IMAGE, PlainProvider

class FlyProvider(PlainProvider):
    async def create(self, config):
        return await super().create(config.model_copy(update={"image": IMAGE}))
"""


@pytest.mark.nix
@pytest.mark.machine_store
def test_the_example_is_all_that_it_takes(bundle: Path, tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n# test_fly\.py\n(.*?)```", PAGE, re.DOTALL)
    [named] = re.findall(r'bundle="(.*?)"', code)
    (tmp_path / "test_fly.py").write_text(code)
    (tmp_path / "fly.py").write_text(FLY)
    (tmp_path / named).parent.mkdir()
    (tmp_path / named).symlink_to(bundle)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "create or runs_and_answers or platform"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (TESTS, tmp_path)))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^5 passed, \d\d deselected", ran.stdout, re.MULTILINE), ran.stdout


def test_every_fact_and_every_group_is_explained() -> None:
    named = set(re.findall(r"`([A-Za-z_ ]+)(?:\(.*?\))?`", PAGE))
    assert {field.name for field in dataclasses.fields(Subject)} <= named
    assert set(agentix.testing.__all__) - {"ProviderConformance"} <= named
    assert named >= EVERYTHING


def test_sandboxes_import_the_probes_without_pytest_and_the_rest_of_the_suite() -> None:
    code = (
        "import sys; sys.modules['pytest'] = sys.modules['pydantic'] = None;"
        "import agentix.testing.probes;"
        "print(*sorted(name for name in sys.modules if name.startswith('agentix')))"
    )
    loaded = subprocess.check_output([sys.executable, "-I", "-c", code], text=True).split()
    assert loaded == ["agentix", "agentix.testing", "agentix.testing.probes"]
