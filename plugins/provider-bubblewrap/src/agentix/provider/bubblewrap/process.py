"""Starting bubblewrap."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from agentix.provider.bubblewrap.options import Content
from agentix.provider.kit import HostedProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agentix.provider.kit import OutputTail


def start(
    program: Path, options: Sequence[str | Content], command: Sequence[str], tail: OutputTail
) -> HostedProcess:
    """Start *command* in the sandbox that *options* describe; *tail* gets what it prints.

    The options go through a descriptor, since other users can read a command line. Raises OSError
    when bubblewrap cannot be started.
    """
    with ExitStack() as files:
        words, given = bytearray(), []
        for option in options:
            if isinstance(option, Content):
                given.append(files.enter_context(_in_memory(option.text.encode())))
                words += b"%d\0" % given[-1]
            else:
                words += os.fsencode(option) + b"\0"
        file = files.enter_context(_in_memory(words))
        return HostedProcess.start(
            [program, "--args", str(file), "--", *command], tail=tail, pass_fds=(file, *given)
        )


@contextmanager
def _in_memory(content: bytes | bytearray) -> Iterator[int]:
    """Give a descriptor from which *content* can be read, by a child too."""
    file = os.memfd_create("bubblewrap", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as writing:
            writing.write(content)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)
