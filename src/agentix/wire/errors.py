"""What the wire's readers raise: one class for bytes that are not what they should be."""

from __future__ import annotations


class MalformedError(ValueError):
    """Bytes from the other side are not a valid message, frame or value.

    The one error that hostile input leads to; it says what was wrong in one line.
    """


class UnencodableError(TypeError):
    """A value cannot be sent back: its type has no place in the data model, or it is too large."""


class NotAllowedError(Exception):
    """A value needs a class that the reader does not allow; nothing was imported."""

    def __init__(self, module: str, qualname: str) -> None:
        super().__init__(f"{module}.{qualname}")
        self.module = module
        self.qualname = qualname
