"""The settings that uv's user keeps outside of projects, and the passwords that a keyring keeps."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentix.build.command import Command
from agentix.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_FILE = "uv.toml"
_PATIENCE = 30.0  # seconds; a keyring may ask its user


@dataclass(frozen=True, slots=True)
class Settings:
    """One table of uv's settings, and the folder that paths in it are relative to."""

    folder: Path
    table: Mapping[str, Any]


def uv_settings(projects: Sequence[tuple[Path, Mapping[str, Any]]]) -> list[Settings]:
    """Return the settings that count in *projects* (folder and [tool.uv]), the strongest first.

    As uv does it: a uv.toml takes the place of the table beside it, UV_CONFIG_FILE that of all
    files, and with UV_NO_CONFIG files do not count. What cannot be read is left for uv to tell.
    """
    if chosen := os.environ.get("UV_CONFIG_FILE"):
        return list(_read(Path(chosen)))
    ours = [next(_read(folder / _FILE), Settings(folder, table)) for folder, table in projects]
    if os.environ.get("UV_NO_CONFIG"):
        return [Settings(folder, table) for folder, table in projects]
    return [*ours, *(found for file in _outside() for found in _read(file))]


def from_keyring(address: str, user: str) -> str | None:
    """Return the password of *user* at *address*, or its server, that the program keyring has."""
    for place in (address, address.split("/")[2]):
        try:
            command = Command(["keyring", "get", place, user], raises=FetchError, timeout=_PATIENCE)
            ended = command.run()
        except FileNotFoundError:
            return None
        if ended.status == 0 and (password := ended.output.decode().rstrip("\n")):
            return password
    return None


def _outside() -> Iterator[Path]:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - Path.home() raises where there is none
    yield Path(home, "uv", _FILE)
    for folder in (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder, "uv", _FILE)
    yield Path("/etc/uv", _FILE)


def _read(file: Path) -> Iterator[Settings]:
    try:
        yield Settings(file.parent, tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return
