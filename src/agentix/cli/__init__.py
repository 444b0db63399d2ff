"""The ``agentix`` command. A command parses, calls one library function and prints."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_INTERRUPTED = 130  # Typer makes this exit status of an interrupt, and says nothing
_TERMINATED = 143


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130/143 interrupted."""
    by: list[int] = []  # the signals that asked for the end

    def terminate(number: int, frame: FrameType | None) -> None:
        """Leave through every ``finally``, as an interrupt does.

        Whoever handles that one knows how: an exit from within a task would be none of asyncio's.
        """
        by.append(number)
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # as in the background of a script
            sys.exit(_TERMINATED)
        interrupt(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, terminate)
    try:
        from agentix.cli.app import run  # takes long enough to be interrupted meanwhile

        run(sys.argv[1:])
    except (KeyboardInterrupt, SystemExit) as ended:
        if isinstance(ended, SystemExit) and ended.code != _INTERRUPTED:
            raise
        if by:
            sys.exit(_TERMINATED)
        print("agentix: interrupted", file=sys.stderr)  # noqa: T201 - this is the command's voice
        sys.exit(_INTERRUPTED)
    sys.exit(0)
