"""What a runtime tells about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentix.text import plain
from agentix.wire.errors import MalformedError


@dataclass(frozen=True, slots=True)
class Health:
    """A runtime that answers: its versions, and its two processes as the sandbox counts them."""

    status: str
    protocol: int
    agentix: str
    python: str
    libc: str
    pid: int
    worker_pid: int | None

    @classmethod
    def parse(cls, told: Any) -> Health:
        """Read what a runtime answered, or raise MalformedError."""
        try:
            texts = [told[name] for name in ("status", "agentix", "python", "libc")]
            worker = told["worker"]["pid"]
            numbers = [told["protocol"], told["pid"], 0 if worker is None else worker]
        except (TypeError, LookupError) as exc:
            raise MalformedError("the answer does not describe a runtime") from exc
        if not all(type(text) is str and len(text) < 256 for text in texts) or not all(
            type(number) is int and 0 <= number < 1 << 31 for number in numbers
        ):
            raise MalformedError("the answer does not describe a runtime")
        status, agentix, python, libc = map(plain, texts)
        return cls(status, numbers[0], agentix, python, libc, numbers[1], worker)
