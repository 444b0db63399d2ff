"""A sandbox's records look to the host's loggers, filters and handlers as its own do."""

from __future__ import annotations

import asyncio
import copy
import io
import logging
import logging.handlers
import pickle
import queue
from typing import Any

import pytest

from agentix.utils.log import replay
from agentix.utils.log.replay import LogReplay
from agentix.wire.records import Log, Output

A_TIME = 1_700_000_000_123_456_789


def full() -> Log:
    return Log(
        A_TIME,
        logging.ERROR,
        "far.module",
        "5 of x",
        template="%d of %s",
        arguments=["5", "x"],
        exception="Traceback (most recent call last):\nValueError: bang",
        stack="Stack (most recent call last):\n  here",
        path="/nix/store/x/far/module.py",
        line=7,
        function="work",
        process=70,
        process_name="MainProcess",
        thread=123,
        thread_name="agentix-0",
        task="Task-1",
        extra={"user": {"id": 7}, "name": "overwrites", "getMessage": "hides", "message": "m"},
    )


def test_a_record_has_all_that_it_had(kept: Any) -> None:
    LogReplay("box").deliver(full())
    [record] = kept.records
    assert record.getMessage() == "5 of x"
    assert (record.msg, record.args) == ("%d of %s", ("5", "x"))
    assert (record.name, record.levelname, record.levelno) == ("far.module", "ERROR", 40)
    assert (record.pathname, record.filename) == ("/nix/store/x/far/module.py", "module.py")
    assert (record.module, record.lineno, record.funcName) == ("module", 7, "work")
    assert (record.process, record.processName) == (70, "MainProcess")
    assert (record.thread, record.threadName, record.taskName) == (123, "agentix-0", "Task-1")
    assert record.created == pytest.approx(A_TIME / 1e9)
    assert record.msecs == 123
    assert record.sandbox_id == "box"
    assert record.user == {"id": 7}
    assert (record.extra_name, record.extra_getMessage) == ("overwrites", "hides")


def test_any_format_and_the_usual_handlers_work(kept: Any) -> None:
    names = [key for key in vars(logging.LogRecord("", 0, "", 0, "", (), None)) if key != "msg"]
    form = " ".join(f"%({name})s" for name in names) + " %(process)d %(thread)d %(message)s"
    replayed = LogReplay("box")
    replayed.deliver(full())
    replayed.deliver(Output(A_TIME, "stderr", "oops"))
    record, output = kept.records
    text = logging.Formatter(form).format(record)
    assert text.endswith(
        "5 of x\nTraceback (most recent call last):\nValueError: bang\n"
        "Stack (most recent call last):\n  here"
    )
    assert logging.Formatter(form).format(output).endswith(" oops")
    prepared = logging.handlers.QueueHandler(queue.Queue()).prepare(copy.copy(record))
    assert "ValueError: bang" in prepared.getMessage()
    assert prepared.getMessage().startswith("5 of x")
    sent = logging.handlers.SocketHandler("", 0).makePickle(record)
    received = logging.makeLogRecord(pickle.loads(sent[4:]))
    assert received.getMessage() == "5 of x"
    assert pickle.loads(pickle.dumps(record)).getMessage() == "5 of x"


def test_output_lines_have_their_loggers_and_levels(kept: Any) -> None:
    replayed = LogReplay("box")
    replayed.deliver(Output(A_TIME, "stdout", "100 % done"))
    replayed.deliver(Output(A_TIME, "stderr", "oops"))
    found = [(r.name, r.levelname, r.getMessage(), r.sandbox_id) for r in kept.records]
    assert found == [
        ("agentix.sandbox.stdout", "INFO", "100 % done", "box"),
        ("agentix.sandbox.stderr", "WARNING", "oops", "box"),
    ]


def test_this_process_decides_what_it_wants(kept: Any) -> None:
    logger = logging.getLogger("far.chosen")
    logger.setLevel(logging.ERROR)
    replayed = LogReplay("box")
    try:
        replayed.deliver(Log(A_TIME, logging.INFO, "far.chosen", "not wanted"))
        replayed.deliver(Log(A_TIME, logging.ERROR, "far.chosen", "wanted"))
        logger.addFilter(lambda record: False)
        replayed.deliver(Log(A_TIME, logging.ERROR, "far.chosen", "filtered"))
        logging.disable(logging.CRITICAL)
        replayed.deliver(Log(A_TIME, logging.ERROR, "far.other", "disabled"))
    finally:
        logging.disable(logging.NOTSET)
        logger.setLevel(logging.NOTSET)
        logger.filters.clear()
    assert kept.messages() == ["wanted"]


def test_records_of_the_program_s_own_factory_are_used(kept: Any) -> None:
    class Own(logging.LogRecord):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.request = "r-1"

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(Own)
    try:
        LogReplay("box").deliver(full())
        LogReplay("box").deliver(Output(A_TIME, "stdout", "100 %s"))
    finally:
        logging.setLogRecordFactory(before)
    record, output = kept.records
    assert (record.request, record.getMessage(), record.lineno) == ("r-1", "5 of x", 7)
    assert output.getMessage() == "100 %s"


