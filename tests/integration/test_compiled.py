"""C and C++, in an archive of somebody else and in the project itself, for both platforms."""

from __future__ import annotations

import asyncio
import importlib
import io
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from agentix import SandboxConfig, nix, platforms
from agentix.build.build import build_bundle
from agentix.build.lock import load
from agentix.provider.bubblewrap import BubblewrapProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.nix, pytest.mark.slow]

MODULE = """
#include <Python.h>
#include <math.h>
#include <assert.h>
static PyObject *root(PyObject *self, PyObject *number) {
    assert(number != NULL);
    return PyFloat_FromDouble(sqrt(PyFloat_AsDouble(number)));
}
static PyMethodDef methods[] = {{"root", root, METH_O, __FILE__}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "NAME", NULL, -1, methods};
PyMODINIT_FUNC PyInit_NAME(void) { return PyModule_Create(&module); }
"""
CPP = """
#include <Python.h>
#include <stdexcept>
#include <string>
static PyObject *word(PyObject *self, PyObject *none) {
    try {
        throw std::runtime_error("caught");
    } catch (const std::exception &error) {
        return PyUnicode_FromString(std::string(error.what()).c_str());
    }
}
static PyMethodDef methods[] = {{"word", word, METH_NOARGS, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "cpp_dep", NULL, -1, methods};
PyMODINIT_FUNC PyInit_cpp_dep(void) { return PyModule_Create(&module); }
"""
SETUP = """
from setuptools import Extension, setup
extensions = [Extension("c_dep", ["src/c.c"]), Extension("cpp_dep", ["src/cpp.cpp"])]
setup(name="c-dep", version="1.0", ext_modules=extensions)
"""
PROJECT = """
[project]
name = "compiled-task"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["c-dep"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["compiled_task"]
ext-modules = [{ name = "own_c", sources = ["own.c"] }]

[tool.uv]
find-links = ["../files"]
"""
TASK = '''
def use() -> dict[str, object]:
    """Call everything that was compiled, and look for what compiled it."""
    import shutil
    from importlib.util import find_spec

    import c_dep, cpp_dep, own_c

    found = {"c": c_dep.root(4.0), "c++": cpp_dep.word(), "own": own_c.root(9.0)}
    found["file"] = c_dep.root.__doc__
    found["compiler"] = shutil.which("gcc") or shutil.which("cc")
    found["library"] = find_spec("c_dep").origin.rpartition("/")[2]
    return found
'''
EXPECTED = {"c": 2.0, "c++": "caught", "own": 3.0, "file": "src/c.c", "compiler": None}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("compiled")
    texts = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: c-dep\nVersion: 1.0\n",
        "setup.py": SETUP,
        "src/c.c": MODULE.replace("NAME", "c_dep"),
        "src/cpp.cpp": CPP,
    }
    (folder / "files").mkdir()
    with tarfile.open(folder / "files/c_dep-1.0.tar.gz", "w:gz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"c_dep-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    root = folder / "task"
    root.mkdir()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "compiled_task.py").write_text(TASK)
    (root / "own.c").write_text(MODULE.replace("NAME", "own_c"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(folder / "cache"))
        patch.syspath_prepend(root)
        patch.delitem(sys.modules, "compiled_task", raising=False)
        yield root


@pytest.mark.bubblewrap
def test_what_is_compiled_works_in_an_empty_root_and_brings_no_compiler(
    project: Path, tmp_path: Path
) -> None:
    bundle = build_bundle(project, output=project.parent, python="3.11")
    task = importlib.import_module("compiled_task")

    async def call() -> dict[str, object]:
        config = SandboxConfig(image=str(tmp_path), bundle=str(bundle.path))
        async with BubblewrapProvider().session(config, timeout=60) as sandbox:
            found: dict[str, object] = await sandbox.remote(task.use)
            return found

    machine = platforms.current().machine
    library = f"c_dep.cpython-311-{machine}-linux-gnu.so"
    assert asyncio.run(call()) == EXPECTED | {"library": library}
    names = {path.path.name[33:] for path in nix.closure(bundle.store_path)}
    assert not [name for name in names if name.endswith("tools")]
    assert {"c-dep-1.0", "compiled-task-1.0"} <= names


def test_the_other_platform_is_compiled_for_without_running_anything_of_it(project: Path) -> None:
    here = platforms.current()
    (other,) = (p for p in platforms.PLATFORMS.values() if p != here)
    bundle = build_bundle(project, output=project.parent, platform=other.name, python="3.11")
    lock = load(project / "bundle.lock")
    release = next(r for r in lock.releases if r.source == "c_dep-1.0.tar.gz")
    assert release.compiled
    assert lock.projects[0].compiled
    libraries = [
        file
        for path in nix.closure(bundle.store_path)
        if path.path.name[33:] in {"c-dep-1.0", "compiled-task-1.0"}
        for file in path.path.rglob("*.so")
    ]
    assert len(libraries) == 3
    for library in libraries:
        assert library.name.endswith(f".cpython-311-{other.machine}-linux-gnu.so")
        kinds = {"x86_64": 62, "aarch64": 183}
        assert int.from_bytes(library.read_bytes()[18:20], "little") == kinds[other.machine]
