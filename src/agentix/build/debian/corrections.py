"""What the dependencies of Debian packages are when a bundle, not a system, is to hold them.

The table is the builders' ``needs.toml``, which gives a reason for each of its entries.
"""

from __future__ import annotations

import functools
import tomllib
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, ValidationError

from agentix.build.expressions import expressions
from agentix.errors import LockError
from agentix.validation import Strict, first_fault

TABLE = "builders/needs.toml"
Names = list[Annotated[str, Field(min_length=1)]]
Reason = Annotated[str, Field(min_length=1)]


class Correction(Strict):
    """Packages that those which match ``of`` need as well, or do not need."""

    of: Names
    adds: Names = Field(default_factory=list)
    drops: Names = Field(default_factory=list)
    reason: Reason


class Present(Strict):
    """Packages that every bundle has, and that may be declared all the same."""

    packages: Names
    reason: Reason


class Corrections(Strict):
    """The part of the table that decides which packages a tool needs."""

    dependency: list[Correction] = Field(default_factory=list)
    present: list[Present] = Field(default_factory=list)

    def adds(self, package: str) -> list[str]:
        """Return what *package* needs beyond what it says."""
        return [name for entry in self._about(package) for name in entry.adds]

    def drops(self, package: str, dependency: str) -> bool:
        """Say whether *package* does without *dependency*, of which it says that it needs it."""
        return any(
            fnmatchcase(dependency, pattern)
            for entry in self._about(package)
            for pattern in entry.drops
        )

    def is_present(self, package: str) -> bool:
        """Say whether every bundle has *package*, as data that tools find."""
        return any(package in entry.packages for entry in self.present)

    def _about(self, package: str) -> list[Correction]:
        return [e for e in self.dependency if any(fnmatchcase(package, p) for p in e.of)]


@functools.cache
def corrections() -> Corrections:
    """Return the table's corrections; LockError when agentix is not installed whole."""
    file = expressions() / TABLE
    try:
        table = tomllib.loads(file.read_text("utf-8"))
        known = {name: table[name] for name in Corrections.model_fields if name in table}
        return Corrections.model_validate(known)
    except (OSError, ValueError) as error:
        reason = first_fault(error) if isinstance(error, ValidationError) else error
        raise LockError(f"cannot read {file}: {reason}; reinstall agentix") from error
