"""A large result is in memory once: where it was received is where it stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from local_runtime import TESTS, LocalRuntime

_MIB = 1 << 20

_CLIENT = """
import asyncio, os, re, sys
from pathlib import Path
import numpy
from agentix.client import RuntimeClient
from local_runtime import far

def peak(pid="self"):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", text)[1]) >> 10

def forget():
    Path("/proc/self/clear_refs").write_text("5")

async def main(url, kind, size):
    async with RuntimeClient(url, token=os.environ["TOKEN"], timeout=120) as client:
        server = (await client.health()).pid
        make = far.blob if kind == "bytes" else numpy.ones
        args = (size,) if kind == "bytes" else (size // 8,)
        await client.remote(make, 2 << 20)  # what it takes to receive anything
        before, flat = peak(), peak(server)
        result = await client.remote(make, *args)
        after, then = peak(), peak(server)
        if kind == "bytes":
            assert type(result) is bytes and len(result) == size and result.count(0) == size
        else:
            assert result.nbytes == size and result.flags.writeable and (result == 1).all()
        print((after - before) / (size >> 20), then - flat)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("array", 512 * _MIB),
        pytest.param("bytes", 1024 * _MIB, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_a_large_result_is_held_once(kind: str, size: int, tcp: bool) -> None:
    with LocalRuntime(tcp=tcp) as runtime:
        ran = subprocess.run(
            [sys.executable, "-c", _CLIENT, runtime.url, kind, str(size)],
            env={"PYTHONPATH": str(TESTS), "TOKEN": runtime.token},
            cwd=Path("/"),
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert ran.returncode == 0, ran.stderr
    copies, server = map(float, ran.stdout.split())
    assert copies <= 1.15, f"the client took {copies} times the size of the result"
    assert server <= 32, f"the server took {server} MiB more"
