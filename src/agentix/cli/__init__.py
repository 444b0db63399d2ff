"""The ``agentix`` command. A command parses, calls one library function and prints."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_INTERRUPTED = 130  # Typer makes this exit status of an interrupt, and says nothing


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130/143 interrupted."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from agentix.cli.app import run  # takes long enough to be interrupted meanwhile

        run(sys.argv[1:])
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != _INTERRUPTED:
            raise
        print("agentix: interrupted", file=sys.stderr)  # noqa: T201 - this is the command's voice
        sys.exit(_INTERRUPTED)
    sys.exit(0)


def _terminate(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every ``finally``, as an interrupt does."""
    sys.exit(143)
