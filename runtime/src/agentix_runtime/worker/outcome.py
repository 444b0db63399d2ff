"""Both ends of a call's payload inside the worker: arguments opened, results packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from agentix.wire import arguments, messages
from agentix.wire.arguments import MINOR
from agentix.wire.errors import UnencodableError
from agentix.wire.frames import Buffer, Deferred, offsets, payload_size, pieces
from agentix.wire.messages import Call, Failure, Item, Value
from agentix.wire.protocol import MAX_INLINE
from agentix.wire.values.encode import outline
from agentix_runtime.parcel import Parcel, Payload
from agentix_runtime.worker.failures import refusal, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentix.wire.fields import Segments

Memory: TypeAlias = memoryview | None
"""A payload in this process's memory; ``None`` if there was no room for it."""

Outcome: TypeAlias = tuple[bytes, Payload]
"""An encoded Value or Item with its payload, ready to be sent."""


class ArgumentsError(Exception):
    """The arguments cannot be rebuilt in this sandbox."""


class ItemError(Exception):
    """An item of a stream cannot be sent, and so the stream has come to its end."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def opened(payload: Payload | None) -> Memory:
    """Bring a payload into this process's memory; ``None`` if that cannot be done."""
    if not isinstance(payload, Parcel):
        return None if payload is None else memoryview(payload)
    try:
        return payload.opened()
    except (OSError, MemoryError):
        return None
    finally:
        payload.close()


def open_arguments(call: Call, memory: Memory) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Rebuild a call's arguments, and apply the context that it carries to the current one.

    Large buffers are views of the memory they arrived in.
    """
    if memory is None:
        raise ArgumentsError("the sandbox has no memory or open files left for the arguments")
    if call.minor and call.minor != MINOR:
        raise ArgumentsError(
            "an argument holds code by value (a lambda, or a function or class that was defined in "
            f"a script, a notebook or another function), made by Python {call.minor}, and this "
            f"bundle runs Python {MINOR}; define it in a module of the project, or build the "
            f'bundle with [tool.agentix] python = "{call.minor}"'
        )
    segments = call.segments
    try:
        if len(segments) == 1:
            whole = arguments.unpickle(memory, ())
        else:
            parts = [
                memory[start : start + length]
                for start, length in zip(offsets(segments), segments, strict=True)
            ]
            whole = arguments.unpickle(parts[0], parts[1:])
        if len(whole) > 2:
            from agentix.utils import context

            context.apply(whole[2])
    except ModuleNotFoundError as exc:
        raise ArgumentsError(
            f"the arguments need the module {exc.name}, which the bundle does not have; add it to "
            "the project and rebuild the bundle, or pass plain data"
        ) from exc
    except Exception as exc:
        raise ArgumentsError(
            f"the arguments cannot be rebuilt in the sandbox: {type(exc).__name__}: {text_of(exc)}"
        ) from exc
    return whole[0], whole[1]


class Encoded:
    """A result, encoded but still where it was; ``pack`` copies it to where it can be sent from."""

    __slots__ = ("_buffers", "_head", "_stream", "size")

    def __init__(
        self,
        call: Call,
        number: int,
        stream: Sequence[Buffer],
        buffers: Sequence[Buffer | Deferred],
        kinds: str,
    ) -> None:
        """Describe a result in these parts or, with a number from 1 on, an item of a stream."""
        self._stream = stream
        self._buffers = buffers
        segments: Segments = (sum(map(len, stream)), *map(len, buffers))
        self.size = payload_size(segments)
        if self.size > call.limit:
            raise UnencodableError(
                f"the result takes {self.size:,} bytes, and the caller accepts {call.limit:,}"
            )
        self._head = _head(call, number, kinds, segments)

    def pack(self) -> Outcome:
        """Copy the result into a frame's payload or into shared memory."""
        parts = pieces(self._stream, self._buffers)
        return self._head, b"".join(parts) if self.size <= MAX_INLINE else Parcel.of(parts)


def encoded(call: Call, value: Any, number: int = 0) -> Outcome | Encoded | Failure:
    """Encode a result or an item, and pack it if it is small. Raises nothing."""
    try:
        if call.form == "pickle":
            pickled = arguments.dump_result(value)
            kinds = "a" * len(pickled.buffers)
            made = Encoded(call, number, pickled.stream, pickled.buffers, kinds)
        else:
            document, buffers = outline(value)
            if not buffers and (size := len(document)) <= MAX_INLINE and size <= call.limit:
                return _head(call, number, "", (size,)), document
            kinds = "".join(["b" if type(one) is bytes else "a" for one in buffers])
            made = Encoded(call, number, [document], buffers, kinds)
    except BaseException as error:  # it runs the code of the user's objects
        return _unencodable(call, error)
    return packed(call, made) if made.size <= MAX_INLINE else made


def packed(call: Call, made: Encoded) -> Outcome | Failure:
    """Pack what has been encoded, or say why that cannot be done."""
    try:
        return made.pack()
    except Exception as error:  # no memory, no descriptors
        return _unencodable(call, error)


def end_of_stream(call: Call) -> Outcome:
    """Make the outcome of a generator that has come to its end."""
    return messages.dump(Value(call.id, call.form, "", (0,))), b""


def _head(call: Call, number: int, kinds: str, segments: Segments) -> bytes:
    if number:
        return messages.dump(Item(call.id, number, call.form, kinds, segments))
    return messages.dump(Value(call.id, call.form, kinds, segments))


def _unencodable(call: Call, error: BaseException) -> Failure:
    if isinstance(error, UnencodableError):
        return refusal(call.id, "UnencodableError", str(error))
    text = f"the result cannot be sent back: {type(error).__name__}: {text_of(error)}"
    return refusal(call.id, "UnencodableError", text, error)
