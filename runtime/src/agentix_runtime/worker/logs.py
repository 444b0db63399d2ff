"""What is logged in the worker goes to the server at once, before the line after it runs.

A handler of the root logger does it. It takes no lock, so it harms neither a fork nor whoever logs
while a record is on its way. A forked child cannot speak on the worker's channel; there, and once
the channel is closed, records are written to standard error as text.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from agentix.utils.log.levels import level_of
from agentix.wire import messages, records
from agentix.wire.fields import shorten
from agentix.wire.messages import Record
from agentix.wire.protocol import MAX_INLINE, MAX_RECORD
from agentix.wire.records import MAX_NAME, Log, as_plain
from agentix_runtime.parcel import Parcel
from agentix_runtime.worker import forks, jobs
from agentix_runtime.worker.interrupts import shielded

if TYPE_CHECKING:
    from agentix_runtime.channel import Channel

LOGGER: Final = "agentix.sandbox"

_PATIENCE: Final = 1.0
"""How long a function that logs waits for a server that does not keep up, before it goes on."""

_DEEPEST: Final = 4
"""Taking a record apart runs its arguments' code, which may log, and so on."""

_MOST_HEADS: Final = 1024
_MOST_ARGUMENTS: Final = 100
_MOST_EXTRA: Final = 1000
_LONG: Final = 4 << 20
"""Bytes of a record whose texts are left as they are."""
_CUT: Final = 64 << 10

# What a record has of its own, in this and in other versions of Python; the rest is extra.
_FRESH: Final = vars(logging.LogRecord("", 0, "", 0, "", None, None)).keys()
_FEWEST: Final = len(_FRESH)
_OWN: Final = frozenset(_FRESH | {"asctime", "message", "taskName"})


