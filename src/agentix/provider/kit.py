"""What a backend is built from: of Agentix, plugins import this and other public names only.

* one sandbox: :class:`RuntimeFolder` and ``MOUNT``, :func:`until_ready`, :class:`OutputTail` and
  :func:`account` for the moment when it dies;
* a sandbox that is a program on this machine: :class:`LocalProvider` is a provider of such but for
  how one is started (:class:`Making`); :class:`HostedProcess` starts and keeps the program,
  :class:`SandboxProcesses` and :class:`ProcessRef` are what is recorded of it, by which it is found
  and ended, also in another process;
* a sandbox that would outlive this process: :func:`lease_arguments` for its runtime,
  :func:`hold_lease` and :func:`release_lease`, and the exit status ``LEASE_ENDED``;
* blocking work that takes long: :func:`stoppable`, :class:`Stop`, :class:`StoppedError`;
* which there are: :func:`list_recorded`, :func:`in_order`; :func:`remove_leftovers` beside
  ``create`` takes away what killed processes have left;
* its end: :func:`undone_on_error`, :func:`carry_out`, :func:`to_the_end`;
* bundles: :class:`BundleCache`, :class:`CachedBundle`, :func:`deploy_locally`; :func:`store_tar`
  to bring them where they cannot be mounted from this machine;
* task images as files: :class:`ImageStore` opens them, unpacked once, as an :class:`Image` with
  a :class:`RunConfig`; :func:`platform_of` and :func:`resolve` look into one, trusting no link;
  engines load an :class:`ImageArchive`;
* a cache of things unpacked once: :func:`cache_root`, :func:`hold`, :class:`Memory`,
  :func:`remove`, :func:`erase`, and :func:`what_to_do` when it cannot be written to;
* programs for another platform: :func:`emulator` tells what runs them here;
* a provider that is not there yet: :class:`StubProvider`, :class:`NotYet`, :func:`api_key`;
* text that somebody else has chosen: :func:`plain`, and :func:`quoted` for a name.
"""

from __future__ import annotations

from agentix.bundle import BundleCache, CachedBundle
from agentix.bundle.memory import Memory
from agentix.bundle.parts import store_tar
from agentix.bundle.removal import erase, remove
from agentix.bundle.staging import hold
from agentix.emulation import emulator
from agentix.folders import cache_root, what_to_do
from agentix.provider.deploy import deploy_locally
from agentix.provider.hosted import HostedProcess
from agentix.provider.images.elf import platform_of
from agentix.provider.images.formats import RunConfig
from agentix.provider.images.loading import ImageArchive
from agentix.provider.images.scoped import resolve
from agentix.provider.images.store import Image, ImageStore
from agentix.provider.lease import LEASE_ENDED, hold_lease, lease_arguments, release_lease
from agentix.provider.listing import in_order, list_recorded
from agentix.provider.local import LocalProvider, Making
from agentix.provider.output import OutputTail, account
from agentix.provider.processes import ProcessRef, SandboxProcesses
from agentix.provider.readiness import until_ready
from agentix.provider.recorded import remove_leftovers
from agentix.provider.runtime_folder import MOUNT, RuntimeFolder, private_folder
from agentix.provider.stopping import Stop, StoppedError, stoppable
from agentix.provider.stub import NotYet, StubProvider, api_key
from agentix.provider.teardown import carry_out, to_the_end, undone_on_error
from agentix.text import plain, quoted

__all__ = [
    "LEASE_ENDED",
    "MOUNT",
    "BundleCache",
    "CachedBundle",
    "HostedProcess",
    "Image",
    "ImageArchive",
    "ImageStore",
    "LocalProvider",
    "Making",
    "Memory",
    "NotYet",
    "OutputTail",
    "ProcessRef",
    "RunConfig",
    "RuntimeFolder",
    "SandboxProcesses",
    "Stop",
    "StoppedError",
    "StubProvider",
    "account",
    "api_key",
    "cache_root",
    "carry_out",
    "deploy_locally",
    "emulator",
    "erase",
    "hold",
    "hold_lease",
    "in_order",
    "lease_arguments",
    "list_recorded",
    "plain",
    "platform_of",
    "private_folder",
    "quoted",
    "release_lease",
    "remove",
    "remove_leftovers",
    "resolve",
    "stoppable",
    "store_tar",
    "to_the_end",
    "undone_on_error",
    "until_ready",
    "what_to_do",
]
