"""Types of others that results may hold, each with a way to plain values and back.

What a name stands for is decided by this process's own registry; the sandbox only names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from agentix.wire.errors import MalformedError, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registration:
    """A type, and how it is taken apart and put together."""

    cls: type
    name: str
    encode: Callable[[Any], object]
    decode: Callable[[Any], Any]

    def rebuild(self, value: Any) -> Any:
        """Put an object together from what arrived."""
        try:
            made = self.decode(value)
        except Exception as exc:
            raise MalformedError(
                f"the result's {self.name} cannot be rebuilt: {type(exc).__name__}: {exc}"
            ) from exc
        if not isinstance(made, self.cls):
            raise MalformedError(f"the result's {self.name} was rebuilt as a {type(made).__name__}")
        return made


_by_type: Final[dict[type, Registration]] = {}
_by_name: Final[dict[str, Registration]] = {}


def register_type(
    cls: type[T], *, encode: Callable[[T], object], decode: Callable[[Any], T]
) -> None:
    """Let results hold objects of a type that is not the project's own.

    Both sides have to do it, so it belongs into a module that both import, beside the functions
    that return such objects. ``encode`` runs in the sandbox and gives values that results may hold:
    plain ones, arrays, allowed classes. ``decode`` runs on the host and is given what ``encode``
    gave, or whatever else a hostile sandbox chose to send: it has to bear that, and must not
    unpickle. Objects of subclasses are not included.

    Raises ValueError when the type is registered already in another way.
    """
    name = f"{cls.__module__}.{cls.__qualname__}"
    known = _by_name.get(name)
    if known is not None and (known.cls, known.encode, known.decode) != (cls, encode, decode):
        raise ValueError(f"{name} is registered already, in another way")
    _by_type[cls] = _by_name[name] = Registration(cls, name, encode, decode)


def registered(cls: type) -> Registration | None:
    """Find how objects of exactly this type are sent."""
    return _by_type.get(cls)


def rebuild(name: Any, value: Callable[[], Any]) -> Any:
    """Rebuild an object of a registered type; its value is decoded only if there is one."""
    if type(name) is not str or len(name) > 1024:
        raise MalformedError("the result names a type by what is no name")
    found = _by_name.get(name)
    if found is None:
        module, _, qualname = name.rpartition(".")
        raise NotAllowedError(module, qualname)
    return found.rebuild(value())
