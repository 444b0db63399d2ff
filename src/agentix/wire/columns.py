"""Plain data without maps: a list as ``[items]``, a mapping as ``[keys, values]`` or ``[]``.

msgpack interns the keys of maps, and some versions of CPython keep for ever what was interned: a
sandbox could fill its host's memory with keys. So whoever reads this refuses maps. A list of
nothing but leaves is read and written without a Python step for each of them.
"""

from __future__ import annotations

from typing import Any

from agentix.wire.errors import MalformedError, UnencodableError

_LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_LIKE_LEAVES = (int, float, str, bytes, bytearray, memoryview)


def fold(value: Any, what: str, depth: int) -> Any:
    """Fold a value whose containers are nested at most so deep; tuples become lists.

    Raises UnencodableError for what is no plain data, naming *what* holds it.
    """
    if type(value) in _LEAVES or isinstance(value, _LIKE_LEAVES):
        return value
    if depth == 0:
        raise UnencodableError(f"{what} is nested too deep to be sent")
    if isinstance(value, dict):
        if not value:
            return []
        keys = [*value]
        for key in keys:
            if not isinstance(key, str):
                raise UnencodableError(
                    f"{what} holds a dict with a key of type {type(key).__name__}; keys are text"
                )
        return [keys, _fold_each([*value.values()], what, depth - 1)]
    if isinstance(value, list | tuple):
        return [_fold_each(value, what, depth - 1)]
    raise UnencodableError(
        f"{what} holds a {type(value).__name__}; it has to be made of None, bool, int, float, str, "
        "bytes, lists and dicts"
    )


def _fold_each(values: Any, what: str, depth: int) -> Any:
    if {*map(type, values)} <= _LEAVES:
        return values
    return [fold(value, what, depth) for value in values]


def unfold(node: Any, leaves: frozenset[type], depth: int) -> Any:
    """Give what was folded. Raises MalformedError for other leaves, or if it is deeper."""
    if type(node) in leaves:
        return node
    if type(node) is not list or depth == 0 or len(node) > 2:
        raise MalformedError("data are not folded as they should be")
    if not node:
        return {}
    values = node[-1]
    if type(values) is not list:
        raise MalformedError("data are not folded as they should be")
    if not {*map(type, values)} <= leaves:
        values = [unfold(value, leaves, depth - 1) for value in values]
    if len(node) == 1:
        return values
    keys = node[0]
    if type(keys) is not list or len(keys) != len(values) or {*map(type, keys)} != {str}:
        raise MalformedError("a mapping is not one")
    return dict(zip(keys, values, strict=True))
