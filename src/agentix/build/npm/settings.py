"""What the user's npm configuration says about registries, read as npm itself reads it.

npm need not be installed: its settings are in the environment and in ``.npmrc`` files. Only where
nobody has chosen a registry is npm asked for its own default, since no address is written here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
from collections import ChainMap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentix.build.command import Command
from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_VARIABLE = re.compile(r"npm_config_", re.IGNORECASE)
_REFERENCE = re.compile(r"(?<!\\)(\\*)\$\{([^${}?]+)(\?)?\}")
_PATIENCE = 60.0  # seconds for npm to say what its default is


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force; *values* has npm's names, of which the first that is set counts."""

    values: Mapping[str, str]

    def registry(self, package: str) -> str:
        """Return the address of the registry of *package*, without a final slash."""
        scope = package.partition("/")[0] if package.startswith("@") else None
        found = (self.values.get(f"{scope}:registry") if scope else None) or self.values["registry"]
        return found.rstrip("/")

    def authorization(self, address: str, registry: str | None = None) -> str | None:
        """Return the header's value that a request of *address* is sent with.

        What is not at an address with credentials of its own gets those of the *registry* that
        named it, when both are on one server.
        """
        for place in _places(address):
            if (found := self._credentials(place)) is not None:
                return found
        if registry is not None and urlsplit(registry).netloc == urlsplit(address).netloc:
            return self.authorization(registry)
        return None

    @property
    def authorities(self) -> str | None:
        """The file with the certificate authorities to trust besides the machine's."""
        return self.values.get("cafile") or None

    def proxy(self, address: str) -> str | None:
        """Return the proxy for requests of *address* that npm's own settings name."""
        host = urlsplit(address).hostname or ""
        for end in re.split(r"[,\s]+", self.values.get("noproxy", "")):
            if end and (host == end.lstrip(".") or host.endswith(f".{end.lstrip('.')}")):
                return None
        return self.values.get("https-proxy") or self.values.get("proxy") or None

    def _credentials(self, place: str) -> str | None:
        if token := self.values.get(f"{place}:_authToken"):
            return f"Bearer {token}"
        if basic := self.values.get(f"{place}:_auth"):
            return f"Basic {basic}"
        user, password = (self.values.get(f"{place}:{key}") for key in ("username", "_password"))
        if not user or not password:
            return None
        try:
            plain = base64.b64decode(password, validate=True)
        except ValueError:  # also where it is not even ASCII
            raise LockError(
                f"npm's setting {place}:_password is not base64; set it again"
            ) from None
        return "Basic " + base64.b64encode(user.encode() + b":" + plain).decode()


async def read_settings(root: Path) -> Settings:
    """Return the settings that apply in the folder *root*.

    Raises LockError when a file of them cannot be read, or when no registry is configured.
    """
    values = await asyncio.to_thread(_configured, root)
    if not values.get("registry"):
        values = values.new_child({"registry": await _default_registry(root)})
    return Settings(values)


def _configured(root: Path) -> ChainMap[str, str]:
    environment = dict(_environment())
    project = _file(root / ".npmrc")
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    above = ChainMap(environment, project)
    user = _file(Path(above.get("userconfig") or home / ".npmrc"))
    globally = next(filter(None, map(_file, _global_files(above, user))), {})
    return ChainMap(environment, project, user, globally)


def _environment() -> Iterator[tuple[str, str]]:
    for name, value in sorted(os.environ.items()):
        if (found := _VARIABLE.match(name)) is None or not value:
            continue
        key = name[found.end() :]
        yield (key if key.startswith("//") else _dashed(key)), value


def _dashed(key: str) -> str:
    return key[:1].lower() + key[1:].lower().replace("_", "-")


def _global_files(*settings: Mapping[str, str]) -> Iterator[Path]:
    """Yield where npm's machine-wide settings may be; one that is named is the only one."""
    for found in settings:
        if named := found.get("globalconfig"):
            yield Path(named)
            return
    for found in settings:
        if prefix := found.get("prefix"):
            yield Path(prefix, "etc/npmrc")
            return
    for program in filter(None, map(shutil.which, ("node", "npm"))):
        yield Path(program).resolve().parents[1] / "etc/npmrc"
    yield from (Path(folder, "npmrc") for folder in ("/usr/local/etc", "/usr/etc", "/etc"))


def _file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LockError(f"cannot read npm's settings {path}: {reason}") from error
    return dict(_settings(text))


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """Read an ini file as npm does; what is in a section or a list is no setting of registries."""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            return
        if line and line[0] not in ";#":
            key, separator, value = line.partition("=")
            if separator:
                yield _expanded(_unquoted(key)), _expanded(_unquoted(value))


def _unquoted(text: str) -> str:
    text = text.strip()
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        text = text[1:-1]
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    found = re.match(r"(?:\\[\\;#]|[^;#])*", text)  # a comment may follow
    return re.sub(r"\\([\\;#])", r"\1", found[0] if found else text).strip()


def _expanded(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        escapes, name, optional = match.groups()
        if len(escapes) % 2:
            return match[0][(len(escapes) + 1) // 2 :]
        return os.environ.get(name, "" if optional else match[0])

    return _REFERENCE.sub(value, text)


async def _default_registry(root: Path) -> str:
    if (npm := shutil.which("npm")) is not None:
        words = [npm, "config", "get", "registry"]
        ended = await Command(words, raises=LockError, timeout=_PATIENCE, cwd=root).run_aside()
        address = ended.output.decode(errors="replace").strip()
        if ended.status == 0 and urlsplit(address).scheme in {"http", "https"}:
            return address
    raise LockError(
        "no npm registry is configured on this machine; set registry=<address> in ~/.npmrc "
        "(or NPM_CONFIG_REGISTRY), or install npm, which has one"
    )


def _places(address: str) -> Iterator[str]:
    """Yield the names under which npm keeps credentials of *address*, the closest first."""
    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    while True:
        yield f"//{parts.netloc.rpartition('@')[2]}{path}/"
        if path:  # npm takes both spellings
            yield f"//{parts.netloc.rpartition('@')[2]}{path}"
        if not path:
            return
        path = path.rpartition("/")[0]
