"""Whatever a function does, its call ends in one typed error, as text, and the worker lives on."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from local_runtime import LocalRuntime, failing, far, shop

from agentix import Failed, Ok
from agentix.errors import CallCancelled, RemoteCallError
from agentix.wire.protocol import MAX_TEXT

EXPECTED = {
    "value": ("ValueError", "bang"),
    "odd": ("local_runtime.failing.OddError", "one"),
    "mute": ("local_runtime.failing.MuteError", "RuntimeError"),
    "leaving": ("local_runtime.failing.LeavingError", "SystemExit"),
    "bare": ("local_runtime.failing.BareError", "bare"),
    "group": ("ExceptionGroup", "several (2 sub-exceptions)"),
    "chained": ("ValueError", "outer"),
    "exit": ("SystemExit", "3"),
    "interrupt": ("KeyboardInterrupt", ""),
    "generator-exit": ("GeneratorExit", ""),
    "stop": ("StopIteration", "1"),
    "stop-async": ("StopAsyncIteration", "1"),
    "surrogate": ("ValueError", r"\udc80"),
    "terminal": ("ValueError", "two\nlines \\x1b[2J\\r\\u202e"),
}
IN_COROUTINES = {
    "stop": ("RuntimeError", "coroutine raised StopIteration"),
}


@pytest.mark.parametrize(("how", "is_async"), list(itertools.product(EXPECTED, [False, True])))
async def test_what_a_function_raises_is_told_as_text(
    shared: LocalRuntime, how: str, is_async: bool
) -> None:
    name, message = (IN_COROUTINES if is_async else {}).get(how, EXPECTED[how])
    async with shared.client() as client:
        pid = await client.remote(far.process)
        with pytest.raises(RemoteCallError) as caught:
            await client.remote(failing.afail if is_async else failing.fail, how)
        assert type(caught.value) is RemoteCallError
        assert caught.value.error.type == name
        assert message in caught.value.error.message
        assert caught.value.target == f"local_runtime.failing::{'afail' if is_async else 'fail'}"
        assert await client.remote(far.process) == pid


async def test_the_traceback_is_the_functions_own(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(RemoteCallError) as caught:
            await client.remote(failing.fail, "chained")
        text = str(caught.value)
        assert "in fail" in text
        assert "OSError: the cause" in text
        assert "agentix_runtime" not in text
        with pytest.raises(RemoteCallError, match="KeyError: 'other'"):
            await client.remote(failing.fail, "group")


async def test_long_texts_are_cut_in_the_middle(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(RemoteCallError, match="characters left out") as caught:
            await client.remote(failing.fail, "long")
        assert len(caught.value.error.message) <= MAX_TEXT


async def test_a_function_that_raises_cancelled_is_not_a_local_cancellation(
    shared: LocalRuntime,
) -> None:
    async with shared.client() as client:
        for function in (failing.fail, failing.afail):
            with pytest.raises(CallCancelled) as caught:
                await client.remote(function, "cancelled")
            assert caught.value.error.cancelled


async def test_wrong_arguments_are_the_functions_own_error(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        functions: list[Any] = [failing.fail, failing.afail]
        for function in functions:
            result = await client.try_remote(function, "value", "too many")
            assert isinstance(result, Failed)
            assert result.error.error.type == "TypeError"
            assert "positional argument" in result.error.error.message


async def test_tasks_left_behind_cannot_end_the_worker(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        pid = await client.remote(far.process)
        for how in ("exit", "interrupt", "bare"):
            await client.remote(failing.leave_failing_task, how)
            assert await client.remote(far.process) == pid
        await client.remote(failing.stop_loop)
        assert await client.remote(far.aprocess) == pid


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("generator", "generator"),
        ("lock", "_thread.lock"),
        ("lambda", "function"),
        ("file", "_io.TextIOWrapper"),
        ("object", "local_runtime.failing.Plain"),
        ("class", "type"),
        ("deep", "nested"),
        ("cycle", "nested"),
        ("huge int", "bits"),
    ],
)
async def test_a_result_that_cannot_be_sent_names_its_type(
    shared: LocalRuntime, what: str, named: str
) -> None:
    async with shared.client() as client:
        with pytest.raises(RemoteCallError, match=named):
            await client.remote(failing.unsendable, what)
        assert await client.remote(far.noop, 1) == 1


async def test_arrays_of_objects_are_refused(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(RemoteCallError, match="dtype object"):
            await client.remote(shop.object_array)


async def test_a_result_over_the_callers_limit_fails_that_call_alone(
    shared: LocalRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentix.client.runtime.MAX_RESULT", 1 << 20)
    async with shared.client() as client:
        together = await asyncio.gather(
            client.try_remote(far.blob, (1 << 20) + 1), client.try_remote(far.blob, 1 << 19)
        )
        assert isinstance(together[0], Failed)
        assert "1,048,576" in str(together[0].error)
        assert isinstance(together[1], Ok)


async def test_match_works_on_results(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        match await client.try_remote(far.noop, 5):
            case Ok(value):
                assert value == 5
            case Failed():
                pytest.fail("it did not fail")
        match await client.try_remote(failing.fail, "value"):
            case Failed(error):
                assert error.error.message == "bang"
            case Ok():
                pytest.fail("it failed")


async def test_what_the_bundle_lacks_is_named_with_what_to_do(shared: LocalRuntime) -> None:
    import sys
    import types

    here = types.ModuleType("only_here")
    exec("def f(): pass\nclass C: pass", here.__dict__)
    sys.modules["only_here"] = here
    far_extra = types.FunctionType(far.noop.__code__, far.__dict__, "extra")
    far_extra.__module__, far_extra.__qualname__ = far.__name__, "extra"
    try:
        far.extra = far_extra  # type: ignore[attr-defined]
        async with shared.client() as client:
            with pytest.raises(RemoteCallError, match=r"no module only_here.*agentix build"):
                await client.remote(here.f)
            with pytest.raises(RemoteCallError, match=r"has no extra.*another version.*rebuild"):
                await client.remote(far_extra)
            with pytest.raises(RemoteCallError, match=r"arguments need the module only_here"):
                await client.remote(far.noop, here.C())
    finally:
        del sys.modules["only_here"], far.extra  # type: ignore[attr-defined]


async def test_arguments_that_cannot_be_sent_are_a_local_type_error(shared: LocalRuntime) -> None:
    async with shared.client() as client:
        with pytest.raises(TypeError, match=r"local_runtime\.far::noop cannot be sent"):
            await client.remote(far.noop, (n for n in range(3)))
