"""Builds: their arguments, what they give, and what is told of one that fails."""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentix import nix
from agentix.errors import NixError
from agentix.nix.log import BuildLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Told:
    """Progress, and a step of it, that writes down how steps ended."""

    def __init__(self, outcomes: list[str]) -> None:
        self.outcome = outcomes.append

    @contextlib.contextmanager
    def step(self, title: str, *, total: int | None = None, unit: str = "items") -> Iterator[Told]:
        yield self

    def advance(self, amount: int = 1) -> None:
        pass


@pytest.mark.nix
def test_a_failed_step_is_named_with_its_status_and_its_last_words(
    expression: Callable[..., Path],
) -> None:
    inner = expression(
        r"""
        for i in 1 2 3; do echo "line $i"; done
        printf '\033[31mthe reason\033[0m\n' >&2; exit 7
        """,
        "culprit",
    )
    outer = expression("echo > $out", "victim", inner=str(inner))
    with pytest.raises(NixError) as caught:
        nix.build(outer)
    assert str(caught.value) == "building culprit failed with exit status 7: the reason"
    assert caught.value.log.splitlines() == ["line 1", "line 2", "line 3", "the reason"]
    assert caught.value.returncode not in (0, None)


@pytest.mark.nix
def test_of_steps_that_run_at_once_the_failed_one_is_quoted(
    expression: Callable[..., Path],
) -> None:
    steady = expression(
        "i=0; while [ $i -lt 300 ]; do echo steady $i; i=$((i+1)); done; echo > $out", "steady"
    )
    broken = expression("echo broken; exit 1", "broken")
    outer = expression("echo > $out", "outer", steady=str(steady), broken=str(broken))
    with pytest.raises(NixError, match=r"building broken failed with exit status 1: broken"):
        nix.build(outer)


@pytest.mark.nix
def test_an_expression_that_nix_refuses_gives_its_reason_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.nix"
    file.write_text('throw "the lock names\\n the toolchain x"')
    with pytest.raises(NixError, match="the lock names the toolchain x") as caught:
        nix.build(file)
    assert "\n" not in str(caught.value)


@pytest.mark.nix
def test_arguments_reach_the_expression_as_strings(tmp_path: Path, busybox: str) -> None:
    file = tmp_path / "echo.nix"
    file.write_text(
        """{ word, busybox }: derivation { name = "echo"; system = builtins.currentSystem;
        builder = "${builtins.storePath busybox}/bin/busybox"; inherit word;
        args = ["sh" "-c" "echo -n $word > $out"]; }"""
    )
    word = f"two words {uuid.uuid4()}"
    assert nix.build(file, {"word": word, "busybox": busybox}).read_text() == word


@pytest.mark.nix
def test_building_again_accepts_what_is_equal_and_names_what_is_not(
    expression: Callable[..., Path],
) -> None:
    steady = expression("echo always the same > $out", "steady")
    nix.build(steady)
    assert nix.rebuild(steady) == nix.Rebuilt(1, ())
    moody = expression("$busybox cat /proc/sys/kernel/random/uuid > $out", "moody")
    outer = expression("$busybox true $moody; echo > $out", "outer", moody=str(moody))
    nix.build(outer)
    rebuilt = nix.rebuild(outer)
    assert rebuilt.steps == 2
    ((first, second),) = rebuilt.unlike
    assert (first.name[33:], second.name) == ("moody", f"{first.name}.check")
    assert first.read_text() != second.read_text()


@pytest.mark.nix
def test_a_step_that_fails_the_second_time_is_an_error_and_leaves_nothing(
    expression: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A machine on which builds see a file of the host: what only happens there fails elsewhere.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    flag = tmp_path / "flag"
    script = f"[ ! -e {flag} ] || {{ echo not again; exit 3; }}; echo > $out"
    once = expression(script, "once")
    found = replace(nix.find(), sandbox=False)
    nix.build(once, nix=found)
    flag.touch()
    with pytest.raises(NixError, match="building once failed with exit status 3: not again"):
        nix.rebuild(once, nix=found)
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.nix
def test_what_our_builders_warn_of_is_told_and_what_backends_print_is_not(
    expression: Callable[..., Path],
) -> None:
    outcomes: list[str] = []
    warns = "for n in 1 2 3 4 5 6 7; do echo agentix warning: $n; done"
    script = f"echo warning: setup.py is old; {warns}; echo > $out"
    nix.build(expression(script, "warns"), progress=Told(outcomes))
    said = [text.split() for text in outcomes if text.startswith("warning: ")]
    assert [words[1] for words in said] == ["1", "2", "3", "4", "5", "2"]
    assert said[-1][2:] == ["more", "of", "this", "kind"]


def test_the_log_survives_what_it_does_not_know() -> None:
    lines = [
        "warning: something old",
        "@nix no json",
        "@nix []",
        '@nix {"action":"start"}',
        '@nix {"action":"result","type":101,"id":77,"fields":["of nobody"]}',
        '@nix {"action":"brandnew","id":[1]}',
        json.dumps(
            {"action": "start", "type": 105, "id": 1, "fields": [f"/nix/store/{'a' * 32}-x.drv"]}
        ),
        json.dumps({"action": "result", "type": 101, "id": 1, "fields": ["its words"]}),
        json.dumps({"action": "stop", "id": 1}),
    ]
    built = []
    log = BuildLog(on_built=lambda: built.append(1))
    for line in lines:
        log.feed(line if line.startswith(("@nix", "warning")) else f"@nix {line}")
    newer = (
        f"error: Cannot build '/nix/store/{'a' * 32}-x.drv'.\n"
        "       Reason: builder failed with exit code 9.\n"
    )
    log.feed("@nix " + json.dumps({"action": "msg", "level": 0, "msg": newer}))
    waiting = f"error: Cannot build '/nix/store/{'b' * 32}-y.drv'.\nReason: 1 dependency failed."
    log.feed("@nix " + json.dumps({"action": "msg", "level": 0, "msg": waiting}))
    failure = log.failure()
    assert (failure.step, failure.status, failure.lines) == ("x", 9, ["its words"])
    assert len(built) == 1
