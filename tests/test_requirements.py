"""The pinned environment has all that our distributions ask for, so that a new clone works."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FILES = [ROOT / "pyproject.toml", ROOT / "runtime/pyproject.toml"]
FILES += sorted(ROOT.glob("plugins/*/pyproject.toml"))
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def asked() -> list[tuple[str, Requirement]]:
    """Return every requirement, of every extra and group too, with the file that has it."""
    found = []
    for file in FILES:
        tables = tomllib.loads(file.read_text())
        project = tables["project"]
        lists = [project.get("dependencies", []), tables["build-system"]["requires"]]
        lists += project.get("optional-dependencies", {}).values()
        lists += tables.get("dependency-groups", {}).values()
        where = str(file.relative_to(ROOT))
        found += [(where, Requirement(text)) for each in lists for text in each]
    return found


@pytest.mark.parametrize(("where", "requirement"), asked(), ids=lambda value: str(value))
def test_what_is_asked_for_is_pinned(where: str, requirement: Requirement) -> None:
    name = canonicalize_name(requirement.name)
    if name.startswith("agentix") or name == "hatchling":  # from here; by whoever builds it
        return
    pins = dict(PIN.findall((ROOT / "requirements-dev.txt").read_text()))
    assert name in pins, f"{where} asks for {requirement}: run `make requirements`"
    assert requirement.specifier.contains(pins[name], prereleases=True)
