"""Ask a program for its version, or for anything else that it says soon."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from agentix.build.command import Command
from agentix.errors import AgentixError
from agentix.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agentix.build.command import Ended

PATIENCE = 8.0  # seconds for one program; less than for the whole examination


def ask(words: Sequence[str]) -> Ended:
    """Run a program to its end; AgentixError when that does not come soon."""
    return Command(words, raises=AgentixError, timeout=PATIENCE).run()


def version(words: Sequence[str]) -> str:
    """Return the version in what a program prints; AgentixError when it does not run."""
    ended = ask(words)
    # The last of the first line: distributors put their own before it, libraries below it.
    found = re.findall(rb"\d+(?:\.\d+)+", ended.output.partition(b"\n")[0])
    if ended.status != 0 or not found:
        raise AgentixError(f"{words[0]} does not run: {ended.reason}")
    return str(found[-1], "ascii")


def installed(
    name: str, *options: str, needed: str, package: str | None = None
) -> Callable[[], Iterable[Finding]]:
    """Return a look for the program *name*, without which *needed* is not to be had."""

    def look() -> Iterable[Finding]:
        found = shutil.which(name)
        if found is None:
            advice = f"install {name} (Debian: apt-get install {package or name})"
            yield Finding("note", f"not installed; {needed}", advice)
            return
        try:
            yield Finding("ok", version([found, *(options or ("--version",))]))
        except AgentixError as error:
            yield Finding("note", f"{error}; {needed}", f"reinstall {name}")

    return look
