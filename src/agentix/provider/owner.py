"""Which process made a sandbox, and whether it is there still."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, ValidationError

from agentix.provider.processes import ProcessRef, here
from agentix.validation import Strict

if TYPE_CHECKING:
    from typing import Self


class Owner(Strict):
    """The process that made a sandbox: its number alone could be another one's by now.

    ``boot`` and ``namespace`` say where that number means anything, ``user`` is the user's number.
    """

    pid: Annotated[int, Field(gt=0, lt=1 << 31)]  # labels may say anything
    started: int
    boot: str
    namespace: int
    user: int
    host: str

    @classmethod
    def current(cls) -> Self:
        """Return this process."""
        itself, place = ProcessRef.of(os.getpid()), here()
        return cls(
            pid=itself.pid,
            started=itself.started,
            boot=place.boot,
            namespace=place.namespace,
            user=os.getuid(),
            host=socket.gethostname(),
        )

    @classmethod
    def parse(cls, text: str | bytes) -> Self | None:
        """Return what :meth:`text` was made of; None for what is nothing of the kind."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def text(self) -> str:
        """Return this on one line, for a label or a record."""
        return self.model_dump_json()

    def lives(self) -> bool | None:
        """Tell whether that process is there still; None when it cannot be told from here."""
        place = here()
        if self.boot != place.boot:
            return False if self.host == socket.gethostname() else None
        if self.namespace != place.namespace:
            return None
        return ProcessRef(self.pid, self.started).runs()
