"""Find the function that a call names."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_REBUILD = "rebuild it with `agentix build` and deploy it again"


class TargetError(LookupError):
    """The bundle has no such function; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function, and how it runs.

    One that only gives what another one makes, as wrappers do, runs in a thread as any other: it
    may block. What it gives then decides.
    """

    function: Callable[..., Any]
    is_async: bool
    """Whether it runs on the loop."""
    generates: bool | None
    """Whether it is a generator function; ``None`` if that shows only when it is called."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Target:
        """Look at a function."""
        if inspect.iscoroutinefunction(function):
            return cls(function, True, False)
        if inspect.isasyncgenfunction(function):
            return cls(function, True, True)
        return cls(function, False, True if inspect.isgeneratorfunction(function) else None)

    def check(self, name: str, stream: bool) -> None:
        """Make sure that the caller means the same kind of function."""
        if self.generates is not None and self.generates is not stream:
            is_, was = ("a", "no") if self.generates else ("no", "a")
            raise TargetError(
                f"{name.replace('::', '.')} is {is_} generator function in the bundle, and {was} "
                f"generator function where it was called: they are different versions; {_REBUILD}"
            )


class Targets:
    """Finds functions in the modules of the bundle, importing each module once."""

    def __init__(self) -> None:
        self._imported: dict[str, ModuleType] = {}
        self._known: dict[str, Target] = {}

    def loaded(self, name: str) -> Target | None:
        """Find a function that is already there, in a module known to be imported whole.

        What a module only makes when it is asked for it, by an import perhaps, is left to
        :meth:`load`.
        """
        module, _, qualname = name.partition("::")
        found = self._imported.get(module)
        if found is None or qualname.partition(".")[0] not in vars(found):
            return None
        return self._target(name, found, qualname)

    def load(self, name: str) -> Target:
        """Find a function, importing its module; may take long, so not for the loop.

        Raises :class:`TargetError` where the bundle lacks the module or the function, and whatever
        the module itself raises while it is imported.
        """
        module, _, qualname = name.partition("::")
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as exc:
            if exc.name is None or not f"{module}.".startswith(f"{exc.name}."):
                raise
            raise TargetError(
                f"the bundle has no module {exc.name}; if it is the project's, see that the build "
                f"backend packs it, and {_REBUILD}"
            ) from exc
        target = self._target(name, found, qualname)
        self._imported[module] = found
        return target

    def _target(self, name: str, module: ModuleType, qualname: str) -> Target:
        """Look a function up each time, as an import would; inspect it only when it is another."""
        function = _walk(module, qualname)
        known = self._known.get(name)
        if known is None or known.function is not function:
            known = self._known[name] = Target.of(function)
        return known


def _walk(module: ModuleType, qualname: str) -> Callable[..., Any]:
    found: Any = module
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise TargetError(
                f"the bundle's module {module.__name__} has no {qualname}: it was built from "
                f"another version of the project; {_REBUILD}"
            ) from None
    if not callable(found):
        raise TargetError(f"{module.__name__}.{qualname} is no function in the bundle; {_REBUILD}")
    function: Callable[..., Any] = found
    return function
