"""Sandboxes that are none: a virtual environment on this machine, which isolates nothing.

For trying things out, and for machines that can run neither containers nor namespaces. A task has
what whoever calls has: their files, their network, their processes; every ``create`` says so. What
it does get is the bundle's own packages, an environment without the host program's variables, a
folder of its own to run in, and its end with the sandbox.

``image`` can only be ``"host"``. The environment is made once for each bundle and kept in the
cache: this machine's Python of the bundle's version, the locked wheels, each by its hash, from
where uv is configured to find them, and the projects themselves out of the bundle. The system
packages of a bundle are not in it; a task finds the machine's own.
"""

from __future__ import annotations

from agentix.provider.uv.config import UvProviderConfig
from agentix.provider.uv.provider import UvProvider

__all__ = ["UvProvider", "UvProviderConfig"]
