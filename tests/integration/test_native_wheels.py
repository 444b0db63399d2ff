"""Wheels with much native code, each in its own way, work where there is no library at all."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from agentix import SandboxConfig
from agentix.build.build import build_bundle
from agentix.provider.bubblewrap import BubblewrapProviderConfig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]

PYPROJECT = """
[project]
name = "native-task"
version = "1.0"
requires-python = ">=3.11"
dependencies = ["cryptography", "grpcio", "lxml", "numpy", "pandas", "pillow", "pyzmq"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
"""

MODULE = '''
def use() -> dict[str, str]:
    """Let each library do a little of what it is for, and say what came of it."""
    import io
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    import numpy as np
    import pandas as pd
    import zmq
    from cryptography.fernet import Fernet
    from cryptography.hazmat.bindings import _rust
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
        "grpcio": str(server.add_insecure_port("127.0.0.1:0") > 0),
        "lxml": str(etree.XML("<a><b>text</b></a>").xpath("string(//b)")),
        "numpy": str(round(float(np.linalg.det(np.eye(3) * 2)))),
        "pandas": str(pd.DataFrame({"x": [1, 2, 2]}).groupby("x").size()[2]),
        "pillow": str(Image.open(picture).size),
        "pyzmq": message,
    }
'''


async def test_native_wheels_work_in_an_empty_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, image = tmp_path / "native-task", tmp_path / "image"
    for folder in (project, image):
        folder.mkdir()
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "native_task.py").write_text(MODULE)
    bundle = await asyncio.to_thread(build_bundle, project, output=tmp_path / "out")
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(project)
    monkeypatch.delitem(sys.modules, "native_task", raising=False)
    use = importlib.import_module("native_task").use
    provider = BubblewrapProviderConfig().to_provider()
    config = SandboxConfig(image=str(image), bundle=str(bundle.path))
    async with provider.session(config, timeout=60) as sandbox:
        assert await sandbox.remote(use) == {
            "abi3": "_rust.abi3.so",
            "cryptography": "secret",
            "grpcio": "True",
            "lxml": "text",
            "numpy": "8",
            "pandas": "2",
            "pillow": "(4, 6)",
            "pyzmq": "over",
        }
