"""The sandboxes of all installed providers together: a broken one stops none of the others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from agentix.errors import AgentixError
from agentix.provider.listing import ListedSandbox, Pruned, in_order
from agentix.provider.registry import one_line, providers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from agentix.provider.base import SandboxProvider

T = TypeVar("T")

_LIST_BOUND = 60.0  # seconds that one provider may take to say what there is
_PRUNE_BOUND = 600.0  # and to remove it


@dataclass(frozen=True, slots=True)
class Survey:
    """What there is, and why some providers could not say, by name, each on one line."""

    sandboxes: list[ListedSandbox]
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Clearance:
    """What was removed and what was not, and why some providers could not be asked at all."""

    pruned: Pruned
    problems: dict[str, str] = field(default_factory=dict)


async def survey() -> Survey:
    """List the sandboxes of every installed provider."""

    async def ask(provider: SandboxProvider) -> list[ListedSandbox]:
        return _sound(await provider.list())

    answers, problems = await _ask(ask, _LIST_BOUND)
    return Survey(in_order(each for answer in answers for each in answer), problems)


async def clear(*, running: bool, dry_run: bool) -> Clearance:
    """Prune with every installed provider; see :meth:`SandboxProvider.prune`."""

    async def ask(provider: SandboxProvider) -> Pruned:
        pruned = await provider.prune(running=running, dry_run=dry_run)
        _sound([*pruned.removed, *(each for each, _ in pruned.failed)])
        return pruned

    answers, problems = await _ask(ask, _PRUNE_BOUND)
    removed = in_order(each for answer in answers for each in answer.removed)
    failed = tuple(each for answer in answers for each in answer.failed)
    return Clearance(Pruned(tuple(removed), failed), problems)


def _sound(found: Iterable[ListedSandbox]) -> list[ListedSandbox]:
    """Return what a provider lists; TypeError where that would fail all the others later."""
    listed = list(found)
    for each in listed:
        if not isinstance(each, ListedSandbox):
            raise TypeError(f"it lists {each!r}, which is no ListedSandbox")
        if each.created is not None and each.created.tzinfo is None:
            raise TypeError(f"it lists {each.sandbox_id}, whose time of creation has no time zone")
    return listed


async def _ask(
    question: Callable[[SandboxProvider], Awaitable[T]], within: float
) -> tuple[list[T], dict[str, str]]:
    """Ask every provider at once; return the answers, and the reason of those without one."""
    problems: dict[str, str] = {}

    async def ask(name: str, cls: type[SandboxProvider]) -> list[T]:
        try:
            async with asyncio.timeout(within):
                return [await question(cls())]
        except TimeoutError:
            problems[name] = f"it did not answer within {within:g} s"
        except AgentixError as error:
            problems[name] = str(error)
        except Exception as error:  # a plugin's code: whatever it raises is its own failure
            problems[name] = one_line(error)
        return []

    found = providers().installed()
    for each in found:
        if each.error is not None:
            source = each.distribution or "the plugin"
            problems[each.name] = f"{source} does not load: {one_line(each.error)}"
    usable = [(each.name, each.provider) for each in found if each.provider is not None]
    answers = await asyncio.gather(*(ask(name, provider) for name, provider in usable))
    return [each for answer in answers for each in answer], dict(sorted(problems.items()))
