"""What differs between two trees: file by file, as both are read side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agentix.bundle.place import aligned, where
from agentix.bundle.references import References
from agentix.bundle.tree import Kind
from agentix.bundle.view import Item, tree_items
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

What = Literal["added", "removed", "kind", "content", "mode", "target", "reference"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One path below the root of two trees that is not the same in both.

    ``what`` says in which way: a ``reference`` is a difference in nothing but mentioned store
    paths. ``where`` tells more: the first line, byte or member that differs, or the two values.
    """

    path: str
    what: What
    where: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f", {self.where}" if self.where else "")


def tree_differences(old: Path, new: Path) -> Iterator[Difference]:
    """Yield what differs between two paths on disk; of folders that only one has, their names."""
    return differences(tree_items(old), tree_items(new), References(()))


def differences(
    old: Iterator[Item], new: Iterator[Item], references: References
) -> Iterator[Difference]:
    """Yield what differs between two trees, each in the order that archives have."""
    one, other = next(old, None), next(new, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.parts < other.parts):
            assert one is not None  # noqa: S101 - one of the two is there
            yield Difference(_shown(one), "removed")
            one = _after(one, old)
        elif one is None or other.parts < one.parts:
            yield Difference(_shown(other), "added")
            other = _after(other, new)
        elif one.kind is not other.kind:
            kinds = f"{one.kind.value} → {other.kind.value}"
            yield Difference(_shown(one), "kind", kinds)
            one, other = _after(one, old), _after(other, new)
        else:
            yield from _in_both(one, other, references)
            one, other = next(old, None), next(new, None)


def _shown(item: Item) -> str:
    return plain(b"/".join(item.parts) or b".")


def _after(item: Item, items: Iterator[Item]) -> Item | None:
    """Return what comes after *item* and everything in it."""
    depth = len(item.parts)
    return next((next_ for next_ in items if next_.parts[:depth] != item.parts), None)


def _in_both(old: Item, new: Item, references: References) -> Iterator[Difference]:
    path = _shown(old)
    if old.kind is Kind.SYMLINK and old.target != new.target:
        targets = references.text(0, old.target), references.text(1, new.target)
        shown = " → ".join(plain(target, 160) for target in targets)
        same = targets[0] == targets[1]
        yield Difference(path, "reference") if same else Difference(path, "target", shown)
    if old.kind is not Kind.FILE:
        return
    if old.executable != new.executable:
        yield Difference(path, "mode", f"{_mode(old)} → {_mode(new)}")
    if _same(old.read(), new.read(), old.size == new.size):
        return
    place = where(
        lambda: references.pieces(0, old.read()), lambda: references.pieces(1, new.read())
    )
    if place is None:
        yield Difference(path, "reference")
        return
    sizes = "" if old.size == new.size else f", {old.size} → {new.size} bytes"
    yield Difference(path, "content", place + sizes)


def _same(old: Iterator[bytes], new: Iterator[bytes], may_be: bool) -> bool:
    return may_be and all(one == other for one, other in aligned(old, new))


def _mode(item: Item) -> str:
    return "executable" if item.executable else "not executable"
