"""Context that follows remote calls: variables of your own, and a baggage of plain names.

    tenant = context.var("tenant", default="nobody")     # in a module that both sides import

    tenant.set("acme")
    context.set("experiment", 7)
    await sandbox.remote(solve)     # there, tenant.get() is "acme", context.get("experiment") is 7

A call sees what was set where ``remote`` was called, and nothing of it outlives the call. Values
travel with the arguments, and have to be such as arguments can be. What is set inside a sandbox
stays there.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

T = TypeVar("T")

_Baggage = MappingProxyType[str, Any]
_MISSING: Final = object()
_NOTHING: Final[_Baggage] = MappingProxyType({})

_lock = threading.Lock()
_vars: Final[dict[str, ContextVar[Any]]] = {}
_defaults: Final[dict[str, Any]] = {}
_baggage: ContextVar[_Baggage] = ContextVar("agentix.baggage", default=_NOTHING)
# What a call brought for variables whose modules are not imported yet.
_unclaimed: ContextVar[_Baggage] = ContextVar("agentix.unclaimed", default=_NOTHING)


@overload
def var(name: str) -> ContextVar[Any]: ...
@overload
def var(name: str, default: T) -> ContextVar[T]: ...
def var(name: str, default: Any = _MISSING) -> ContextVar[Any]:
    """Return the context variable of this name, which remote calls carry along.

    Both sides have to make it, as a module at import does; making it again returns the same one.
    Raises ValueError for the same name with another default.
    """
    with _lock:
        if name not in _vars:
            made = ContextVar(name) if default is _MISSING else ContextVar(name, default=default)
            _vars[name], _defaults[name] = made, default
        elif _defaults[name] is not default and _defaults[name] != default:
            raise ValueError(f"the context variable {name!r} exists with another default")
        known = _vars[name]
    brought = _unclaimed.get()
    if name in brought:
        known.set(brought[name])
    return known


def get(key: str, default: Any = None) -> Any:
    """Return what the baggage holds under a key."""
    return _baggage.get().get(key, default)


def set(key: str, value: Any) -> None:  # noqa: A001 - the public name
    """Put a value into the baggage, for this task or thread and what it starts from now on."""
    _baggage.set(MappingProxyType({**_baggage.get(), key: value}))


@contextmanager
def scope(values: Mapping[str, Any] | None = None, /, **more: Any) -> Iterator[None]:
    """Have values in the baggage inside a ``with`` block."""
    token = _baggage.set(MappingProxyType({**_baggage.get(), **(values or {}), **more}))
    try:
        yield
    finally:
        _baggage.reset(token)


def snapshot() -> dict[str, Any]:
    """Return a copy of the baggage."""
    return dict(_baggage.get())


def clear() -> None:
    """Empty the baggage."""
    _baggage.set(_NOTHING)


def capture() -> dict[str, Any] | None:
    """Collect what a call that is made here carries; None if that is nothing."""
    baggage = _baggage.get()
    variables: dict[str, Any] = {}
    if _vars:
        here = copy_context()
        with _lock:
            variables = {name: here[known] for name, known in _vars.items() if known in here}
    if not baggage and not variables:
        return None
    return {"baggage": dict(baggage), "variables": variables}


def apply(carried: Mapping[str, Any]) -> None:
    """Set what a call carried; in a context of the call's own."""
    _baggage.set(MappingProxyType(carried["baggage"]))
    brought = dict(carried["variables"])
    with _lock:
        known = [(_vars[name], brought.pop(name)) for name in [*brought] if name in _vars]
    for variable, value in known:
        variable.set(value)
    _unclaimed.set(MappingProxyType(brought))
