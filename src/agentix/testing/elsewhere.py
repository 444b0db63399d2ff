"""Another process of the same user, which knows nothing but how to make the provider."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import cloudpickle

from agentix.provider.base import SandboxId

if TYPE_CHECKING:
    from agentix.testing.case import Case

_PROGRAM = """
import asyncio, pickle, sys
sys.path[:], factory, argument, what = pickle.load(sys.stdin.buffer)
import cloudpickle
from agentix.testing import probes
provider = cloudpickle.loads(factory)()

async def get():
    async with await provider.get(argument) as sandbox:
        return await sandbox.remote(probes.echo, "from elsewhere")

async def delete():
    return await provider.delete(argument)

async def create():
    sandbox = await provider.create(cloudpickle.loads(argument))
    print(sandbox.sandbox_id, flush=True)
    await asyncio.Event().wait()

print(asyncio.run({"get": get, "delete": delete, "create": create}[what]()))
"""


async def elsewhere(case: Case, what: str, sandbox_id: SandboxId) -> str:
    """Get or delete a sandbox in another process, and return what it printed."""
    case.require(case.subject.crosses_processes, "crosses_processes")
    process = await _start()
    output, errors = await process.communicate(_given(case, what, sandbox_id))
    assert process.returncode == 0, errors.decode()
    return output.decode().strip()


async def left_by_a_killed_process(case: Case) -> SandboxId:
    """Have another process create a sandbox, kill that process, and return what it left."""
    process = await _start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_given(case, "create", cloudpickle.dumps(case.config())))
    process.stdin.write_eof()
    try:
        sandbox_id = (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        _, errors = await process.communicate()
    assert sandbox_id, errors.decode()
    return SandboxId(sandbox_id)


async def _start() -> asyncio.subprocess.Process:
    pipe = subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM), stdin=pipe, stdout=pipe, stderr=pipe
    )


def _given(case: Case, what: str, argument: Any) -> bytes:
    factory = cloudpickle.dumps(case.subject.provider)
    given: bytes = cloudpickle.dumps((sys.path, factory, argument, what))
    return given
