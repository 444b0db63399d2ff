"""`import agentix` offers exactly its public names, and costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import agentix

PUBLIC = [
    "AsyncClientNamespace",
    "BundleDeployer",
    "CallCancelled",
    "CallTimeout",
    "DeployedBundle",
    "Failed",
    "Namespace",
    "Ok",
    "RemoteCallError",
    "RemoteCallable",
    "RemoteSioError",
    "RestrictedUnpickleError",
    "Result",
    "RuntimeClient",
    "RuntimeUnreachable",
    "Sandbox",
    "SandboxConfig",
    "SandboxId",
    "SandboxInfo",
    "SandboxProvider",
    "SandboxResource",
    "WorkerExited",
    "__version__",
    "configure_logging",
    "context",
    "log",
    "providers",
    "register_namespace",
    "register_provider",
    "request_handler",
    "trace",
]
HEAVY = [
    *("aiohttp", "asyncio", "cloudpickle", "docker", "logging", "msgpack", "numpy", "pydantic"),
    *("socketio", "typer"),
]


def test_public_names_are_pinned() -> None:
    assert agentix.__all__ == PUBLIC


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in agentix.__all__:
        assert getattr(agentix, name) is not None
        assert name in dir(agentix)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(agentix, "no_such_name")


def test_import_alone_loads_nothing_heavy() -> None:
    code = "import sys, json, agentix; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-I", "-c", code]))
    assert not set(HEAVY) & set(loaded)


def test_each_plugin_imports_first_in_a_fresh_interpreter() -> None:
    plugins = ("apptainer", "bubblewrap", "daytona", "docker", "e2b", "uv")
    for module in (*(f"agentix.provider.{name}" for name in plugins), "agentix_runtime"):
        subprocess.run([sys.executable, "-W", "error", "-c", f"import {module}"], check=True)
