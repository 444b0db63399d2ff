"""Which providers are installed: entry points of the group ``agentix.provider``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from agentix.errors import ProviderError, ProviderNotFound
from agentix.provider.base import SandboxProvider
from agentix.text import plain, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "agentix.provider"

_registered: dict[str, type[SandboxProvider]] = {}


@dataclass(frozen=True, slots=True)
class InstalledProvider:
    """One provider by name: the class, or the error that kept it from loading."""

    name: str
    distribution: str | None
    version: str | None
    provider: type[SandboxProvider] | None
    error: Exception | None = None


class ProviderRegistry:
    """The providers that this process can use. A broken plugin hides nothing but itself."""

    def names(self) -> list[str]:
        """Return the names of all, broken ones too, without loading any."""
        return sorted({point.name for point in entry_points(group=GROUP)} | set(_registered))

    def all(self) -> dict[str, type[SandboxProvider]]:
        """Return every provider that loads, by name."""
        found = self.installed()
        return {each.name: each.provider for each in found if each.provider is not None}

    def errors(self) -> Mapping[str, Exception]:
        """Return why the others do not load, by name."""
        return {each.name: each.error for each in self.installed() if each.error is not None}

    def installed(self) -> list[InstalledProvider]:
        """Load every provider and return each with its origin, sorted by name."""
        return [self.find(name) for name in self.names()]

    def get(self, name: str) -> type[SandboxProvider]:
        """Return the provider called *name*.

        Raises ProviderNotFound when it is not installed, ProviderError when it does not load.
        """
        found = self.find(name)
        if isinstance(found.error, ProviderError) and found.distribution is None:
            raise found.error  # there is nothing in particular to reinstall
        if found.provider is None:
            source = found.distribution or "a plugin"
            raise ProviderError(
                f"provider {name!r} of {source} does not load: {one_line(found.error)}; "
                f"reinstall {source}, or use another one ({', '.join(self.all()) or 'none'})"
            ) from found.error
        return found.provider

    def require(self, name: str) -> None:
        """Raise ProviderNotFound unless *name* is installed, whether or not it loads."""
        if name not in self.names():
            raise ProviderNotFound(
                f"provider {quoted(name)} is not installed; install agentix-provider-{plain(name)} "
                f"(installed: {', '.join(self.names()) or 'none'})"
            )

    def find(self, name: str) -> InstalledProvider:
        """Load the provider called *name*; ProviderNotFound when it is not installed."""
        self.require(name)
        if name in _registered:
            return InstalledProvider(name, None, None, _registered[name])
        points = list(entry_points(group=GROUP, name=name))
        if len({point.value for point in points}) > 1:
            rivals = ", ".join(sorted(_origin(point)[0] or point.value for point in points))
            error = ProviderError(
                f"several distributions name a provider {name!r}: {rivals}; uninstall all but one"
            )
            return InstalledProvider(name, None, None, None, error)
        return _load(points[0])


def providers() -> ProviderRegistry:
    """Return the registry of providers."""
    return ProviderRegistry()


def register_provider(name: str, cls: type[SandboxProvider]) -> None:
    """Add a provider in this process only; it goes before an installed one of that name.

    Raises ValueError when another class is registered by that name, TypeError when *cls* is no
    provider.
    """
    _require_provider(cls)
    if _registered.setdefault(name, cls) is not cls:
        raise ValueError(f"provider {name!r} is registered already, as {_registered[name]!r}")


def _load(point: EntryPoint) -> InstalledProvider:
    distribution, version = _origin(point)
    try:
        loaded = _require_provider(point.load())
    except Exception as error:  # a plugin's code: whatever it raises is its own failure
        return InstalledProvider(point.name, distribution, version, None, error)
    except SystemExit as exit_:  # it would end this process
        failure = ProviderError(f"{point.value} exits while it is loaded ({exit_.code})")
        return InstalledProvider(point.name, distribution, version, None, failure)
    return InstalledProvider(point.name, distribution, version, loaded)


def _origin(point: EntryPoint) -> tuple[str | None, str | None]:
    return (point.dist.name, point.dist.version) if point.dist else (None, None)


def _require_provider(candidate: object) -> type[SandboxProvider]:
    if isinstance(candidate, type) and issubclass(candidate, SandboxProvider):
        if missing := candidate.__abstractmethods__:
            raise TypeError(f"{candidate!r} does not implement {', '.join(sorted(missing))}")
        return candidate
    raise TypeError(f"{candidate!r} is not a subclass of SandboxProvider")


def one_line(error: Exception | None) -> str:
    """Return *error* as part of a one-line message."""
    return " ".join(f"{type(error).__name__}: {error}".split())
