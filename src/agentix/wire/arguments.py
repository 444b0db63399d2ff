"""Arguments on their way into a sandbox: pickles of protocol 5, with large buffers beside them.

This is the trusted direction; results come that way only where the user trusts the sandbox in full.
cloudpickle carries classes and functions that the sandbox cannot import; what a script defines is
carried by reference where the called function is the script's too, because then the bundle has that
script as a module and both sides mean the same classes. What is carried by value is code, which is
good for one minor version of Python only, and so the pickle tells.

What is pickled is ``(args, kwargs)``, or ``(args, kwargs, carried)`` if the call carries a context.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

from agentix.wire.frames import Buffer
from agentix.wire.protocol import MAX_BUFFERS, OUT_OF_BAND

if TYPE_CHECKING:
    from collections.abc import Sequence

MINOR: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version of Python that code made here is for."""

_FEW: Final = 16
_SHALLOW: Final = 4
_CONTAINERS = frozenset({tuple, list, dict})
_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class Pickled:
    """A pickle in parts, none of them copied, and its out-of-band buffers."""

    stream: list[Buffer]
    buffers: list[Buffer]
    minor: str = ""
    """The version of Python that the code in it is for; empty if it holds none."""

    @property
    def segments(self) -> tuple[int, ...]:
        """The lengths of stream and buffers."""
        return (sum(map(len, self.stream)), *map(len, self.buffers))


class _Parts(list[Buffer]):
    """A file for the pickler; large bytes objects arrive in it as themselves, not as a copy."""

    def write(self, data: Buffer | pickle.PickleBuffer) -> int:
        part = data.raw() if isinstance(data, pickle.PickleBuffer) else data
        self.append(part)
        return len(part)


def dump(
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    script: str | None = None,
    carried: dict[str, Any] | None = None,
) -> Pickled:
    """Pickle the arguments of a call, and the context that it carries.

    ``script`` is the importable name of ``__main__``, given when the called function lives there.
    """
    whole = (args, kwargs) if carried is None else (args, kwargs, carried)
    if _cost(whole, 0) < OUT_OF_BAND:
        return Pickled([pickle.dumps(whole, 5)], [])
    return _dump(whole, script)


def _cost(value: Any, depth: int) -> int:
    """Count the bytes of a few plain values; anything else is too much for a plain pickle."""
    cls = type(value)
    if cls in _SCALARS:
        return len(value) if cls is str or cls is bytes else 8
    if depth > _SHALLOW or cls not in _CONTAINERS or len(value) > _FEW:
        return OUT_OF_BAND
    cost = 8
    for item in value:
        cost += _cost(item, depth + 1)
    if cls is dict:
        for item in value.values():
            cost += _cost(item, depth + 1)
    return cost


def dump_result(value: object) -> Pickled:
    """Pickle a result, for a host that has opted in to trusting this sandbox."""
    return _dump(value, None)


@cache
def _pickler() -> Any:
    """Make the pickler class once, and import cloudpickle only when something is pickled by it."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        script: str | None = None
        minor = ""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, type | FunctionType):
                if (
                    self.script is not None
                    and obj.__module__ == "__main__"
                    and _named(obj.__qualname__) is obj
                ):
                    return _by_name, (self.script, obj.__qualname__)
                reduced = super().reducer_override(obj)
                # The types that have no name to import them by are reduced, too: to two parts.
                if reduced is not NotImplemented and len(reduced) > 2:
                    self.minor = MINOR
                return reduced
            if isinstance(obj, CodeType):
                self.minor = MINOR
            return super().reducer_override(obj)

    return Pickler


def _dump(value: object, script: str | None) -> Pickled:
    stream, buffers = _Parts(), list[Buffer]()

    def aside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND or len(buffers) >= MAX_BUFFERS:
            return True
        buffers.append(view)
        return False

    pickler = _pickler()(stream, 5, buffer_callback=aside)
    pickler.script = script
    pickler.dump(value)
    return Pickled(stream, buffers, pickler.minor)


def _named(qualname: str) -> object:
    found: object = sys.modules["__main__"]
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _by_name(module: str, qualname: str) -> object:
    found: object = import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def unpickle(stream: Buffer, buffers: Sequence[Buffer]) -> Any:
    """Rebuild what was pickled, which runs whatever the pickle says.

    Only for what the host itself sent, and for results where the user trusts the sandbox in full.
    """
    return pickle.loads(stream, buffers=buffers)  # noqa: S301 - trusted, by design or by choice
