"""A tool's packages as they lie in its folders, and which of them a platform takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentix.build.npm.package import Package
    from agentix.platforms import Platform

FOLDER = "node_modules"


class Unfit(LockError):  # noqa: N818 - reads as what it is
    """A tool that does not run on a platform."""


def place(name: str, inside: str = "") -> str:
    """Return where the package *name* lies that belongs to what lies *inside*."""
    return f"{inside}/{FOLDER}/{name}" if inside else f"{FOLDER}/{name}"


def chosen(tree: Mapping[str, Package], top: str, platform: Platform) -> dict[str, Package]:
    """Return what the tool at *top* consists of on *platform*: itself, and what it can reach.

    Of packages that it could do without, only those for the platform. Raises Unfit when something
    that it needs is for other platforms, or when of its choices for Linux none is for this one.
    """
    found: dict[str, Package] = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        package = found[path] = tree[path]
        if not package.fits(platform):
            raise Unfit(f"{package} does not run on {platform.name}, says its package.json")
        waiting += _needed(tree, path)
        choices = list(_present(tree, path, package.optional))
        fitting = [choice for choice in choices if tree[choice].fits(platform)]
        waiting += fitting
        native = [tree[choice] for choice in choices if tree[choice].native]
        if any(p.for_linux for p in native) and not any(tree[p].native for p in fitting):
            listed = ", ".join(sorted(p.name for p in native if p.for_linux))
            raise Unfit(f"{package} has no package for {platform.name} with glibc, only {listed}")
    return dict(sorted(found.items()))


def _needed(tree: Mapping[str, Package], path: str) -> Iterator[str]:
    package = tree[path]
    for name in package.required:
        where = _where(tree, path, name)
        if where is None:
            raise LockError(f"{package} needs {name}, which npm did not resolve")
        yield where
    yield from _present(tree, path, package.peers)


def _present(tree: Mapping[str, Package], path: str, names: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        where = _where(tree, path, name)
        if where is not None:
            yield where


def _where(tree: Mapping[str, Package], path: str, name: str) -> str | None:
    """Return where Node finds the package *name* when something at *path* asks for it."""
    while True:
        if (candidate := place(name, path)) in tree:
            return candidate
        if not path:
            return None
        path = path.rpartition(f"/{FOLDER}/")[0] if f"/{FOLDER}/" in path else ""
