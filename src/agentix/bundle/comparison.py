"""Why two bundles are not the same: what they are made of, which paths, and whose doing it is.

A store path has another name as soon as anything that it was built from has changed. So paths are
compared in pairs, as if the names had not changed: those that then are the same only follow others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from agentix.bundle.difference import Difference, differences
from agentix.bundle.inventory import item_name
from agentix.bundle.references import References
from agentix.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentix.bundle.inventory import Package, Tool
    from agentix.bundle.manifest import Manifest
    from agentix.bundle.view import View

Kind = Literal["added", "removed", "changed", "unlike", "follows"]

_FACTS = ("name", "version", "platform", "python", "toolchain", "libc", "protocol", "agentix")
_KEPT = 1000  # differences of one store path
_HASH = 33  # characters before the name of a store path
_RECORD = re.compile(r"(^|/)[^/]+\.dist-info/RECORD$")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that the manifests say differently; None is where it is not there at all.

    ``kind`` is ``bundle`` for a property of the bundle, else what sort of package it is. Where only
    the content of one version is another, both sides are that version.
    """

    kind: Literal["bundle", "package", "tool", "base"]
    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class PathChange:
    """One store path that is not in both bundles as it is.

    ``kind`` is ``changed`` where its content is another, ``unlike`` where even so its name is the
    same, so that the same inputs gave different outputs; ``follows`` where nothing but the names of
    other paths is another: of those in ``because``, or (if empty) of what it was built with.
    ``count`` is how many files differ, the first of which are in ``files``.
    """

    kind: Kind
    old: str | None
    new: str | None
    count: int = 0
    files: tuple[Difference, ...] = ()
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two bundles, by the digests of their tars, and what differs between them."""

    digests: tuple[str, str]
    changes: tuple[Change, ...] = ()
    paths: tuple[PathChange, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the two are the same, byte for byte."""
        return self.digests[0] == self.digests[1]


def compare(old: View, new: View) -> Comparison:
    """Return how *new* differs from *old*; only store paths that are not in both are read.

    Raises BundleError when one of the two is not what its manifest says.
    """
    digests = (old.digest(), new.digest())
    if digests[0] == digests[1]:
        return Comparison(digests)
    changes = tuple(_changes(old.manifest, new.manifest))
    paths = tuple(_paths(old, new))
    if not changes and not paths:
        raise BundleError(
            "the two bundles differ although their manifests are the same, so one of them is"
            " damaged; agentix bundle verify says which"
        )
    return Comparison(digests, changes, paths)


def _changes(old: Manifest, new: Manifest) -> Iterator[Change]:
    for fact in _FACTS:
        values = (str(getattr(old, fact)), str(getattr(new, fact)))
        if values[0] != values[1]:
            yield Change("bundle", fact, *values)
    for package in _items(old.packages, new.packages):
        yield Change("package", *package)
    for tool in _items(old.tools, new.tools):
        yield Change("tool", *tool)
    if old.format == new.format:  # the first format does not list them
        for tool in _items(old.base, new.base):
            yield Change("base", *tool)


def _items(
    old: Iterable[Package | Tool], new: Iterable[Package | Tool]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield name and versions of what is not the same in both, sorted by name."""
    sides = [{item_name(item): item for item in side} for side in (old, new)]
    for name in sorted(sides[0].keys() | sides[1].keys()):
        one, other = sides[0].get(name), sides[1].get(name)
        if one is None or other is None or one.version != other.version or _differ(one, other):
            yield name, one.version if one else None, other.version if other else None


def _differ(one: Package | Tool, other: Package | Tool) -> bool:
    """Say whether two of one version are known to have come as different files."""
    digests = [item.sha256 or getattr(item, "built", None) for item in (one, other)]
    return None not in digests and digests[0] != digests[1]


def _paths(old: View, new: View) -> Iterator[PathChange]:
    closures = (old.manifest.closure, new.manifest.closure)
    for name in sorted(closures[0].keys() & closures[1].keys()):
        if closures[0][name] != closures[1][name]:
            count, files = _kept(differences(old.items(name), new.items(name), References(())))
            yield PathChange("unlike", name, name, count, files)
    pairs, gone, come = _paired(
        closures[0].keys() - closures[1].keys(), closures[1].keys() - closures[0].keys()
    )
    yield from (PathChange("removed", name, None) for name in gone)
    yield from (PathChange("added", None, name) for name in come)
    yield from _in_pairs(old, new, pairs)


def _in_pairs(old: View, new: View, pairs: Sequence[tuple[str, str]]) -> Iterator[PathChange]:
    found: list[tuple[int, tuple[Difference, ...]]] = []
    mentions: list[set[int]] = []
    for pair in pairs:
        references = References(pairs)
        items = differences(old.items(pair[0]), new.items(pair[1]), references)
        found.append(_kept(_without_consequences(items)))
        mentions.append(references.met)
    own = {number for number, (count, _) in enumerate(found) if count}
    for number in sorted(own):
        yield PathChange("changed", *pairs[number], *found[number])
    for number in sorted(set(range(len(pairs))) - own):
        causes = sorted(pairs[cause][1] for cause in _causes(number, mentions, own))
        yield PathChange("follows", *pairs[number], because=tuple(causes))


def _causes(start: int, mentions: Sequence[set[int]], own: set[int]) -> set[int]:
    """Return those with a difference of their own that *start* leads to by what it mentions."""
    seen, waiting = {start}, [start]
    while waiting:
        for number in mentions[waiting.pop()] - seen:
            seen.add(number)
            if number not in own:
                waiting.append(number)
    return seen & own


def _without_consequences(items: Iterator[Difference]) -> Iterator[Difference]:
    """Leave out what follows from the names of other paths.

    A wheel's RECORD holds hashes of its files, so it differs where one of them mentions a path.
    """
    records: list[Difference] = []
    mentioning = others = False
    for item in items:
        if item.what == "reference":
            mentioning = True
        elif item.what == "content" and _RECORD.search(item.path):
            records.append(item)
        else:
            others = True
            yield item
    if others or not mentioning:
        yield from records


def _kept(items: Iterator[Difference]) -> tuple[int, tuple[Difference, ...]]:
    first = tuple(islice(items, _KEPT))
    return len(first) + sum(1 for _ in items), first


def _paired(
    old: Iterable[str], new: Iterable[str]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """Match store names that stand for one another: of one name, or else of one package."""
    olds, news = sorted(old), sorted(new)
    pairs: list[tuple[str, str]] = []
    for key in (_whole, _package):
        groups = defaultdict(list)
        for name in news:
            groups[key(name)].append(name)
        crowd = Counter(map(key, olds))
        for name in list(olds):
            candidates = groups[key(name)]
            if candidates and (key is _whole or crowd[key(name)] == len(candidates) == 1):
                other = candidates.pop(0)
                pairs.append((name, other))
                olds.remove(name)
                news.remove(other)
    return sorted(pairs, key=lambda pair: _whole(pair[0])), olds, news


def _whole(name: str) -> str:
    return name[_HASH:]


def _package(name: str) -> str:
    """Return the name without the version, which begins with a digit after a hyphen."""
    return re.split(r"-(?=\d)", name[_HASH:], maxsplit=1)[0]
