"""A generator function's call: its items one after the other, a few of them ahead.

While the caller uses the items of one answer, the next is asked for already. Asking tells that
those before have arrived, so nothing gets lost or comes twice when a connection breaks. The sandbox
makes only a few items more than were asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentix.wire.errors import MalformedError
from agentix.wire.messages import Failure, Item, Pending, Value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentix.client.call import Caller, Course
    from agentix.client.connection import Answer
    from agentix.client.deadlines import Deadlines
    from agentix.client.job import Job


async def items(
    owner: object,
    caller: Caller,
    course: Course,
    job: Job,
    deadlines: Deadlines,
) -> AsyncGenerator[Any, None]:
    """Yield what the generator of a call yields; raise what it raises.

    The *deadlines* are those of each item. Leaving early ends the generator in the sandbox. The
    *owner* is kept from being collected meanwhile, with which the caller would be closed.
    """
    ended = False
    coming = caller.hold(_begin(caller, course))
    try:
        number = 0
        while not ended:
            try:
                with deadlines():
                    answer = await coming
            except TimeoutError:
                raise job.timed_out(f"no item within {deadlines.seconds:g} s") from None
            sections = answer.sections
            ended = not isinstance(sections[-1].message, Item)
            if not ended:
                number += len(sections)
                coming = caller.hold(_more(caller, course, number))
            await caller.reached(answer.mark)
            for section in sections:
                if isinstance(section.message, Value):
                    return
                yield await job.result(section)
    except MalformedError as exc:
        job.unreadable(exc)
    finally:
        coming.cancel()
        if not ended:
            caller.give_up(course)


async def _begin(caller: Caller, course: Course) -> Answer:
    answer = await caller.begin(course)
    if isinstance(answer.sections[0].message, Pending):
        return await _more(caller, course, 0)
    return _checked(answer, 0)


async def _more(caller: Caller, course: Course, after: int) -> Answer:
    return _checked(await caller.items(course, after), after)


def _checked(answer: Answer, after: int) -> Answer:
    """Make sure that an answer holds items in their order, and perhaps the end behind them."""
    *items, last = (section.message for section in answer.sections)
    if isinstance(last, Item):
        items.append(last)
    elif isinstance(last, Value):
        if last.segments != (0,):
            raise MalformedError("a stream ends with a value")
    elif not isinstance(last, Failure):
        raise MalformedError("a stream neither goes on nor ends")
    for number, item in enumerate(items, after + 1):
        if not isinstance(item, Item) or item.number != number:
            raise MalformedError("the items of a stream are out of order")
    return answer
