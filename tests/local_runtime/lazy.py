"""Functions that are hard to look up: only asking for them shows that they are not to be had."""

from __future__ import annotations

from typing import Any

asked: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    asked.append(name)
    raise ImportError(f"{name} needs a library that is not there")


class _Meta(type):
    def __getattr__(cls, name: str) -> Any:
        if name == "leaving":
            raise SystemExit(3)
        raise ImportError(f"{name} needs a library that is not there")


class Group(metaclass=_Meta):
    """Looks its functions up elsewhere."""


def endless() -> None:
    """Wrap itself."""


endless.__wrapped__ = endless  # type: ignore[attr-defined]


async def there(value: int) -> int:
    """Be there."""
    return value


class _Untold(Exception):  # noqa: N818 - what matters is what it does
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise _Untold


def unpicklable() -> Any:
    """Return what raises while it is taken apart, and cannot say why."""
    return _Unpicklable()
