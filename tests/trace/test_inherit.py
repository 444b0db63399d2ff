"""Threads of the worker inherit what a call set; run apart, since it changes the whole process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, contextvars, threading, concurrent.futures
from agentix_runtime.worker import inherit
inherit.install()
var = contextvars.ContextVar("var", default="nothing")
seen = []

class Own(threading.Thread):
    def run(self):
        seen.append(var.get())

pool = concurrent.futures.ThreadPoolExecutor(1)

async def main():
    loop = asyncio.get_running_loop()
    seen.append(await loop.run_in_executor(None, var.get))
    seen.append(await loop.run_in_executor(pool, var.get))
    seen.append(pool.submit(var.get).result())
    seen.extend(pool.map(lambda _: var.get(), [1]))
    for thread in (Own(), threading.Thread(target=lambda: seen.append(var.get()))):
        thread.start()
        thread.join()

for value in ("first", "second"):
    def call():
        var.set(value)
        asyncio.run(main())
    contextvars.copy_context().run(call)
print(seen == ["first"] * 6 + ["second"] * 6, seen)
"""


def test_threads_and_pools_see_the_context_they_were_given_work_in() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert run.stdout.startswith("True"), run.stdout + run.stderr
