"""configure_logging: three variables, one handler."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from agentix.utils.log import configure_logging
from agentix.utils.log.replay import LogReplay
from agentix.wire.records import Log, Output

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("LEVEL", "FORMAT", "CONTEXT"):
        monkeypatch.delenv(f"AGENTIX_LOG_{name}", raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_says_when_how_bad_where_who_and_what() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("my.module").info("hello")
    LogReplay("docker-1").deliver(Log(1, logging.ERROR, "far", "bad", exception="Oops: x"))
    LogReplay("docker-1").deliver(Output(1, "stdout", "printed"))
    logging.getLogger("my.module").debug("not that much")
    lines = stream.getvalue().splitlines()
    assert [line.split(" ", 2)[2] for line in lines if line != "Oops: x"] == [
        "INFO     [host] my.module: hello",
        "ERROR    [docker-1] far: bad",
        "INFO     [docker-1] agentix.sandbox.stdout: printed",
    ]
    assert "Oops: x" in lines


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_LOG_LEVEL", "debug")
    monkeypatch.setenv("AGENTIX_LOG_FORMAT", "%(context)s|%(levelname)s|%(message)s")
    monkeypatch.setenv("AGENTIX_LOG_CONTEXT", "{hostname}/{pid}/{id}")
    stream = io.StringIO()
    configure_logging("mine", default_level="ERROR", stream=stream)
    logging.getLogger("my").debug("100%%")
    context, level, message = stream.getvalue().strip().split("|")
    hostname, pid, own = context.split("/")
    assert (hostname, pid) == (os.uname().nodename, str(os.getpid()))
    assert len(own) == 8
    assert (level, message) == ("DEBUG", "100%%")


def test_calling_it_again_replaces_its_handler_and_no_other() -> None:
    root = logging.getLogger()
    other = logging.NullHandler()
    root.addHandler(other)
    count = len(root.handlers)
    first, second = io.StringIO(), io.StringIO()
    configure_logging(stream=first)
    configure_logging(stream=second, default_level=logging.WARNING)
    assert len(root.handlers) == count + 1
    assert other in root.handlers
    logging.warning("x")
    assert (first.getvalue(), second.getvalue().count("x")) == ("", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEVEL", "loud"),
        ("LEVEL", "-5"),
        ("FORMAT", "{message}"),
        ("FORMAT", "%(nothing)s %(message)s"),
        ("FORMAT", "%(message"),
        ("CONTEXT", "{secret}"),
        ("CONTEXT", "{pid.real}{"),
        ("CONTEXT", "{}"),
    ],
)
def test_what_cannot_be_used_is_an_error_of_one_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"AGENTIX_LOG_{name}", value)
    handlers = logging.getLogger().handlers[:]
    with pytest.raises(ValueError, match="log") as caught:
        configure_logging()
    assert "\n" not in str(caught.value)
    assert repr(value) in str(caught.value)
    assert logging.getLogger().handlers == handlers


def test_it_is_cheap_to_import_and_importing_changes_nothing() -> None:
    code = (
        "import sys, logging, agentix.utils.log\n"
        "assert not logging.getLogger().handlers\n"
        "heavy = {'aiohttp', 'pydantic', 'socketio'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
