"""Errors say what happened in one line, and survive pickle, as process pools need."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

from agentix import errors
from agentix.errors import RemoteErrorInfo, WorkerExited

INFO = RemoteErrorInfo("ValueError", "no", "Traceback (most recent call last):\n  boom\n")
REMOTE = [
    errors.RemoteCallError,
    errors.CallCancelled,
    errors.CallTimeout,
    errors.RuntimeUnreachable,
    errors.RestrictedUnpickleError,
]


@pytest.mark.parametrize("cls", REMOTE)
def test_remote_errors_keep_everything_through_pickle_and_copy(
    cls: type[errors.RemoteCallError],
) -> None:
    error = cls(INFO, target="m::f")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is cls
        assert (again.error, again.target, str(again)) == (INFO, "m::f", str(error))


def test_the_message_has_the_traceback_from_inside() -> None:
    text = str(errors.RemoteCallError(INFO, target="m::f"))
    assert text.startswith("m::f: ValueError: no\n")
    assert "boom" in text


def test_a_failure_of_the_call_itself_is_not_named_twice() -> None:
    error = errors.CallTimeout(
        RemoteErrorInfo("CallTimeout", "no result within 1 s"), target="m::f"
    )
    assert str(error) == "m::f: no result within 1 s"


@pytest.mark.parametrize(
    ("returncode", "name"), [(-9, "SIGKILL"), (-62, "signal 62"), (3, None), (None, None)]
)
def test_a_dead_worker_names_its_signal(returncode: int | None, name: str | None) -> None:
    error = WorkerExited(INFO, target="m::f", returncode=returncode)
    assert error.signal == name
    again = pickle.loads(pickle.dumps(error))
    assert (again.returncode, again.signal) == (returncode, name)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    source = Path(errors.__file__).read_text()
    defined = re.findall(r"^class (\w+)\((?:\w*Error|\w+Error, .*)\):", source, re.MULTILINE)
    assert sorted(drawn) == sorted(set(defined) - {"AgentixError"})
