"""What can be registered as a namespace, and what is refused and why."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

import agentix
from agentix import sio
from agentix.client import RuntimeClient
from agentix.errors import RemoteSioError
from agentix.sio import AsyncClientNamespace, Namespace, register_namespace, request_handler


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sio, "_namespaces", {})


def sandbox(name: Any, **more: Any) -> Namespace:
    """Make a namespace of a sandbox."""
    made: Namespace = type("Sandbox", (Namespace,), {"namespace": name, **more})()
    return made


def host(name: Any, **more: Any) -> AsyncClientNamespace:
    """Make a namespace of a host."""
    made: AsyncClientNamespace = type("Host", (AsyncClientNamespace,), more)(name)
    return made


def client() -> RuntimeClient:
    """Make a client that never connects."""
    return RuntimeClient("http://127.0.0.1:1")


@pytest.mark.parametrize("name", ["/rpc", "/log", "/trace"])
def test_the_reserved_names_are_refused_on_both_sides(name: str) -> None:
    with pytest.raises(ValueError, match="reserved"):
        register_namespace(sandbox(name))
    with pytest.raises(ValueError, match="reserved"):
        client().register_namespace(host(name))


@pytest.mark.parametrize(
    "name", ["plugin", "", "/", None, 7, "/a b", "/a,b", "/a?b", "/a\n", "/" * 300]
)
def test_a_name_that_is_none_is_refused_on_both_sides(name: Any) -> None:
    with pytest.raises(ValueError, match="cannot register Sandbox"):
        register_namespace(sandbox(name))
    with pytest.raises(ValueError, match="cannot register Host"):
        client().register_namespace(host(name))


def test_a_class_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="its namespace is None"):
        register_namespace(Namespace())


def test_two_of_one_name_are_refused_on_both_sides() -> None:
    register_namespace(first := sandbox("/x"))
    register_namespace(first)

    class Other(Namespace):
        namespace = "/x"

    with pytest.raises(ValueError, match="Sandbox has the namespace /x already"):
        register_namespace(Other())
    assert sio.find("/x") is first
    one = client()
    one.register_namespace(host("/x"))
    with pytest.raises(ValueError, match="Host has the namespace /x already"):
        one.register_namespace(host("/x"))


def test_a_module_that_is_loaded_again_may_register_again() -> None:
    register_namespace(sandbox("/x"))
    register_namespace(again := sandbox("/x"))
    assert sio.find("/x") is again


def test_a_handler_that_is_not_callable_is_refused_on_both_sides() -> None:
    with pytest.raises(TypeError, match="its on_step is not a function"):
        register_namespace(sandbox("/x", on_step=3))
    with pytest.raises(TypeError, match="its on_step is not a function"):
        client().register_namespace(host("/x", on_step="no"))


def test_the_other_sides_class_is_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match="register it with the sandbox"):
        register_namespace(host("/x"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="register it in the sandbox"):
        client().register_namespace(sandbox("/x"))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        register_namespace(Namespace)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client().register_namespace(AsyncClientNamespace)  # type: ignore[arg-type]


async def test_registration_after_a_client_was_entered_is_refused() -> None:
    one = client()
    async with one:
        with pytest.raises(RuntimeError, match="register namespaces before"):
            one.register_namespace(host("/x"))


async def test_outside_of_a_sandbox_nothing_can_be_sent() -> None:
    register_namespace(ns := sandbox("/x"))
    with pytest.raises(RuntimeError, match="from inside a sandbox only"):
        await ns.emit("a")
    with pytest.raises(RuntimeError, match="from inside a sandbox only"):
        await ns.request("a")


def test_a_request_handler_names_its_event_and_stays_what_it_was() -> None:
    class Host(AsyncClientNamespace):
        @request_handler("next-one")
        async def give(self, data: Any) -> Any:
            """Give."""

        @request_handler("plain")
        async def on_plain(self, data: Any) -> Any:
            """Give plainly."""

    assert getattr(Host, "on_next-one") is Host.give
    assert Host.give.__doc__ == "Give."
    assert Host.on_plain.__name__ == "on_plain"


def test_a_request_handler_refuses_what_is_no_event_or_method() -> None:
    for event in ("", "connect", "disconnect", 5, "x" * 300):
        with pytest.raises(ValueError, match="cannot be the name"):
            request_handler(event)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs the event's name"):
        request_handler(lambda self, data: data)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for methods"):
        request_handler("x")(5)  # type: ignore[type-var]

    def twice() -> None:
        class Twice(AsyncClientNamespace):
            @request_handler("x")
            async def one(self, data: Any) -> Any: ...

            @request_handler("x")
            async def two(self, data: Any) -> Any: ...

    # Before Python 3.12, what is raised while a class is made arrives as the cause of another.
    with pytest.raises((TypeError, RuntimeError)) as caught:
        twice()
    assert "two handlers of 'x'" in str(caught.value.__cause__ or caught.value)


def test_the_error_of_a_request_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(RemoteSioError("TooMany", "wait", 429)))
    assert (error.type, error.message, error.status_code) == ("TooMany", "wait", 429)
    assert str(error) == "TooMany: wait"


def test_the_host_class_is_python_socketios() -> None:
    import socketio

    assert agentix.AsyncClientNamespace is socketio.AsyncClientNamespace


def test_the_sandboxs_half_loads_neither_socketio_nor_aiohttp() -> None:
    code = (
        "import sys, json; from agentix import Namespace, register_namespace, request_handler;"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(subprocess.check_output([sys.executable, "-I", "-c", code]))
    assert not {"socketio", "engineio", "aiohttp", "asyncio", "msgpack"} & set(loaded)


def test_a_sandbox_refuses_what_its_client_would_before_the_first_call() -> None:
    info = agentix.SandboxInfo(agentix.SandboxId("box"), "http://127.0.0.1:1", "running")
    box = agentix.Sandbox(info)
    with pytest.raises(ValueError, match="reserved"):
        box.register_namespace(host("/rpc"))
    with pytest.raises(TypeError, match="register it in the sandbox"):
        box.register_namespace(sandbox("/x"))  # type: ignore[arg-type]
    box.register_namespace(host("/x"))
    with pytest.raises(ValueError, match="has the namespace /x already"):
        box.register_namespace(host("/x"))
