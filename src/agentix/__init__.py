"""Agentix: call a Python project's functions inside any sandbox.

Names load on first use, so that ``import agentix`` costs next to nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

# Plugins add modules inside this package (agentix.provider.docker) from distributions of their own.
__path__ = pkgutil.extend_path(__path__, __name__)

if TYPE_CHECKING:
    from agentix.callables import RemoteCallable
    from agentix.client import Failed, Ok, Result, RuntimeClient
    from agentix.errors import (
        CallCancelled,
        CallTimeout,
        RemoteCallError,
        RemoteSioError,
        RestrictedUnpickleError,
        RuntimeUnreachable,
        WorkerExited,
    )
    from agentix.provider.base import (
        BundleDeployer,
        DeployedBundle,
        Sandbox,
        SandboxConfig,
        SandboxId,
        SandboxInfo,
        SandboxProvider,
        SandboxResource,
    )
    from agentix.provider.registry import providers, register_provider
    from agentix.sio import (
        AsyncClientNamespace,
        Namespace,
        register_namespace,
        request_handler,
    )
    from agentix.utils import context, log, trace
    from agentix.utils.log import configure_logging

    __version__: str

_HOME = {
    "AsyncClientNamespace": "agentix.sio",
    "BundleDeployer": "agentix.provider.base",
    "CallCancelled": "agentix.errors",
    "CallTimeout": "agentix.errors",
    "DeployedBundle": "agentix.provider.base",
    "Failed": "agentix.client",
    "Namespace": "agentix.sio",
    "Ok": "agentix.client",
    "RemoteCallError": "agentix.errors",
    "RemoteCallable": "agentix.callables",
    "RemoteSioError": "agentix.errors",
    "RestrictedUnpickleError": "agentix.errors",
    "Result": "agentix.client",
    "RuntimeClient": "agentix.client",
    "RuntimeUnreachable": "agentix.errors",
    "Sandbox": "agentix.provider.base",
    "SandboxConfig": "agentix.provider.base",
    "SandboxId": "agentix.provider.base",
    "SandboxInfo": "agentix.provider.base",
    "SandboxProvider": "agentix.provider.base",
    "SandboxResource": "agentix.provider.base",
    "WorkerExited": "agentix.errors",
    "configure_logging": "agentix.utils.log",
    "providers": "agentix.provider.registry",
    "register_namespace": "agentix.sio",
    "register_provider": "agentix.provider.registry",
    "request_handler": "agentix.sio",
}
_MODULES = {
    "context": "agentix.utils.context",
    "log": "agentix.utils.log",
    "trace": "agentix.utils.trace",
}

__all__ = [
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


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("agentix")
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'agentix' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
