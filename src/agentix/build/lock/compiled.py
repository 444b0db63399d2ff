"""Whether building a project takes more than Python: a compiler of C and C++, or of Rust."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentix.build.project import Project

_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".pyx")
_ASKS = re.compile(
    r"\b(Extension|build_clib|build_ext|cffi_modules|cythonize|ext_modules|mypycify)\b"
)
_GENERATORS = frozenset(
    {"cffi", "cython", "meson-python", "mypy", "nanobind", "pybind11", "scikit-build"}
    | {"scikit-build-core"}
)
_RUST = frozenset({"maturin", "setuptools-rust"})


def is_compiled(project: Project, files: Iterable[str] = ()) -> bool:
    """Say whether building *project* takes a compiler, by what it says and its *files*.

    *files* are given where the author is somebody else, who may hide it well.
    """
    if project.settings.build or _required(project) & _GENERATORS:
        return True
    setup = project.root / "setup.py"
    if not setup.is_file():
        return "ext-modules" in project.tool("setuptools")
    if _ASKS.search(setup.read_text(encoding="utf-8", errors="replace")):
        return True
    return any(name.endswith(_SOURCES) for name in files)


def is_rust(project: Project) -> bool:
    """Say whether building *project* takes Rust."""
    return bool(_required(project) & _RUST)


def _required(project: Project) -> set[str]:
    names = (re.match(r"[A-Za-z0-9._-]+", text) for text in project.backend.requires)
    return {canonicalize_name(name[0]) for name in names if name is not None}
