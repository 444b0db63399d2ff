"""A call runs the function that it names, with these arguments, and returns its value."""

from __future__ import annotations

import asyncio
import math
import operator
import os
import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from local_runtime import LocalRuntime, appears, failing, far, shop

from agentix.errors import CallTimeout, RemoteCallError, RestrictedUnpickleError
from agentix.results import allow_type
from agentix.wire.protocol import PROTOCOL

if TYPE_CHECKING:
    from pathlib import Path


async def test_sync_and_async_functions_return_their_values(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        assert await client.remote(far.noop, [1, "a", None]) == [1, "a", None]
        assert await client.remote(far.anoop, {"x": (1, 2)}) == {"x": (1, 2)}
        assert await client.remote(math.sqrt, 9) == 3
        args, kwargs = await client.remote(far.echo, 1, b"2", self="s", fn="f", x={1, 2})
        assert (args, kwargs) == ((1, b"2"), {"self": "s", "fn": "f", "x": {1, 2}})


async def test_functions_run_in_another_process_sync_ones_in_threads(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        pid = (await client.health()).worker_pid
        assert pid != os.getpid()
        assert await client.remote(far.process) == await client.remote(far.aprocess) == pid
        assert (await client.remote(far.thread)).startswith("agentix-")


async def test_decorated_static_and_nested_functions_are_found(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        assert await client.remote(far.wrapped, 1) == 2
        assert await client.remote(far.awrapped, 1) == 2
        assert await client.remote(far.sync_that_awaits, 3) == 3
        assert await client.remote(far.cached, 4) == 8
        assert await client.remote(far.Tools.static, 5) == 15
        assert await client.remote(far.Tools.Inner.deep, 6) == 30


async def test_arguments_may_be_what_the_sandbox_cannot_import(shared: LocalRuntime) -> None:
    class Local:
        value = 7

    async with shared.client() as client:
        assert await client.remote(operator.call, lambda: Local().value) == 7


async def test_classes_in_the_return_annotation_come_back_as_themselves(
    shared: LocalRuntime,
) -> None:
    async with shared.client() as client:
        order = await client.remote(shop.order, "n")
        assert type(order) is shop.Order
        assert (order.name, order.points, order.colour) == ("n", [(1, 2.0)], shop.Colour.BLUE)
        assert type(order.points[0]) is shop.Point
        assert order.data is not None
        assert np.array_equal(order.data, np.arange(100_000.0))
        assert await client.remote(shop.models) == shop.models()


async def test_other_classes_are_refused_and_named_until_they_are_allowed(
    shared: LocalRuntime,
) -> None:
    async with shared.client() as client:
        with pytest.raises(RestrictedUnpickleError, match=r"local_runtime\.shop\.Secret") as caught:
            await client.remote(shop.secret)
        text = str(caught.value)
        assert "annotation" in text
        assert "agentix.results.allow_type(Secret)" in text
        assert "AGENTIX_PICKLE_TRUST=1" in text
        allow_type(shop.Secret)
        assert await client.remote(shop.secret) == shop.Secret(7)


async def test_full_pickles_are_accepted_only_by_choice(
    shared: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared.client() as client:
        with pytest.raises(RemoteCallError, match="cannot send back"):
            await client.remote(failing.unsendable, "object")
        monkeypatch.setenv("AGENTIX_PICKLE_TRUST", "1")
        assert type(await client.remote(failing.unsendable, "object")) is failing.Plain
        found = await client.remote(shop.arrays)
        assert np.array_equal(found["float"], shop.arrays()["float"])


async def test_arrays_come_back_equal_and_writable(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        found = await client.remote(shop.arrays)
        for name, expected in shop.arrays().items():
            assert found[name].dtype == expected.dtype, name
            assert np.array_equal(found[name], expected), name
            assert found[name].flags.writeable, name


@pytest.mark.parametrize("size", [0, 1, 65_535, 262_144, 262_145, 1 << 20, 8 << 20, 64 << 20])
async def test_bytes_of_any_size_go_both_ways(shared: LocalRuntime, size: int) -> None:
    async with shared.client() as client:
        assert await client.remote(far.length, bytes(size)) == size
        assert len(await client.remote(far.blob, size)) == size
        assert len(await client.remote(far.ablob, size)) == size


async def test_large_arrays_arrive_as_writable_memory_of_their_own(shared: LocalRuntime) -> None:
    array = np.zeros(4_000_000)
    async with shared.client() as client:
        assert await client.remote(shop.writable, array) == 42.0
        assert await client.remote(shop.writable, array[:10]) == 42.0
    assert array[0] == 0


async def test_many_large_calls_at_once_do_not_block_each_other(shared: LocalRuntime) -> None:
    data = os.urandom(1 << 20)
    async with shared.client() as client:
        found = await asyncio.gather(*(client.remote(far.noop, data) for _ in range(200)))
        assert all(one == data for one in found)


async def test_500_waiting_calls_wait_together(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        start = time.perf_counter()
        await asyncio.gather(*(client.remote(far.asleep, 0.5) for _ in range(500)))
        assert time.perf_counter() - start < 5


async def test_blocking_functions_hold_up_neither_each_other_nor_the_loop(
    shared: LocalRuntime,
) -> None:
    async with shared.client() as client:
        await client.remote(far.hold)
        blocked = [asyncio.create_task(client.remote(far.block_until_release)) for _ in range(48)]
        await client.remote(far.held, 48)  # in one more thread: all of them block at once
        await client.remote(far.anoop)
        assert not any(one.done() for one in blocked)
        await client.remote(far.release)
        await asyncio.gather(*blocked)


async def test_a_busy_worker_never_takes_the_server_with_it(
    shared: LocalRuntime, tmp_path: Path
) -> None:
    async with shared.client() as client:
        busy = asyncio.create_task(client.remote(far.hold_loop, str(tmp_path)))
        await appears(tmp_path / "held")
        assert (await client.health()).status == "ok"
        assert not busy.done()
        (tmp_path / "go").touch()
        await busy


async def test_context_variables_do_not_leak_between_calls(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        for function in (far.swap_variable, far.aswap_variable) * 3:
            assert await client.remote(function, "set") == "unset"


async def test_a_call_is_bounded_by_the_timeout_and_ended_in_the_sandbox(
    shared: LocalRuntime,
) -> None:
    async with shared.client(timeout=1.5) as client, shared.client() as other:
        with pytest.raises(CallTimeout, match=r"1\.5 s") as caught:
            await client.remote(far.wait_and_tell, "bounded")
        assert isinstance(caught.value, TimeoutError)
        await until_told(other, "bounded cancelled")


async def until_told(client: Any, text: str) -> None:
    """Wait until a function in the sandbox has noted something, for a bounded time."""
    async with asyncio.timeout(10):
        while text not in await client.remote(far.told):
            await asyncio.sleep(0.01)


async def test_standard_input_is_empty_and_output_is_not_the_channel(
    shared: LocalRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with shared.client() as client:
        assert await client.remote(far.read_stdin) == (b"", "")
        junk = b"\x00\x00\x00\xff" * 100
        assert await client.remote(far.write_stdout, junk) == len(junk)
        await client.remote(far.write_descriptors, junk)
        assert await client.remote(far.noop, 1) == 1
    assert "printed" in caplog.text


async def test_the_working_directory_is_kept_and_is_never_imported_from(tmp_path: Path) -> None:
    for name in ("socket.py", "aiohttp.py", "logging.py", "sitecustomize.py", "site.py", "far.py"):
        (tmp_path / name).write_text("raise SystemExit('imported from the working directory')")
    (tmp_path / "agentix").mkdir()
    (tmp_path / "agentix" / "__init__.py").write_text("raise SystemExit('imported from here')")
    hostile = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(tmp_path),
        "PYTHONHOME": "/nonexistent",
        "PYTHONSTARTUP": str(tmp_path / "site.py"),
        "PYTHONOPTIMIZE": "2",
        "PYTHONWARNINGS": "error",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "socks5://127.0.0.1:9",
        "TASK": "kept",
    }
    with LocalRuntime(environment=hostile, cwd=str(tmp_path)) as runtime:
        async with runtime.client() as client:
            found = await client.remote(far.environment)
    assert found["cwd"] == str(tmp_path)
    del found["environ"]["AGENTIX_LOG_DIR"]  # the only one that is the test's
    assert found["environ"] == hostile
    assert not {"", ".", str(tmp_path)} & set(found["path"])


async def test_proxies_of_the_host_do_not_matter(
    shared: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    async with shared.client() as client:
        assert await client.remote(far.noop, 1) == 1
        assert (await client.health()).status == "ok"


async def test_the_worker_keeps_the_limits_of_the_image(shared: LocalRuntime) -> None:
    import resource

    async with shared.client() as client:
        found = await client.remote(far.environment)
    assert tuple(found["nofile"]) == resource.getrlimit(resource.RLIMIT_NOFILE)


async def test_health_tells_versions_and_processes(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        health = await client.health()
    assert re.fullmatch(r"3\.\d+\.\d+", health.python)
    assert (health.status, health.protocol, health.pid) == ("ok", PROTOCOL, shared.process.pid)


async def test_a_client_closes_while_calls_are_under_way(shared: LocalRuntime) -> None:
    client = shared.client()
    call = asyncio.create_task(client.try_remote(far.asleep, 30))
    await client.remote(far.noop)
    await client.close()
    result = await asyncio.wait_for(call, 5)
    assert "closed" in str(result)
    with pytest.raises(RuntimeError, match="closed"):
        await client.remote(far.noop)
