"""Wheels with much native code, each in its own way, work where there is no library at all.

Nor do the libraries that they bring reach programs of an image that has its own.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest
from images import Recipe, build
from images.recipes import OTHER_SUITE

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.provider.bubblewrap import BubblewrapProvider

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]

PYPROJECT = """
[project]
name = "native-task"
version = "1.0"
requires-python = ">=3.11"
dependencies = [
    "cryptography", "duckdb", "grpcio", "lxml", "numpy", "pandas", "pillow", "protobuf",
    "psycopg[binary]", "pyarrow", "pyzmq",
]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""

MODULE = '''
def use() -> dict[str, str]:
    """Let each library do a little of what it is for, and say what came of it."""
    import io
    from concurrent.futures import ThreadPoolExecutor

    import duckdb
    import grpc
    import numpy as np
    import pandas as pd
    import psycopg
    import pyarrow as pa
    import pyarrow.compute
    import zmq
    from cryptography.fernet import Fernet
    from cryptography.hazmat.bindings import _rust
    from google.protobuf.wrappers_pb2 import Int32Value
    from lxml import etree
    from PIL import Image

    key = Fernet(Fernet.generate_key())
    server = grpc.server(ThreadPoolExecutor(1))
    picture = io.BytesIO()
    Image.new("RGB", (2, 3), "red").resize((4, 6)).save(picture, "PNG")
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
        one.bind("inproc://x")
        two.connect("inproc://x")
        two.send(b"over")
        message = one.recv().decode()
    return {
        "cryptography": key.decrypt(key.encrypt(b"secret")).decode(),
        "abi3": _rust.__file__.rpartition("/")[2],
        "duckdb": str(duckdb.sql("SELECT sum(i) FROM range(5) r(i)").fetchall()[0][0]),
        "grpcio": str(server.add_insecure_port("127.0.0.1:0") > 0),
        "lxml": str(etree.XML("<a><b>text</b></a>").xpath("string(//b)")),
        "numpy": str(round(float(np.linalg.det(np.eye(3) * 2)))),
        "pandas": str(pd.DataFrame({"x": [1, 2, 2]}).groupby("x").size()[2]),
        "pillow": str(Image.open(picture).size),
        "protobuf": str(Int32Value.FromString(Int32Value(value=4).SerializeToString()).value),
        "psycopg": str(psycopg.pq.__impl__ == "binary" and psycopg.pq.version() > 90000),
        "pyarrow": str(pa.compute.sum(pa.table({"x": [1, 2]})["x"])),
        "pyzmq": message,
    }


def run(command: list[str]) -> tuple[int, str, str]:
    """Run a program of the image, from the process that has all these libraries loaded."""
    import subprocess

    use()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr
'''

# Its programs link to much of what the wheels bring, too: C++, compression, cryptography.
TOOLS = Recipe(
    "native-tools",
    suite=OTHER_SUITE,
    packages=("base-files", "bash", "coreutils", "curl", "dash", "git"),
    folders=("tmp", "root"),
    files=(("etc/hello", "hello from the image\n"),),
)
COMMIT = "git -c user.name=a -c user.email=a@b commit --quiet --allow-empty --message done"
PROGRAMS = {
    "curl --silent --show-error file:///etc/hello": "hello from the image\n",
    f"cd /tmp && git init --quiet r && cd r && {COMMIT} && git log --format=%s": "done\n",
}


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ModuleType]]:
    """The bundle with all those wheels, and its module."""
    folder = tmp_path_factory.mktemp("native")
    project = folder / "native-task"
    project.mkdir()
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "native_task.py").write_text(MODULE)
    bundle = build_bundle(project, output=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(folder / "cache"))
        patch.syspath_prepend(project)
        patch.delitem(sys.modules, "native_task", raising=False)
        yield str(bundle.path), importlib.import_module("native_task")


async def test_native_wheels_work_in_an_empty_root(
    native: tuple[str, ModuleType], tmp_path: Path
) -> None:
    bundle, module = native
    config = SandboxConfig(image=str(tmp_path), bundle=bundle)
    async with BubblewrapProvider().session(config, timeout=60) as sandbox:
        assert await sandbox.remote(module.use) == {
            "abi3": "_rust.abi3.so",
            "cryptography": "secret",
            "duckdb": "10",
            "grpcio": "True",
            "lxml": "text",
            "numpy": "8",
            "pandas": "2",
            "pillow": "(4, 6)",
            "protobuf": "4",
            "psycopg": "True",
            "pyarrow": "3",
            "pyzmq": "over",
        }


async def test_the_images_own_programs_load_the_images_own_libraries(
    native: tuple[str, ModuleType],
) -> None:
    bundle, module = native
    config = SandboxConfig(image=str(build(TOOLS).rootfs), bundle=bundle)
    async with BubblewrapProvider().session(config, timeout=60) as sandbox:
        for script, output in PROGRAMS.items():
            assert await sandbox.remote(module.run, ["/bin/sh", "-c", script]) == (0, output, "")
        for name in ("curl", "git"):
            trace = f"LD_TRACE_LOADED_OBJECTS=1 {name}"
            code, libraries, errors = await sandbox.remote(module.run, ["/bin/sh", "-c", trace])
            assert (code, errors) == (0, "")
            assert "libz.so.1 => /lib/" in libraries
            assert "/nix/" not in libraries
