"""Context that follows calls, as one process sees it."""

from __future__ import annotations

import contextvars

import pytest

from agentix.utils import context


def run(function: object) -> object:
    """Run in a context of one's own."""
    return contextvars.Context().run(function)  # type: ignore[arg-type]


def test_a_variable_is_one_for_its_name() -> None:
    one = context.var("test.one", default=1)
    assert context.var("test.one", default=1) is one
    assert one.get() == 1
    with pytest.raises(ValueError, match="another default"):
        context.var("test.one", default=2)
    bare: contextvars.ContextVar[str] = context.var("test.bare")
    with pytest.raises(LookupError):
        bare.get()


def test_nothing_is_carried_where_nothing_is_set() -> None:
    context.var("test.unset", default=1)
    assert run(context.capture) is None


def test_what_is_set_is_carried_and_stays_in_its_context() -> None:
    tenant = context.var("test.tenant", default="nobody")

    def host() -> object:
        tenant.set("acme")
        context.set("experiment", 7)
        return context.capture()

    carried = run(host)
    assert isinstance(carried, dict)

    def sandbox() -> tuple[object, object]:
        context.apply(carried)
        return tenant.get(), context.get("experiment")

    assert run(sandbox) == ("acme", 7)
    assert tenant.get() == "nobody"
    assert context.get("experiment") is None


def test_a_variable_made_later_finds_what_the_call_brought_for_it() -> None:
    carried = {"baggage": {}, "variables": {"test.late": "here"}}

    def sandbox() -> object:
        context.apply(carried)
        return context.var("test.late", default="nothing").get()

    assert run(sandbox) == "here"
    assert context.var("test.late", default="nothing").get() == "nothing"


def test_the_baggage_is_a_mapping_of_its_own() -> None:
    def scoped() -> None:
        context.set("a", 1)
        with context.scope({"b": 2}, c=3):
            assert context.snapshot() == {"a": 1, "b": 2, "c": 3}
            context.snapshot()["a"] = 9
        assert context.snapshot() == {"a": 1}
        assert context.get("b", "gone") == "gone"
        context.clear()
        assert context.snapshot() == {}

    run(scoped)
