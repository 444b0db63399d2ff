"""What is installed beside Agentix: providers say themselves how they are, commands are loaded."""

from __future__ import annotations

import asyncio
import shutil
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from agentix import platforms
from agentix.doctor.examination import Check
from agentix.emulation import emulator
from agentix.errors import AgentixError
from agentix.findings import Finding
from agentix.provider.registry import one_line, providers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint

    from agentix.provider.base import SandboxProvider

COMMANDS = "agentix.commands"


def plugin_checks() -> Iterator[Check]:
    """Return a check of each installed provider and of each command, broken ones too."""
    for name in providers().names():
        yield Check("providers", name, partial(_provider, name))
    for point in sorted(entry_points(group=COMMANDS), key=lambda point: point.name):
        yield Check("plugins", point.name, partial(_command, point))


def emulation() -> Iterable[Finding]:
    """Look for what runs bundles for the other platform here."""
    ours = platforms.current().name
    for other in platforms.PLATFORMS:
        if other == ours:
            continue
        found = emulator(other)
        program = f"qemu-{platforms.PLATFORMS[other].machine}-static"
        if shutil.which(program):
            advice = f"register {program} with binfmt_misc and the flag F (systemd-binfmt does)"
        else:
            advice = "Debian: apt-get install qemu-user-static"
        if found is None:
            yield Finding("note", f"{other} is built here, but nothing here can run it", advice)
        elif not found.everywhere:
            yield Finding("note", f"{found.program} is not seen in a sandbox (no flag F)", advice)
        else:
            yield Finding("ok", f"{other} runs by {found.program}")


def _provider(name: str) -> Iterable[Finding]:
    found = providers().find(name)
    if found.provider is None:
        source = found.distribution or "a plugin"
        text = f"{source} does not load: {one_line(found.error)}"
        yield Finding("problem", text, f"reinstall or uninstall {source}")
        return
    provider = found.provider()
    findings = list(provider.diagnose())
    yield from findings
    if all(finding.level != "problem" for finding in findings):
        yield from _leftovers(provider)


def _leftovers(provider: SandboxProvider) -> Iterable[Finding]:
    try:
        listed = asyncio.run(provider.list())
    except AgentixError as error:
        yield Finding("note", f"its sandboxes cannot be listed: {error}")
        return
    if left := [each for each in listed if each.abandoned]:
        what = "1 sandbox is" if len(left) == 1 else f"{len(left)} sandboxes are"
        running = any(each.status == "running" for each in left)
        advice = f"agentix sandbox prune{' --all' if running else ''}"
        yield Finding("note", f"{what} left over, whose owner is gone", advice)


def _command(point: EntryPoint) -> Iterable[Finding]:
    source = point.dist.name if point.dist else "a plugin"
    try:
        point.load()
    except BaseException as error:  # a plugin's code: it is its own failure
        text = f"command of {source} does not load: {type(error).__name__}: {error}"
        yield Finding("note", text, f"reinstall or uninstall {source}")
    else:
        yield Finding("ok", f"command of {source} {point.dist.version if point.dist else ''}")
