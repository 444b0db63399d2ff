"""The suite on each of the providers, for a pytest of its own: see tests/conformance."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from agentix.testing import (
    Cancellation,
    Cleanup,
    Concurrency,
    Environment,
    Failures,
    Isolation,
    Lifecycle,
    ProviderConformance,
    Resources,
    Subject,
)
from agentix.testing.subject import EVERYTHING
from bad_providers import bad, plain

if TYPE_CHECKING:
    from bad_providers.plain import PlainProvider

BUNDLE = "AGENTIX_CONFORMANCE_BUNDLE"
GOOD = Subject(
    provider=plain.PlainProvider,
    image=plain.IMAGE,
    bundle=os.environ.get(BUNDLE, ""),
    environment=plain.ENVIRONMENT,
    adds=frozenset({plain.OWN}),
    user=(os.getuid(), os.getgid()),
    folder="/",
    environment_program=("/usr/bin/env",),
    isolates=frozenset(),
    socket_folder=None,
    lists=False,
    impatient=plain.impatient,
    many=4,
    settles=1,
)
pytestmark = pytest.mark.filterwarnings("ignore:this provider isolates nothing")


def given(kind: type[PlainProvider], **facts: Any) -> Any:
    """Make the fixture ``subject`` of a class that tests *kind*."""

    def subject(cls: object) -> Subject:
        return replace(GOOD, provider=kind, impatient=partial(plain.impatient, kind=kind), **facts)

    method: Any = classmethod(subject)
    return pytest.fixture(scope="class", name="subject")(method)


class TestGood(ProviderConformance):
    subject = given(plain.PlainProvider)


class TestHidesTheFirstError(Lifecycle):
    subject = given(bad.HidesTheFirstError)


class TestKnowsOnlyItsOwn(Lifecycle):
    subject = given(bad.KnowsOnlyItsOwn)


class TestDeletesOnce(Lifecycle):
    subject = given(bad.DeletesOnce)


class TestLetsTheHostsEnvironmentThrough(Environment):
    subject = given(bad.LetsTheHostsEnvironmentThrough)


class TestDropsWhatWasAskedFor(Environment):
    subject = given(bad.DropsWhatWasAskedFor)


class TestIgnoresLimits(Resources):
    subject = given(bad.IgnoresLimits)


class TestOnlySaysThatItLimits(Resources):
    subject = given(
        bad.IgnoresLimits,
        limits=frozenset({"memory"}),  # cores would be too few anyway on a busy machine
        limited_processes=lambda _: bad.IgnoresLimits(),
    )


class TestSaysNothing(Isolation):
    subject = given(bad.SaysNothing)


class TestOnlySaysThatItIsolates(Isolation):
    subject = given(
        plain.PlainProvider,
        isolates=EVERYTHING,
        without_network=plain.PlainProvider,
        socket_folder="/tmp",
    )


class TestSaysTooMuch(Failures):
    subject = given(bad.SaysTooMuch)


class TestLeaksAFolder(Failures):
    subject = given(bad.LeaksAFolder)


class TestLeaksOnCancellation(Cancellation):
    subject = given(bad.LeaksOnCancellation)


class TestSwallowsCancellation(Cancellation):
    subject = given(bad.SwallowsCancellation)


class TestMindsOneAtATime(Concurrency):
    subject = given(bad.MindsOneAtATime)


class TestKillsTheFirstOnly(Cleanup):
    subject = given(bad.KillsTheFirstOnly)


class TestLeaksADescriptor(Cleanup):
    subject = given(bad.LeaksADescriptor)
