"""Which Debian packages a program needs: versions, dependencies, and their closure.

Pure: it asks an index for stanzas and decides. Where the index comes from, and why it can be
trusted, is the business of :mod:`agentix.build.archive`.
"""

from __future__ import annotations

import difflib
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agentix.errors import LockError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

# Only maintainer scripts need these, and a bundle runs none.
ONLY_FOR_INSTALLING = frozenset(
    {"adduser", "cdebconf", "debconf", "debconf-2.0", "dpkg", "init-system-helpers", "install-info"}
    | {"media-types", "mime-support", "readline-common", "sensible-utils", "ucf"}
)
_BASE = re.compile(r"gcc-[0-9]+-base")  # a changelog that gcc's libraries share

_RUNS = re.compile(r"([^0-9]*)([0-9]*)")
_DEPENDENCY = re.compile(
    r"\s*(?P<name>[a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)?\s*"
    r"(?:\((?P<operator><<|<=|=|>=|>>)\s*(?P<version>[^)\s]+)\s*\))?\s*"
)


@dataclass(frozen=True, slots=True)
class Package:
    """A package as the archive's index describes it."""

    name: str
    version: str
    depends: str
    provides: str
    pool: str
    sha256: str
    size: int


class Index(Protocol):
    """The packages of one suite for one architecture."""

    def package(self, name: str) -> Package | None:
        """Return the newest package called *name*."""

    def providers(self, name: str) -> Sequence[Package]:
        """Return the packages that provide the virtual package *name*, in alphabetical order."""

    def names(self) -> Collection[str]:
        """Return every package's name."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One alternative of a dependency: a name, and perhaps a condition on its version."""

    name: str
    operator: str = ""
    version: str = ""

    def admits(self, version: str) -> bool:
        """Say whether *version* fulfils the condition."""
        if not self.operator:
            return True
        order = compare_versions(version, self.version)
        return {
            "<<": order < 0,
            "<=": order <= 0,
            "=": order == 0,
            ">=": order >= 0,
            ">>": order > 0,
        }[self.operator]


def parse_depends(text: str) -> Iterator[list[Dependency]]:
    """Read a Depends field: each item is a list of alternatives, the preferred one first."""
    for clause in filter(None, (part.strip() for part in text.split(","))):
        alternatives = []
        for alternative in clause.split("|"):
            found = _DEPENDENCY.fullmatch(alternative)
            if found is None:
                raise LockError(f"cannot read the Debian dependency {clause!r}")
            name, operator, version = found.group("name", "operator", "version")
            alternatives.append(Dependency(name, operator or "", version or ""))
        yield alternatives


def closure(index: Index, roots: Iterable[str], *, without: Collection[str] = ()) -> list[Package]:
    """Return the packages that *roots* need, themselves included, sorted by name.

    A package in *without* counts as present: it is neither returned nor looked into. Raises
    LockError for a name that the index does not have, and for a dependency nothing fulfils.
    """
    chosen: dict[str, Package] = {}
    todo = [_named(index, root) for root in roots if root not in without]
    while todo:
        package = todo.pop()
        if package.name in chosen or _ignored(package.name, without):
            continue
        chosen[package.name] = package
        todo += [
            _choose(index, alternatives, chosen, without, package)
            for alternatives in parse_depends(package.depends)
            if not any(a.name in chosen or _ignored(a.name, without) for a in alternatives)
        ]
    return [chosen[name] for name in sorted(chosen)]


def compare_versions(left: str, right: str) -> int:
    """Order two Debian versions: negative, zero or positive, as ``dpkg --compare-versions``."""
    (epoch_a, upstream_a, revision_a), (epoch_b, upstream_b, revision_b) = map(
        _split, (left, right)
    )
    return (
        (epoch_a > epoch_b) - (epoch_a < epoch_b)
        or _compare_parts(upstream_a, upstream_b)
        or _compare_parts(revision_a, revision_b)
    )


def _ignored(name: str, without: Collection[str]) -> bool:
    return name in without or name in ONLY_FOR_INSTALLING or _BASE.fullmatch(name) is not None


def _named(index: Index, name: str) -> Package:
    package = index.package(name)
    if package is not None:
        return package
    providers = index.providers(name)
    if providers:
        listed = ", ".join(p.name for p in providers[:5])
        raise LockError(
            f"system tool {name!r} is provided by several Debian packages; name one: {listed}"
        )
    close = difflib.get_close_matches(name, index.names(), n=3, cutoff=0.7)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise LockError(f"system tool {name!r} is not a Debian package of this suite{hint}")


def _choose(
    index: Index,
    alternatives: Sequence[Dependency],
    chosen: Collection[str],
    without: Collection[str],
    wanted_by: Package,
) -> Package:
    for wanted in alternatives:
        package = index.package(wanted.name)
        if package is not None and wanted.admits(package.version):
            return package
        providers = [p for p in index.providers(wanted.name) if _provides(p, wanted)]
        at_hand = [p for p in providers if p.name in chosen or _ignored(p.name, without)]
        if providers:
            return (at_hand or providers)[0]
    names = " | ".join(wanted.name for wanted in alternatives)
    raise LockError(f"Debian package {wanted_by.name} needs {names}, which the suite does not have")


def _provides(package: Package, wanted: Dependency) -> bool:
    for offers in parse_depends(package.provides):
        for offer in offers:
            if offer.name == wanted.name:
                return not wanted.operator or (bool(offer.version) and wanted.admits(offer.version))
    return False


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (int(epoch), upstream, revision) if dash else (int(epoch), rest, "")


def _compare_parts(left: str, right: str) -> int:
    """Compare stretches of text and of digits in turn; what is missing is empty text, or 0."""
    pairs = itertools.zip_longest(_RUNS.findall(left), _RUNS.findall(right), fillvalue=("", "0"))
    for (text_a, digits_a), (text_b, digits_b) in pairs:
        a = ([*map(_order, text_a), 0], int(digits_a or 0))
        b = ([*map(_order, text_b), 0], int(digits_b or 0))
        if a != b:
            return 1 if a > b else -1
    return 0


def _order(character: str) -> int:
    """Order a character: ``~`` before the end of the text (0), then letters, then the rest."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
