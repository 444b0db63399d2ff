"""Arguments on their way into a sandbox: pickles of protocol 5, with large buffers beside them.

This is the trusted direction; results come that way only where the user trusts the sandbox in full.
cloudpickle carries classes and functions that the sandbox cannot import; what a script defines is
carried by reference where the called function is the script's too, because then the bundle has that
script as a module and both sides mean the same classes.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

from agentix.wire.frames import Buffer
from agentix.wire.protocol import MAX_BUFFERS, OUT_OF_BAND

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class Pickled:
    """A pickle in parts, none of them copied, and its out-of-band buffers."""

    stream: list[Buffer]
    buffers: list[Buffer]

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
    args: tuple[object, ...], kwargs: dict[str, object], *, script: str | None = None
) -> Pickled:
    """Pickle the arguments of a call.

    ``script`` is the importable name of ``__main__``, given when the called function lives there.
    """
    if not kwargs and {*map(type, args)} <= _SCALARS and sum(map(_length, args)) < OUT_OF_BAND:
        return Pickled([pickle.dumps((args, kwargs), 5)], [])
    return _dump((args, kwargs), script)


def _length(value: object) -> int:
    return len(value) if isinstance(value, str | bytes) else 8


def dump_result(value: object) -> Pickled:
    """Pickle a result, for a host that has opted in to trusting this sandbox."""
    return _dump(value, None)


@cache
def _pickler() -> Any:
    """Make the pickler class once, and import cloudpickle only when something is pickled by it."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        script: str | None = None

        def reducer_override(self, obj: Any) -> Any:
            if (
                self.script is not None
                and isinstance(obj, type | FunctionType)
                and obj.__module__ == "__main__"
                and _named(obj.__qualname__) is obj
            ):
                return _by_name, (self.script, obj.__qualname__)
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
    return Pickled(stream, buffers)


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
