"""What wheels declare that they need, read where they lie: most of them declare nothing."""

from __future__ import annotations

import asyncio
import configparser
import re
from typing import TYPE_CHECKING

from agentix.build.declared import Declared
from agentix.build.indices import Indices
from agentix.build.lock.plugins import FILE, GROUP, declared_by, modules_of
from agentix.build.lock.remote_zip import open_zip
from agentix.build.session import open_session
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import aiohttp

    from agentix.build.artifact import Artifact
    from agentix.build.lock.file import Lock

_AT_ONCE = 16


async def wheels_needs(
    wheels: Iterable[Artifact],
    addresses: Mapping[str, str],
    root: Path,
    previous: Lock | None,
) -> dict[str, Declared]:
    """Return what the distributions behind *wheels* declare, by their names.

    Only the wheels that *previous* does not have are looked into. *addresses* says where each is;
    the uv settings of the folder *root* have the credentials. Raises LockError when one cannot be
    read, or declares what cannot be understood.
    """
    found: dict[str, Declared] = {}
    fresh: dict[str, Artifact] = {}
    for wheel in wheels:
        known = previous.plugins if previous is not None else None
        if known is None or previous is None or previous.artifacts.get(wheel.file) != wheel:
            fresh.setdefault(wheel.package, wheel)
        elif wheel.package in known:
            found[wheel.package] = known[wheel.package]
    indices = Indices(root)
    turns = asyncio.Semaphore(_AT_ONCE)
    async with open_session(_AT_ONCE) as session, asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(
                _of_wheel(session, wheel, indices.with_credentials(addresses[wheel.file]), turns)
            )
            for name, wheel in fresh.items()
        }
    found |= {name: task.result() for name, task in tasks.items()}
    return {name: declared for name, declared in found.items() if declared.lines()}


async def _of_wheel(
    session: aiohttp.ClientSession, wheel: Artifact, address: str, turns: asyncio.Semaphore
) -> Declared:
    async with turns, open_zip(session, address, wheel.file) as archive:
        found = next(filter(_is_entry_points, archive.names), None)
        text = await archive.read(found) if found is not None else b""
        modules = modules_of(wheel.package, _entry_points(wheel.package, text))
        if not modules:
            return Declared()
        members = {_installed(name): name for name in archive.names}
        wanted = {f"{module.replace('.', '/')}/{FILE}" for module in modules} & members.keys()
        files = {path: await archive.read(members[path]) for path in sorted(wanted)}
        return declared_by(wheel.package, modules, files.get, members)


def _is_entry_points(name: str) -> bool:
    return name.endswith(".dist-info/entry_points.txt") and name.count("/") == 1


def _installed(name: str) -> str:
    """Return where a wheel's member lies in site-packages."""
    return re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)


def _entry_points(package: str, text: bytes) -> dict[str, object]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text.decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise LockError(
            f"the entry points of {package} cannot be read: {' '.join(str(error).split())}"
        ) from error
    return dict(parser[GROUP]) if parser.has_section(GROUP) else {}
