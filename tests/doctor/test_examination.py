"""Every check is made at once; the report comes in time, in order, and weighs what it has found."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from agentix.doctor import Check, Report, examine
from agentix.errors import NixError
from agentix.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentix.findings import Level


def says(*levels: Level) -> list[Finding]:
    return [Finding(level, f"is {level}") for level in levels]


def told(report: Report) -> list[tuple[str, str]]:
    return [(entry.subject, entry.finding.level) for entry in report.entries]


def test_checks_run_side_by_side_and_are_told_in_order() -> None:
    both = threading.Barrier(2, timeout=5)

    def look() -> Iterable[Finding]:
        both.wait()
        yield from says("ok")

    def late() -> Iterable[Finding]:
        yield from look()

    provider = Check("providers", "p", lambda: says("ok"))
    report = examine([Check("building", "a", late), Check("building", "b", look), provider])
    assert told(report) == [("a", "ok"), ("b", "ok"), ("p", "ok")]
    assert not report.problems
    assert not report.unfinished


def test_what_hangs_is_a_problem_that_keeps_what_it_said_before() -> None:
    forever = threading.Event()

    def look() -> Iterable[Finding]:
        yield from says("ok")
        forever.wait()

    provider = Check("providers", "p", lambda: says("ok"))
    begun = time.monotonic()
    report = examine([Check("cache", "a", look), provider], within=0.2)
    assert time.monotonic() - begun < 5
    assert told(report) == [("a", "ok"), ("a", "problem"), ("p", "ok")]
    assert report.unfinished
    assert "0.2 s" in report.problems[0].finding.text
    forever.set()


def test_what_fails_is_a_problem_in_its_own_words() -> None:
    def refuse() -> Iterable[Finding]:
        raise NixError("Nix is not installed; install it")

    def leave() -> Iterable[Finding]:
        raise SystemExit(3)

    provider = Check("providers", "p", lambda: says("ok"))
    report = examine([Check("building", "n", refuse), Check("building", "x", leave), provider])
    assert [e.finding.text for e in report.problems] == [
        "Nix is not installed; install it",
        "SystemExit: 3",
    ]


def test_one_provider_that_works_is_enough() -> None:
    checks = [
        Check("providers", "good", lambda: says("ok", "note")),
        Check("providers", "bad", lambda: says("ok", "problem")),
    ]
    report = examine(checks)
    assert told(report) == [("good", "ok"), ("good", "note"), ("bad", "ok"), ("bad", "note")]
    assert not report.problems


def test_without_a_provider_that_works_there_is_a_problem() -> None:
    checks = [Check("providers", "bad", lambda: says("problem"))]
    assert told(examine(checks)) == [("bad", "problem"), ("sandboxes", "problem")]
    assert told(examine([])) == [("sandboxes", "problem")]
