"""A new project: the smallest one that builds, in a folder that may have other things in it."""

from __future__ import annotations

import keyword
import os
import re
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentix.build.request import LONGEST_NAME
from agentix.errors import ProjectError
from agentix.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OURS = frozenset({"agentix", "agentix-runtime"})  # what every bundle depends on

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = []

[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]

[tool.agentix]
# python = "3.11"      # or 3.13; without it, the one that matches this machine's
# system = ["jq"]      # Debian packages whose programs go along
"""
_MODULE = '''\
"""What runs inside a sandbox: any function here can be called from outside."""

import platform


def hello(name: str) -> str:
    """Greet *name*, and say which Python does."""
    return f"Hello, {name}! This is Python {platform.python_version()}."
'''
_IGNORED = """\
__pycache__/
.venv/
/dist/
"""


@dataclass(frozen=True, slots=True)
class NewProject:
    """What was made: in the folder ``root``, ``files`` relative to it."""

    root: Path
    name: str
    module: str
    files: tuple[str, ...]


def make_project(root: Path) -> NewProject:
    """Make a project in the folder *root*, named after it; a .gitignore that is there stays.

    ProjectError when a file or module of that name is there already, or no name can be made; then
    nothing is made.
    """
    name, module = _names(os.path.basename(os.path.realpath(root)))  # noqa: PTH119 - also of a loop
    contents = {
        "pyproject.toml": _PYPROJECT.format(name=name, module=module),
        f"{module}.py": _MODULE,
    }
    for there in (*contents, module):
        if os.path.lexists(root / there):
            raise ProjectError(f"{root / there} is there already; choose another folder")
    if not os.path.lexists(root / ".gitignore"):
        contents[".gitignore"] = _IGNORED
    try:
        with ExitStack() as undo:
            _write(root, contents, undo)
            undo.pop_all()
    except OSError as error:
        raise ProjectError(f"cannot make a project in {root}: {error.strerror}") from error
    return NewProject(root, name, module, tuple(contents))


def _names(folder: str) -> tuple[str, str]:
    """Return what a project in a folder of that name and its module are called."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")
    if not name or len(name) > LONGEST_NAME or name in _OURS:
        raise ProjectError(
            f"no project can be called after the folder {quoted(folder)}; give one that has "
            f"letters or digits, at most {LONGEST_NAME}, and is not called as Agentix is"
        )
    module = re.sub(r"^(?=[0-9])", "_", name.replace("-", "_"))
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        module += "_project"  # else nobody could import it
    return name, module


def _write(root: Path, contents: Mapping[str, str], undo: ExitStack) -> None:
    """Write all of it; *undo* takes back what was made."""
    for folder in reversed([root, *root.parents]):
        if not folder.exists():
            folder.mkdir()
            undo.callback(folder.rmdir)
    for name, text in contents.items():
        file = root / name
        with file.open("x", encoding="utf-8") as new:  # whoever was faster keeps theirs
            undo.callback(file.unlink)
            new.write(text)
