"""Cancelled wherever it may be: what was begun is undone, and the cancellation goes on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentix.testing.case import scenario
from agentix.testing.group import Group
from agentix.testing.interruption import WAYS, Interruption, interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from agentix.testing.case import Case

    Round = Callable[[Case, Interruption], Coroutine[Any, Any, None]]

_AT_ONCE = 4
_EACH = 16  # suspensions; of more, some are left out
_SOON = 30.0  # seconds, on a busy machine, to undo what was begun
_NEVER = 1_000_000


class Cancellation(Group):
    """Cancelling at every await of ``create``, and of the end of a session."""

    def test_create_cancelled_at_any_await_leaves_nothing(self, case: Case) -> None:
        _everywhere(case, _create)

    def test_a_session_cancelled_at_any_await_of_its_end_leaves_nothing(self, case: Case) -> None:
        _everywhere(case, _leave)

    @scenario
    async def test_a_timeout_around_create_is_a_timeout(self, case: Case) -> None:
        for seconds in (0.001, 0.05):
            try:
                async with asyncio.timeout(seconds) as bound:
                    sandbox = await case.provider().create(case.config())
            except TimeoutError:
                continue
            assert not bound.expired(), "it swallows the cancellation"
            await sandbox.aclose()
            await case.provider().delete(sandbox.sandbox_id)


async def _create(case: Case, interruption: Interruption) -> None:
    provider = case.provider()
    with _Ending(interruption) as ending:
        sandbox = await interrupted(provider.create(case.config()), interruption)
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
    ending.check()


async def _leave(case: Case, interruption: Interruption) -> None:
    session = case.provider().session(case.config())
    await session.__aenter__()
    with _Ending(interruption) as ending:
        await interrupted(_exit(session), interruption)
    ending.check()


async def _exit(session: Any) -> None:
    await session.__aexit__(None, None, None)


@dataclass(slots=True)
class _Ending:
    """How an interrupted piece of work ended: with the cancellation, in time, or it is at fault."""

    interruption: Interruption
    begun: float = 0.0
    took: float = 0.0
    cancelled: bool = False

    def __enter__(self) -> _Ending:
        self.begun = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.took = time.monotonic() - self.begun
        self.cancelled = kind is asyncio.CancelledError
        return self.cancelled and self.interruption.reached

    def check(self) -> None:
        assert self.cancelled or not self.interruption.reached, f"{self.interruption}: it went on"
        assert self.took < _SOON, f"{self.interruption}: it took {self.took:.1f} s to end"


def _everywhere(case: Case, work: Round) -> None:
    """Do *work* again and again, cancelled in every way at every suspension."""
    rehearsal = Interruption(_NEVER)
    case.run(work(case, rehearsal))
    rounds = list(_rounds(rehearsal.seen))

    async def some(gate: asyncio.Semaphore, each: Interruption) -> None:
        async with gate:
            # A task of its own: a cancellation that is swallowed must not reach the others.
            await asyncio.create_task(work(case, each))

    async def together() -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        ended = await asyncio.gather(*(some(gate, each) for each in rounds), return_exceptions=True)
        if failed := [error for error in ended if error is not None]:
            raise failed[0]

    try:
        case.run(together())
    except AssertionError as error:
        # One after the other, to say which of them it is.
        for number, how in ((each.at, each.how) for each in rounds):
            again = Interruption(number, how)
            try:
                case.run(work(case, again))
            except AssertionError as cause:
                raise AssertionError(f"{again}: {cause}") from error
        raise


def _rounds(suspensions: int) -> Iterator[Interruption]:
    assert suspensions, "it never waits, and so it cannot be cancelled"
    # One more than there were last time: how often it waits may depend on how fast things are.
    numbers = list(range(1, suspensions + 2))
    if len(numbers) > _EACH:
        step = len(numbers) / (_EACH // 2)
        first = numbers[: _EACH // 2]
        numbers = sorted(
            {*first, *(numbers[int(i * step)] for i in range(_EACH // 2)), numbers[-1]}
        )
    for number in numbers:
        for how in WAYS:
            yield Interruption(number, how)
