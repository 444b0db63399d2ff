"""The places that packages come from are asked by their user's own clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.doctor import registries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentix.findings import Finding


@pytest.mark.parametrize("look", [registries.python_index, registries.debian_mirror])
def test_a_registry_that_this_machine_uses_answers(look: Callable[[], Iterable[Finding]]) -> None:
    [finding] = look()
    assert finding.level == "ok", finding


def test_npm_is_asked_where_there_is_one_and_never_missed() -> None:
    [finding] = registries.npm_registry()
    assert finding.level in {"ok", "note"}


def test_a_mirror_or_an_index_that_refuses_is_a_problem_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = "http://me:hunter2@127.0.0.1:1"  # where nobody listens
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", address)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}/simple")
    for look in (registries.python_index, registries.debian_mirror):
        [finding] = look()
        assert finding.level == "problem"
        assert "--offline" in finding.advice
        assert "hunter2" not in finding.text


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ("npm ERR! code ECONNREFUSED\nnpm ERR! http://me:x@host\n", "ECONNREFUSED"),
        ("npm error code E401\nnpm error secret\n", "E401"),
        ("no such thing\n", "it gives no reason"),
    ],
)
def test_of_what_npm_complains_only_the_code_is_told(errors: str, reason: str) -> None:
    assert registries.npm_reason(errors) == reason
