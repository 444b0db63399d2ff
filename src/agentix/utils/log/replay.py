"""Give what a sandbox logged and printed to this process's loggers, as if it had happened here.

A record keeps its logger's name, level, message, arguments' text, exception text, extra fields and
origin, and has ``sandbox_id`` besides. A line of standard output is an INFO of the logger
``agentix.sandbox.stdout``, one of standard error a WARNING of ``agentix.sandbox.stderr``; what the
runtime itself has to say comes from ``agentix.sandbox``. Levels, filters and handlers are this
process's.

The sandbox may be hostile: no text of it holds control characters, no field of it takes the place
of one that handlers rely on, and the loggers it can bring into being are few.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import time
import traceback
from typing import Any, Final

from agentix.wire.records import Log, Output, Plain

NOTICES: Final = "agentix.sandbox"

_CIRCLING: Final = "extra_extra_sandbox_id"
"""A field of records that have been replayed again and again: in sandboxes that follow each other,
or one that follows itself."""

_STREAMS: Final = {
    "stdout": (logging.INFO, "agentix.sandbox.stdout"),
    "stderr": (logging.WARNING, "agentix.sandbox.stderr"),
}
_MOST_LOGGERS: Final = 2000
"""Loggers of the host live as long as it does, so a sandbox may not make any number of them."""

_LONGEST_NAME: Final = 200
_DEEPEST: Final = 20

# All but letters, marks and symbols: control characters, those that turn the direction of text
# around, lone surrogates, invisible tags.
_CONTROL: Final = (
    r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_TEXT: Final = re.compile(f"[\0-\x08\x0b-\x1f{_CONTROL}]")
_IN_LINE: Final = re.compile(f"[\0-\x1f{_CONTROL}]")

_STARTED: Final = time.time()
_made: dict[str, logging.Logger] = {}


class SandboxRecord(logging.LogRecord):
    """A record whose arguments are known only as text, and whose message is made already."""

    def getMessage(self) -> str:  # noqa: N802 - logging's name
        """Return the message that the sandbox made of the template and its arguments."""
        own: tuple[object, object, str] | None = vars(self).get("_told")
        if own is not None and self.msg is own[0] and self.args is own[1]:
            return own[2]
        return super().getMessage()  # a handler has put other things in their place


class LogReplay:
    """Replays the records of one sandbox."""

    def __init__(self, sandbox: str) -> None:
        self._sandbox = sandbox
        self._complained = False

    def deliver(self, entry: Log | Output) -> None:
        """Give one record to whoever here wants it; what a handler raises harms nobody else."""
        try:
            if isinstance(entry, Output):
                level, name = _STREAMS[entry.stream]
                logger = logging.getLogger(name)
                if logger.isEnabledFor(level):
                    logger.handle(self._output(entry, level, name))
            elif _CIRCLING not in entry.extra:
                name = line(entry.logger) or "root"
                logger = _logger(name)
                if _wants(logger, entry.level):
                    logger.handle(self._record(entry, name))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # test runners' own, or a cancellation that is nobody's here
            self._complain()

    def notice(self, text: str) -> None:
        """Warn of something about the records themselves."""
        self.deliver(Log(time.time_ns(), logging.WARNING, NOTICES, text, process=os.getpid()))

    def _complain(self) -> None:
        if not self._complained and logging.raiseExceptions and sys.stderr is not None:
            self._complained = True
            try:
                sys.stderr.write(
                    "--- A logging handler raised at a record of a sandbox (said once) ---\n"
                )
                traceback.print_exc()
            except Exception:  # noqa: S110 - nowhere is left to say it
                pass

    def _output(self, entry: Output, level: int, name: str) -> logging.LogRecord:
        return self._make(entry.time, name, level, line(entry.line), (), {})

    def _record(self, entry: Log, name: str) -> logging.LogRecord:
        message = text(entry.message)
        arguments = tuple(map(text, entry.arguments)) if entry.arguments else ()
        path, file, module = _place(entry.path)
        function, process, thread, task = (
            entry.function,
            entry.process_name,
            entry.thread_name,
            entry.task,
        )
        together = f"{function}{process}{thread}{task}"
        if not (together.isascii() and together.isprintable()):
            function, process, thread, task = map(line, (function, process, thread, task))
        fields: dict[str, Any] = {
            "pathname": path,
            "filename": file,
            "module": module,
            "lineno": entry.line,
            "funcName": function,
            "process": entry.process,
            "processName": process,
            "thread": entry.thread,
            "threadName": thread,
            "taskName": task or None,
            "exc_text": text(entry.exception) if entry.exception else None,
            "stack_info": text(entry.stack) if entry.stack else None,
        }
        if arguments:
            template = text(entry.template)
            fields["_told"] = template, arguments, message
            message = template
        record = self._make(entry.time, name, entry.level, message, arguments, fields)
        if entry.extra:
            own = vars(record)
            for key, value in entry.extra.items():
                key = line(key)
                while key in own or hasattr(logging.LogRecord, key):
                    key = f"extra_{key}"
                own[key] = _plain(value)
        return record

    def _make(
        self,
        moment: int,
        name: str,
        level: int,
        message: str,
        arguments: tuple[str, ...],
        fields: dict[str, Any],
    ) -> logging.LogRecord:
        make = logging.getLogRecordFactory()
        record: logging.LogRecord
        if make is logging.LogRecord:
            record = SandboxRecord.__new__(SandboxRecord)
            record.__dict__ = _BLANK.copy()
        else:  # whose records have what this program's handlers want of them
            record = make(name, level, "", 0, message, arguments, None)
            if told := fields.pop("_told", None):
                message, arguments = told[2], ()
        created = moment / 1e9
        fields["name"] = name
        fields["msg"] = message
        fields["args"] = arguments
        fields["levelno"] = level
        fields["levelname"] = logging.getLevelName(level)
        fields["created"] = created
        fields["msecs"] = moment // 1_000_000 % 1000 + 0.0
        fields["relativeCreated"] = (created - _STARTED) * 1000
        fields["sandbox_id"] = self._sandbox
        vars(record).update(fields)
        return record


# Numbers and texts also where nothing is known: formats may ask for %(process)d.
_BLANK: Final = {
    **vars(logging.LogRecord("", 0, "", 0, "", None, None)),
    "thread": 0,
    "threadName": "",
    "process": 0,
    "processName": "",
    "taskName": None,
}


def text(value: str) -> str:
    r"""Escape control characters, but for ``\n`` and ``\t``."""
    return value if value.isascii() and value.isprintable() else _IN_TEXT.sub(_escaped, value)


def line(value: str) -> str:
    """Escape all control characters."""
    return value if value.isascii() and value.isprintable() else _IN_LINE.sub(_escaped, value)


@functools.lru_cache(256)
def _place(path: str) -> tuple[str, str, str]:
    """Give a source file's path, its name and the name without its suffix."""
    path = line(path)
    file = path.rpartition("/")[2]
    return path, file, file.rpartition(".")[0] or file


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _plain(value: Plain) -> Plain:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {text(key): _plain(item) for key, item in value.items()}
    return value


def _wants(logger: logging.Logger, level: int) -> bool:
    """Tell whether a logger takes records of a level.

    It remembers what it was asked, for as long as it lives: only levels that there are.
    """
    if level <= logging.CRITICAL:
        return logger.isEnabledFor(level)
    return not logger.disabled and logger.manager.disable < level >= logger.getEffectiveLevel()


def _logger(name: str) -> logging.Logger:
    """Return the logger of this name or, where there are too many, the nearest one above it."""
    if name == "root":
        return logging.getLogger()
    known = logging.Logger.manager.loggerDict
    if isinstance(logger := known.get(name), logging.Logger):
        return logger
    if len(_made) < _MOST_LOGGERS and len(name) <= _LONGEST_NAME and name.count(".") < _DEEPEST:
        logger = _made[name] = logging.getLogger(name)
        return logger
    while name := name.rpartition(".")[0]:
        if isinstance(logger := known.get(name), logging.Logger):
            return logger
    return logging.getLogger()