class Sender:
    """Sends records on the worker's channel; ``closed`` once that cannot be done any more."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._heads: dict[tuple[str, int], bytes] = {}
        self._dropped = 0

    @property
    def closed(self) -> bool:
        """Whether nobody hears."""
        return forks.in_child() or self._channel.closed

    def missed(self) -> None:
        """Count a record that could not even be made."""
        self._dropped += 1

    def __call__(self, record: bytes) -> None:
        """Send one record, or count it as dropped."""
        if not self.closed:
            shielded(self.take, record)

    def take(self, record: bytes) -> None:
        """Do so where no exception from nowhere is to be feared."""
        if len(record) > MAX_RECORD:
            record = _note(f"a record of {len(record):,} bytes was dropped: it is too long")
        # A server that stands still holds a function up once, not at each of its lines.
        patience = 0.0 if self._dropped else _PATIENCE
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            text = f"{dropped:,} records were dropped here: there were too many at a time"
            if not self._send(_note(text), patience):
                self._dropped += dropped + 1
                return
        if not self._send(record, patience):
            self._dropped += 1

    def _send(self, record: bytes, patience: float) -> bool:
        size = len(record)
        call = jobs.current.get()
        if (head := self._heads.get((call, size))) is None:
            head = messages.dump(Record(call, (size,)))
            if len(self._heads) > _MOST_HEADS:
                self._heads.clear()
            self._heads[call, size] = head
        payload = record if size <= MAX_INLINE else Parcel.of([record])
        return self._channel.send_now(head, payload, patience)


def install(send: Sender) -> None:
    """Have all that is logged, and traced, in this process sent.

    ``AGENTIX_LOG_LEVEL`` may narrow what is logged; else all is sent, and the host chooses.
    """
    root = logging.getLogger()
    _stay(root, _Handler(send))
    asked = os.environ.get("AGENTIX_LOG_LEVEL", "")
    level = level_of(asked)
    root.setLevel(logging.NOTSET if level is None else level)
    records.sink = send
    if asked and level is None:
        send(
            _note(f"AGENTIX_LOG_LEVEL is {asked!r} in the sandbox, which is no level: all is sent")
        )


def _stay(root: logging.Logger, handler: logging.Handler) -> None:
    """Add a handler that comes back.

    basicConfig(force=True) and dictConfig clear the root logger for handlers of their own, which
    they add only if there is no other.
    """
    loop = asyncio.get_running_loop()
    add, remove = root.addHandler, root.removeHandler

    def add_both(hdlr: logging.Handler) -> None:
        add(hdlr)
        add(handler)  # which does nothing if it is there

    def remove_for_now(hdlr: logging.Handler) -> None:
        remove(hdlr)
        if hdlr is handler and not forks.in_child():
            loop.call_soon_threadsafe(add, handler)

    add(handler)
    root.addHandler = add_both  # type: ignore[method-assign]
    root.removeHandler = remove_for_now  # type: ignore[method-assign]


class _Depth(threading.local):
    depth = 0


class _Handler(logging.Handler):
    """Encodes records and sends them."""

    def __init__(self, send: Sender) -> None:
        super().__init__()
        self._send = send
        self._here = _Depth()

    def createLock(self) -> None:  # noqa: N802 - logging's name
        self.lock = None

    def handle(self, record: logging.LogRecord) -> Any:
        """Send a record, if no filter is against it; whatever happens, its logger goes on."""
        return shielded(self._handle, record)

    def _handle(self, record: logging.LogRecord) -> Any:
        here = self._here
        depth = here.depth
        if depth >= _DEEPEST:
            self._send.missed()
            return False
        here.depth = depth + 1
        try:
            if not self.filters:
                self.emit(record)
                return True
            passed: Any = self.filter(record)  # from Python 3.12 on maybe another record
            if passed:
                self.emit(record if passed is True else passed)
            return passed
        except Exception:
            self.handleError(record)
            return False
        finally:
            here.depth = depth

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        fields = _fields(record)
        if self._send.closed:
            _write(Log(*fields))
            return
        data = records.dump_log(fields)
        if len(data) > _LONG:
            data = records.dump(_cut(Log(*fields)))
        self._send.take(data)


def _fields(record: logging.LogRecord) -> tuple[Any, ...]:
    """Give what the fields of a Log are to be."""
    template = _text(record.msg)
    args: Any = record.args
    arguments: list[str] = []
    message = template
    if args:
        try:
            message = _text(record.getMessage())
        except Exception as exc:
            message = f"{template} <its arguments do not fit: {type(exc).__name__}>"
        values = args if isinstance(args, tuple) else (args,)
        arguments = [_text(value) for value in values[:_MOST_ARGUMENTS]]
    fields = vars(record)
    extra = {}
    if len(fields) > _FEWEST:
        for key in fields.keys() - _OWN:
            extra[f"{key}"[:MAX_NAME]] = as_plain(fields[key])
            if len(extra) == _MOST_EXTRA:
                break
    path = record.pathname
    return (
        _number(int(record.created * 1e9)),
        min(_number(record.levelno), 1 << 31),
        _name(record.name),
        message,
        template if arguments else "",
        arguments,
        _exception(record) if record.exc_info or record.exc_text else "",
        _text(record.stack_info) if record.stack_info else "",
        path if type(path) is str and len(path) <= MAX_NAME else _text(path)[-MAX_NAME:],
        _number(record.lineno),
        _name(record.funcName),
        _number(record.process),
        _name(record.processName),
        _number(record.thread),
        _name(record.threadName),
        _task(fields),
        extra,
    )


def _text(value: object) -> str:
    if type(value) is str:
        return value
    try:
        return "".join(str(value))
    except Exception as exc:
        return f"<a {type(value).__name__} whose text raises {type(exc).__name__}>"


def _name(value: object) -> str:
    if type(value) is str and len(value) <= MAX_NAME:
        return value
    return _text(value or "")[:MAX_NAME]


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 64 else 0


def _exception(record: logging.LogRecord) -> str:
    if record.exc_info and isinstance(record.exc_info, tuple):
        kind, error, trace = record.exc_info
        if kind is not None:
            try:
                return "".join(traceback.format_exception(kind, error, trace)).removesuffix("\n")
            except Exception as exc:
                return f"{kind.__name__}: <no traceback: {type(exc).__name__}>"
    return _text(record.exc_text or "")


def _task(fields: dict[str, Any]) -> str:
    if "taskName" in fields:
        return _name(fields["taskName"])
    if asyncio._get_running_loop() is not None and (task := asyncio.current_task()) is not None:
        return _name(task.get_name())
    return ""


def _cut(entry: Log) -> Log:
    """Make a record small enough by cutting what is long in it."""
    for name in ("message", "template", "exception", "stack"):
        setattr(entry, name, shorten(getattr(entry, name), _CUT))
    entry.arguments = [shorten(text, 1024) for text in entry.arguments]
    entry.extra = {key: shorten(_text(value), 1024) for key, value in entry.extra.items()}
    return entry


def _note(text: str) -> bytes:
    pid = os.getpid()
    return records.dump(Log(time.time_ns(), logging.WARNING, LOGGER, text, process=pid))


def _write(entry: Log) -> None:
    """Write a record to standard error, in one piece and without any lock."""
    if entry.level < logging.INFO:
        return
    parts = [f"{logging.getLevelName(entry.level)}:{entry.logger}:{entry.message}"]
    parts += [text for text in (entry.exception, entry.stack) if text]
    with contextlib.suppress(OSError):
        os.write(2, ("\n".join(parts) + "\n").encode("utf-8", "backslashreplace"))
