"""The socket of one runtime, held on to: what is put in its place later is not taken for it.

It lies in a folder that the sandbox can write to. A link there could lead to any socket of the
host, such as a container engine's, and calls would then be sent to that.
"""

from __future__ import annotations

import errno
import os
import stat


class HeldSocket:
    """The socket at a path, by descriptor; OSError when there is none, or something else."""

    _descriptor = -1

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not stat.S_ISSOCK(os.fstat(self._descriptor).st_mode):
            self.close()
            raise OSError(errno.ENOTSOCK, "what is there is not a socket")

    @property
    def path(self) -> str:
        """Where to connect to."""
        return f"/proc/self/fd/{self._descriptor}"

    def close(self) -> None:
        """Let go of it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Let go of it, also where a client is left open."""
        self.close()
