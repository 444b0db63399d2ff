"""C and C++, in an archive of somebody else and in the project itself, for both platforms."""

from __future__ import annotations

import asyncio
import importlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from own_cache import own_cache

from agentix import SandboxConfig, nix, platforms
from agentix.build.build import build_bundle
from agentix.build.forecast import forecast
from agentix.build.lock import load
from agentix.provider.bubblewrap import BubblewrapProvider

if TYPE_CHECKING:
    from collections.abc import Iterator

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
# What only the machine that is built for can compile: with libraries of Debian's, one of which a
# bundle has to be given.
LIBRARIES = """
#include <Python.h>
#include <yaml.h>
#include <zlib.h>
static PyObject *versions(PyObject *self, PyObject *none) {
    return PyUnicode_FromFormat("%c %c", yaml_get_version_string()[0], zlibVersion()[0]);
}
static PyMethodDef methods[] = {{"versions", versions, METH_NOARGS, NULL}, {NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "libraries", NULL, -1, methods};
PyMODINIT_FUNC PyInit_libraries(void) { return PyModule_Create(&module); }
"""
OWN_SETUP = """
import subprocess
from setuptools import Extension, setup
words = ["pkg-config", "--cflags", "--libs", "yaml-0.1", "zlib"]
flags = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
setup(ext_modules=[Extension("libraries", ["libraries.c"], extra_link_args=flags)])
"""
TOOLS = """
[tool.agentix]
build = ["libyaml-dev", "zlib1g-dev", "pkg-config"]
system = ["libyaml-0-2"]
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
    if find_spec("libraries"):
        import libraries

        found["libraries"] = libraries.versions()
    found["compiler"] = shutil.which("gcc") or shutil.which("cc")
    found["library"] = find_spec("c_dep").origin.rpartition("/")[2]
    return found
'''
THROWS = """
#include <stdexcept>
extern "C" void throws(int count) { if (count) throw std::runtime_error("caught"); }
"""
CATCHES = """
#include <cstdio>
#include <exception>
extern "C" void throws(int count);
int main(int count, char **words) {
    try { throws(count); } catch (const std::exception &error) { std::puts(error.what()); }
}
"""
PLAIN = """
#include <math.h>
#include <stdio.h>
#include <zlib.h>
int main(int count, char **words) {
    return printf("%.0f %c\\n", sqrt(count * 4.0), zlibVersion()[0]) < 0;
}
"""
# Each way to link that gcc's specs decide on, the languages' own included; and what it needs then.
LINKED: dict[str, tuple[str, set[str]]] = {
    "gcc plain.c -lm -lz": ("2 1", {"libc", "libm", "libz"}),
    "gcc plain.c -static -lm -lz": ("2 1", set()),
    "gcc plain.c -static-pie -lm -lz": ("2 1", set()),
    "gcc plain.c -static-libgcc -lm -lz": ("2 1", {"libc", "libm", "libz"}),
    "gcc plain.c -Wl,--no-as-needed -shared-libgcc -lm -lz": (
        "2 1",
        {"libc", "libgcc_s", "libm", "libz"},
    ),
    "g++ catches.cpp throws.cpp": ("caught", {"libc", "libgcc_s", "libstdc++"}),
    "g++ catches.cpp throws.cpp -static": ("caught", set()),
    "g++ catches.cpp throws.cpp -static-libgcc -static-libstdc++": ("caught", {"libc"}),
    "g++ catches.cpp -L. -lthrows": ("caught", {"libc", "libgcc_s", "libstdc++", "libthrows"}),
    "g++ catches.cpp -L. -lthrows -static-libgcc": ("caught", {"libc", "libstdc++", "libthrows"}),
    "g++ catches.cpp -L. -lthrows-own": ("caught", {"libc", "libgcc_s", "libstdc++", "libthrows"}),
}
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
        own_cache(patch, folder / "cache")
        patch.syspath_prepend(root)
        patch.delitem(sys.modules, "compiled_task", raising=False)
        yield root


@pytest.mark.bubblewrap
def test_what_is_compiled_works_in_an_empty_root_and_brings_no_compiler(
    project: Path, tmp_path: Path
) -> None:
    pyproject = (project / "pyproject.toml").read_text()
    project = Path(shutil.copytree(project, project.with_name("with-libraries")))
    (project / "pyproject.toml").write_text(pyproject + TOOLS)
    (project / "setup.py").write_text(OWN_SETUP)
    (project / "libraries.c").write_text(LIBRARIES)
    bundle = build_bundle(project, output=project.parent, python="3.11")
    check_compiler(project / "bundle.lock", tmp_path / "linked")
    task = importlib.import_module("compiled_task")

    async def call() -> dict[str, object]:
        config = SandboxConfig(image=str(tmp_path), bundle=str(bundle.path))
        async with BubblewrapProvider().session(config, timeout=60) as sandbox:
            found: dict[str, object] = await sandbox.remote(task.use)
            return found

    machine = platforms.current().machine
    library = f"c_dep.cpython-311-{machine}-linux-gnu.so"
    assert asyncio.run(call()) == EXPECTED | {"library": library, "libraries": "0 1"}
    names = {path.path.name[33:] for path in nix.closure(bundle.store_path)}
    tools = [path.path for path in nix.closure(bundle.store_path) if path.path.name[33:] == "tools"]
    assert not [p for tool in tools for p in (tool / "root/lib").glob("gcc*")]
    assert {"c-dep-1.0", "linked"} <= names  # the second with compiled-task, which lacked a library


def check_compiler(lock: Path, folder: Path) -> None:
    """Link and run programs with the compiler of a lock, in each way that it decides on itself."""
    arguments = {"lock": str(lock), "platform": platforms.current().name}
    tools = nix.build(Path(__file__).with_name("compiler.nix"), arguments)
    folder.mkdir()
    for name, text in {"throws.cpp": THROWS, "catches.cpp": CATCHES, "plain.c": PLAIN}.items():
        (folder / name).write_text(text)

    def run(*words: str) -> str:
        # Nothing of this machine is in reach, as in a derivation.
        done = subprocess.run(
            words,
            cwd=folder,
            env={"PATH": f"{tools}/bin", "LD_LIBRARY_PATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), words
        return done.stdout.strip()

    shared = [f"{tools}/bin/g++", "throws.cpp", "-fPIC", "-shared", "-Wl,-soname,libthrows.so"]
    for command, (said, needed) in LINKED.items():
        # As published libraries are, or with the library of exceptions in itself.
        own = ["-static-libgcc"] if command.endswith("-own") else []
        run(*shared, *own, "-o", "libthrows.so")
        driver, *words = command.removesuffix("-own").split()
        run(f"{tools}/bin/{driver}", *words, "-o", "made")
        assert run("./made") == said, command
        found = re.findall(r"NEEDED +(\S+?)\.so", run(f"{tools}/bin/objdump", "-p", "made"))
        assert {name for name in found if not name.startswith("ld-linux")} == needed, command


def test_the_other_platform_is_compiled_for_without_running_anything_of_it(project: Path) -> None:
    here = platforms.current()
    (other,) = (p for p in platforms.PLATFORMS.values() if p != here)
    bundle = build_bundle(project, output=project.parent, platform=other.name, python="3.11")
    lock = load(project / "bundle.lock")
    said = "\n".join(forecast(project, platform=other.name).lines())
    assert " wheels, 1 built from source, 0 Debian packages" in said
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
