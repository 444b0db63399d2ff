"""Look at everything at once, and never wait longer than was agreed for what does not answer."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Literal

from agentix.errors import AgentixError
from agentix.findings import Finding
from agentix.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Area = Literal["building", "registries", "cache", "providers", "plugins", "other"]

_LONGEST = 400
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]*@")  # of an address: nobody's to read from a report


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at. *look* blocks, gives findings as it makes them, and may fail."""

    area: Area
    subject: str
    look: Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A finding, and what it is about."""

    area: Area
    subject: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, in the order of the checks.

    ``unfinished`` says that some check is still at work: a thread nobody waits for.
    """

    entries: tuple[Entry, ...]
    unfinished: bool = False

    @property
    def problems(self) -> tuple[Entry, ...]:
        """What keeps this machine from building bundles or from running them."""
        return tuple(entry for entry in self.entries if entry.finding.level == "problem")


def examine(checks: Sequence[Check], *, within: float = 10.0) -> Report:
    """Make all *checks* side by side; what takes more than *within* seconds is a problem, too.

    One provider that can make sandboxes is enough: what keeps the others from it becomes a note.
    """
    answers: SimpleQueue[tuple[int, Finding | None]] = SimpleQueue()
    for number, check in enumerate(checks):
        # Daemons: a call into the kernel or a library that hangs must not keep the program.
        arguments = (number, check, answers)
        name = f"doctor {check.subject}"
        threading.Thread(target=_make, args=arguments, name=name, daemon=True).start()
    found: list[list[Finding]] = [[] for _ in checks]
    waiting = set(range(len(checks)))
    deadline = time.monotonic() + within
    while waiting:
        try:
            number, finding = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if finding is None:
            waiting.discard(number)
        else:
            found[number].append(_presentable(finding))
    for number in waiting:
        found[number].append(Finding("problem", f"does not answer within {within:g} s"))
    entries = [
        Entry(check.area, check.subject, finding)
        for check, findings in zip(checks, found, strict=True)
        for finding in findings
    ]
    return Report(tuple(_weighed(entries)), unfinished=bool(waiting))


def _make(number: int, check: Check, answers: SimpleQueue[tuple[int, Finding | None]]) -> None:
    try:
        for finding in check.look():
            answers.put((number, finding))
    except AgentixError as error:
        answers.put((number, Finding("problem", str(error))))
    except BaseException as error:  # a plugin's code: it is its own failure
        answers.put((number, Finding("problem", f"{type(error).__name__}: {error}")))
    finally:
        answers.put((number, None))


def _presentable(finding: Finding) -> Finding:
    """Return *finding*, which programs and plugins have worded, on one line and without secrets."""

    def clean(text: str) -> str:
        return plain(_CREDENTIALS.sub("", " ".join(text.split())), _LONGEST)

    return replace(finding, text=clean(finding.text), advice=clean(finding.advice))


def _weighed(entries: Sequence[Entry]) -> Iterable[Entry]:
    hindered = {
        e.subject for e in entries if e.area == "providers" and e.finding.level == "problem"
    }
    usable = {e.subject for e in entries if e.area == "providers"} - hindered
    for entry in entries:
        if usable and entry.subject in hindered and entry.finding.level == "problem":
            yield replace(entry, finding=replace(entry.finding, level="note"))
        else:
            yield entry
    if not usable:
        advice = "install one, such as agentix-provider-bubblewrap, or see to one of those above"
        yield Entry(
            "providers", "sandboxes", Finding("problem", "no provider can make any here", advice)
        )
