"""What uv's user has configured about package indices, as far as uv does not do it for us.

uv resolves with its own settings. Two things it leaves to whoever downloads: it writes no
credentials into what it prints, and pins of a package to an index apply to projects only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, quote, unquote, urlsplit

from agentix.build.project import Project, read_tree, workspace_root
from agentix.build.settings import Settings, from_keyring, uv_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_VARIABLES = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")


@dataclass(frozen=True, slots=True)
class Index:
    """One index: what its user calls it, where it is, and whether it is a plain list of files."""

    name: str
    address: str
    flat: bool = False

    def options(self) -> tuple[str, ...]:
        """Return uv's options to look into this index before any other, or alone if it is flat."""
        if self.flat:  # which --index has no word for
            return ("--no-index", "--find-links", self.address)
        return ("--index", f"{self.name}={self.address}")


@dataclass(frozen=True)
class Indices:
    """The index settings that apply to the project in the folder *root*."""

    root: Path

    def pinned(self, package: str) -> Index | None:
        """Return the index that *package* is pinned to, if it is."""
        for project in self._projects:
            for source in project.uv_sources(package):
                if (index := source.get("index")) in self._named:
                    return self._named[index]
        return None

    def with_credentials(self, address: str) -> str:
        """Return *address* with the user and password that are configured for its server."""
        parts = urlsplit(address)
        if parts.username or (found := self._credentials(address)) is None:
            return address
        user = ":".join(quote(part, safe="") for part in found)
        return parts._replace(netloc=f"{user}@{parts.netloc}").geturl()

    def _credentials(self, address: str) -> tuple[str, str] | None:
        server = _server(urlsplit(address))
        for name, index in self._all():
            parts = urlsplit(index)
            if _server(parts) != server:
                continue
            variable = f"UV_INDEX_{re.sub(r'[^A-Z0-9]', '_', name.upper())}_" if name else ""
            user = unquote(parts.username or "") or os.environ.get(f"{variable}USERNAME", "")
            password = unquote(parts.password or "") or os.environ.get(f"{variable}PASSWORD", "")
            if user and not password and self._has_keyring:
                plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
                password = from_keyring(plain, user) or ""
            if user or password:
                return user, password
        return None

    @cached_property
    def _has_keyring(self) -> bool:
        """Whether uv was told to ask the program keyring for passwords."""
        tables = [settings.table.get("keyring-provider") for settings in self._settings]
        return "subprocess" in (os.environ.get("UV_KEYRING_PROVIDER"), *tables)

    def _all(self) -> Iterator[tuple[str, str]]:
        for variable in _VARIABLES:
            for word in os.environ.get(variable, "").split():
                name, separator, address = word.partition("=")
                named = bool(separator) and re.fullmatch(r"[A-Za-z0-9._-]+", name)
                yield (name, address) if named else ("", word)
        yield from ((index.name, index.address) for index in self._named.values())
        for settings in self._settings:  # as pip calls them
            more = settings.table.get("extra-index-url")
            for address in (
                settings.table.get("index-url"),
                *(more if isinstance(more, list) else ()),
            ):
                if isinstance(address, str):
                    yield "", address

    @cached_property
    def _named(self) -> dict[str, Index]:
        found: dict[str, Index] = {}
        for settings in self._settings:
            indices = settings.table.get("index")
            for index in indices if isinstance(indices, list) else ():
                if isinstance(index, dict) and "url" in index:
                    name, address = str(index.get("name", index["url"])), str(index["url"])
                    if "://" not in address:  # a folder, relative to the file that names it
                        address = str(settings.folder / address)
                    found.setdefault(name, Index(name, address, index.get("format") == "flat"))
        return found

    @cached_property
    def _settings(self) -> list[Settings]:
        """What uv reads: the project's own settings, its workspace's, the user's, the machine's."""
        return uv_settings([(project.root, project.uv) for project in self._projects])

    @cached_property
    def _projects(self) -> list[Project]:
        """The project and the workspace around it, in that order."""
        return [read_tree(root) for root in dict.fromkeys((self.root, workspace_root(self.root)))]


def _server(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port
