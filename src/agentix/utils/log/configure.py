"""Set up this program's logging by three variables of its environment."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from agentix.utils.log.levels import level_of
from agentix.wire import records

if TYPE_CHECKING:
    from typing import TextIO

FORMAT: Final = "%(asctime)s %(levelname)-8s [%(context)s] %(name)s: %(message)s"

_ID: Final = os.urandom(4).hex()


def configure_logging(
    default_context: str = "host",
    *,
    default_level: int | str = "INFO",
    default_format: str = FORMAT,
    stream: TextIO | None = None,
) -> None:
    """Have what is logged printed to *stream* (standard error), from a level on.

    The environment wins over the arguments:

    ``AGENTIX_LOG_LEVEL``
        the lowest level: a name (``DEBUG``) or a number. It becomes the root logger's.
    ``AGENTIX_LOG_FORMAT``
        a line's format in %-style, with logging's attributes and ``%(context)s``.
    ``AGENTIX_LOG_CONTEXT``
        what ``context`` is: a text in which ``{hostname}``, ``{pid}`` and ``{id}`` (a short random
        one of this process) are filled in. For records of a sandbox it is the sandbox's id.

    Calling this again replaces what the last call set up; handlers of others stay. In a sandbox it
    sets the level only: there, all that is logged goes to the host, which has handlers of its own.

    Raises ValueError when a level, format or context cannot be used.
    """
    level = os.environ.get("AGENTIX_LOG_LEVEL") or default_level
    number = level_of(level) if isinstance(level, str) else level
    if number is None:
        names = ", ".join(logging.getLevelNamesMapping())
        raise ValueError(f"log level {level!r} is none; AGENTIX_LOG_LEVEL is a number, or {names}")
    formatter = _Formatter(
        os.environ.get("AGENTIX_LOG_FORMAT") or default_format,
        _context(os.environ.get("AGENTIX_LOG_CONTEXT") or default_context),
    )
    root = logging.getLogger()
    if records.sink is None:
        for handler in root.handlers[:]:
            if isinstance(handler, _Handler):
                root.removeHandler(handler)
        handler = _Handler(stream or sys.stderr)
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(number)


def _context(template: str) -> str:
    try:
        return template.format(hostname=os.uname().nodename, pid=os.getpid(), id=_ID)
    except (KeyError, ValueError, IndexError, AttributeError) as exc:
        raise ValueError(
            f"log context {template!r} cannot be filled in: {type(exc).__name__}: {exc}; "
            "AGENTIX_LOG_CONTEXT may have {hostname}, {pid} and {id}"
        ) from exc


class _Handler(logging.StreamHandler["TextIO"]):
    """What configure_logging has set up, and may replace."""


class _Formatter(logging.Formatter):
    """Knows the context of records, besides what logging knows."""

    def __init__(self, form: str, context: str) -> None:
        self._context = context
        try:
            super().__init__(form, defaults={"context": context})
            self.format(logging.getLogRecordFactory()("", 0, "", 0, "", None, None))
        except (ValueError, TypeError, KeyError) as exc:
            raise ValueError(f"log format {form!r} cannot be used: {exc}") from exc

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Put a record into the format."""
        sandbox: Any = getattr(record, "sandbox_id", None)
        return str(self._fmt) % {**vars(record), "context": sandbox or self._context}