@pytest.mark.parametrize("raised", [asyncio.CancelledError, GeneratorExit, pytest.fail.Exception])
def test_what_is_no_ordinary_exception_ends_nothing_either(
    kept: Any, raised: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise raised("no")

    handler = Raising()
    replayed = LogReplay("box")
    logging.getLogger().addHandler(handler)
    try:
        replayed.deliver(Output(A_TIME, "stdout", "one"))
        replayed.deliver(Output(A_TIME, "stdout", "two"))
    finally:
        logging.getLogger().removeHandler(handler)
    assert kept.messages() == ["one", "two"]
    assert capsys.readouterr().err.count("A logging handler raised") == 1


HOSTILE = "a\x1b[2Jb\r\x00\x7f\x9b\u202e\u2028\udc80\U000e0041c"


def test_hostile_text_has_no_control_characters_left(kept: Any) -> None:
    entry = Log(
        A_TIME,
        logging.ERROR,
        HOSTILE,
        HOSTILE + "\n\tnext",
        template=HOSTILE,
        arguments=[HOSTILE],
        exception=HOSTILE,
        stack=HOSTILE,
        path=HOSTILE,
        function=HOSTILE,
        process_name=HOSTILE,
        thread_name=HOSTILE,
        task=HOSTILE,
        extra={HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]},
    )
    LogReplay("box").deliver(entry)
    LogReplay("box").deliver(Output(A_TIME, "stdout", HOSTILE + "\nforged"))
    record, output = kept.records
    shown = repr(vars(record)) + record.getMessage() + output.getMessage()
    assert not [c for c in shown if c in HOSTILE and not c.isprintable() and c not in "\n\t"]
    assert record.getMessage().endswith("c\n\tnext")
    assert "\n" not in output.getMessage()
    shown.encode()


def test_text_of_people_is_left_as_it_is(kept: Any) -> None:
    texts = ["naïve\xa0café", "日本語", "👩\u200d💻 ok", "مرحبا", "tab\tand\nline"]
    for text in texts:
        LogReplay("box").deliver(Log(A_TIME, logging.INFO, "far", text))
    assert kept.messages() == texts


def test_a_sandbox_cannot_make_any_number_of_loggers(
    kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "_made", {})
    monkeypatch.setattr(replay, "_MOST_LOGGERS", 50)
    known = logging.Logger.manager.loggerDict
    replayed = LogReplay("box")
    before = len(known)
    logging.getLogger("many").setLevel(logging.INFO)
    for number in range(500):
        replayed.deliver(Log(A_TIME, logging.INFO, f"many.n{number}", "x"))
        replayed.deliver(Log(A_TIME, logging.DEBUG, f"many.n{number}", "too low"))
    replayed.deliver(Log(A_TIME, logging.INFO, ".".join("x" * 500), "deep"))
    replayed.deliver(Log(A_TIME, logging.INFO, "x" * 1000, "long"))
    assert len(known) - before < 60
    assert len(kept.records) == 502
    assert kept.records[499].name == "many.n499", "its name is still its own"
    assert logging.getLogger("many").getEffectiveLevel() == logging.INFO


@pytest.mark.parametrize("name", ["", "root", ".", "..a", "a..b", "agentix.sandbox.stdout"])
def test_odd_names_are_names(name: str, kept: Any) -> None:
    LogReplay("box").deliver(Log(A_TIME, logging.INFO, name, "x"))
    assert kept.messages() == ["x"]


def test_a_record_that_runs_in_a_circle_is_stopped(kept: Any) -> None:
    replayed = LogReplay("box")
    entry = Log(A_TIME, logging.INFO, "far", "around")
    for _ in range(10):
        replayed.deliver(entry)
        own = vars(kept.records[-1])
        fields = {key: own[key] for key in own if "sandbox_id" in key}
        entry = Log(A_TIME, logging.INFO, "far", "around", extra=fields)
    assert len(kept.records) == 3


def test_a_time_that_is_none_is_still_a_record(kept: Any) -> None:
    LogReplay("box").deliver(Log((1 << 64) - 1, logging.INFO, "far", "late"))
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(message)s %(msecs)d"))
    assert handler.format(kept.records[0]).startswith("late")


def test_a_handler_s_error_is_shown_once_and_stops_nothing(
    kept: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Bad(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ValueError("bad handler")

    logger = logging.getLogger("far.bad")
    logger.addHandler(bad := Bad())
    replayed = LogReplay("box")
    try:
        for _ in range(3):
            replayed.deliver(Log(A_TIME, logging.INFO, "far.bad", "x"))
        replayed.deliver(Log(A_TIME, logging.INFO, "far", "y"))
    finally:
        logger.removeHandler(bad)
    assert capsys.readouterr().err.count("ValueError: bad handler") == 1
    assert kept.messages("far") == ["y"]


def test_loggers_remember_no_levels_that_a_sandbox_makes_up(kept: Any) -> None:
    replay = LogReplay("box")
    logger = logging.getLogger("far.levels")
    for level in range(200):
        replay.deliver(Log(A_TIME, 1000 + level, logger.name, "here"))
    assert len(kept.records) == 200
    assert len(logger._cache) < 60  # type: ignore[attr-defined]
    logging.disable(2000)
    try:
        replay.deliver(Log(A_TIME, 1500, logger.name, "not"))
    finally:
        logging.disable(logging.NOTSET)
    assert len(kept.records) == 200
