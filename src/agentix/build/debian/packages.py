"""Which Debian packages a program needs: versions, dependencies, and their closure.

Pure: it asks an index for stanzas and decides. Where the index comes from, and why it can be
trusted, is the business of :mod:`agentix.build.debian.archive`.
"""

from __future__ import annotations

import difflib
import itertools
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from agentix.build.artifact import Artifact
from agentix.build.debian.corrections import corrections
from agentix.errors import LockError
from agentix.nix.paths import store_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from agentix.build.debian.corrections import Corrections

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

    def artifact(self) -> Artifact:
        """Return the package as the file to fetch; LockError when there can be no such file."""
        try:
            return Artifact(
                file=store_name(PurePosixPath(self.pool).name),
                package=self.name,
                version=self.version,
                sha256=self.sha256,
                size=self.size,
                pool=self.pool,
            )
        except ValueError as error:
            raise LockError(f"the index describes {self.name} in a way not understood") from error


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


def closure(
    index: Index,
    roots: Iterable[str],
    *,
    without: Collection[str] = (),
    corrected: Corrections | None = None,
) -> list[Package]:
    """Return the packages that *roots* need, themselves included, sorted by name.

    A package in *without* counts as present: it is neither returned nor looked into. What packages
    say of their dependencies is *corrected* by a table, the usual one when there is none.
    Raises LockError for a name that the index does not have, and for a dependency nothing fulfils.
    """
    corrected = corrected or corrections()
    chosen: dict[str, Package] = {}
    todo = [_named(index, root) for root in roots if root not in without]
    open_choices: list[tuple[Package, list[Dependency]]] = []
    while todo or open_choices:
        if not todo:  # only now is it known which providers are there anyway
            wanted_by, alternatives = open_choices.pop(0)
            if not _met(alternatives, chosen, without):
                providers = _providers(index, alternatives, wanted_by)
                if not any(
                    p.name in without or corrected.drops(wanted_by.name, p.name) for p in providers
                ):
                    todo.append(providers[0])
            continue
        package = todo.pop(0)
        if package.name in chosen:
            continue
        chosen[package.name] = package
        dependencies = list(parse_depends(package.depends))
        # What is present is not looked into, but may need what is not.
        named = (wanted.name for alternatives in dependencies for wanted in alternatives)
        for name in dict.fromkeys([package.name, *(n for n in named if n in without)]):
            added = (index.package(n) for n in corrected.adds(name) if n not in without)
            todo += [more for more in added if more is not None]
        for alternatives in dependencies:
            if any(corrected.drops(package.name, wanted.name) for wanted in alternatives):
                continue
            if _met(alternatives, chosen, without):
                continue
            real = _real(index, alternatives)
            if real is None:
                open_choices.append((package, alternatives))
            else:
                todo.append(real)
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


def _named(index: Index, name: str) -> Package:
    package = index.package(name)
    if package is not None:
        return package
    providers = index.providers(name)
    if providers:
        listed = ", ".join(p.name for p in providers[:5])
        raise LockError(f"{name!r} is provided by several Debian packages; name one: {listed}")
    close = difflib.get_close_matches(name, index.names(), n=3, cutoff=0.7)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise LockError(f"{name!r} is not a Debian package of this suite{hint}")


def _met(
    alternatives: Sequence[Dependency], chosen: Mapping[str, Package], without: Collection[str]
) -> bool:
    """Say whether a dependency is met by what is there, or by what counts as present."""
    if any(wanted.name in without for wanted in alternatives):
        return True
    return any(_fulfils(p, wanted) for wanted in alternatives for p in chosen.values())


def _real(index: Index, alternatives: Sequence[Dependency]) -> Package | None:
    """Return the first package that is itself called for."""
    packages = ((index.package(wanted.name), wanted) for wanted in alternatives)
    return next((p for p, wanted in packages if p and wanted.admits(p.version)), None)


def _providers(
    index: Index, alternatives: Sequence[Dependency], wanted_by: Package
) -> list[Package]:
    """Return the packages that provide what is called for, the preferred ones first."""
    found = [p for w in alternatives for p in index.providers(w.name) if _fulfils(p, w)]
    if not found:
        names = " | ".join(wanted.name for wanted in alternatives)
        raise LockError(
            f"Debian package {wanted_by.name} needs {names}, which the suite does not have"
        )
    return found


def _fulfils(package: Package, wanted: Dependency) -> bool:
    """Say whether *package* is what is wanted, or provides it."""
    if package.name == wanted.name:
        return wanted.admits(package.version)
    if wanted.name not in package.provides:
        return False
    offers = (offer for clause in parse_depends(package.provides) for offer in clause)
    versions = [offer.version for offer in offers if offer.name == wanted.name]
    return any(not wanted.operator or (v != "" and wanted.admits(v)) for v in versions)


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
