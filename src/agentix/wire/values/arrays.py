"""numpy arrays and scalars: their bytes, beside a checked dtype and shape.

numpy is imported only here, and only when the other side sent an array. The bytes become the
array's memory without a copy.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any, Protocol

from agentix.wire.errors import MalformedError, UnencodableError
from agentix.wire.frames import Buffer, Deferred
from agentix.wire.protocol import MAX_INLINE
from agentix.wire.values import tags

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from agentix.wire.values.encode import Node

_DTYPE = re.compile(tags.DTYPE)
_MAX_DIMENSIONS = 64


class Aside(Protocol):
    """The part of the encoder that arrays need."""

    def aside(self, data: Buffer | Deferred) -> int | None:
        """Put bytes beside the document; ``None`` if they are better off in it."""


def _dtype_name(dtype: np.dtype[Any], what: str) -> str:
    name: str = dtype.str
    if dtype.hasobject or dtype.subdtype or dtype.fields or not _DTYPE.fullmatch(name):
        raise UnencodableError(
            f"cannot send back {what} of dtype {dtype}; numbers, bools, datetimes and fixed-width "
            "text can be sent"
        )
    return name


def encode_array(encoder: Aside, array: np.ndarray[Any, Any]) -> Node:
    """Encode an array; one that is not contiguous is copied once."""
    import numpy as np

    if type(array) not in (np.ndarray, np.memmap):
        raise UnencodableError(
            f"cannot send back a {type(array).__qualname__}; convert it with numpy.asarray"
        )
    name = _dtype_name(array.dtype, "an array")
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"

    def gathered() -> memoryview:
        # Times have no buffer protocol; their bytes have.
        flat = array.ravel(order="K") if order == "F" else np.ascontiguousarray(array).reshape(-1)
        return flat.view(np.uint8).data if flat.size else memoryview(b"")

    index = None
    if array.nbytes > MAX_INLINE and not array.flags.forc:
        index = encoder.aside(Deferred(array.nbytes, gathered))
    if index is None:
        data = gathered()
        index = encoder.aside(data)
    return [tags.ARRAY, name, list(array.shape), order, bytes(data) if index is None else index]


def encode_scalar(value: np.generic) -> Node:
    """Encode one element of an array."""
    if isinstance(value, str | bytes):
        return [tags.NUMPY_TEXT, str(value) if isinstance(value, str) else bytes(value)]
    return [tags.SCALAR, _dtype_name(value.dtype, "a numpy scalar"), value.tobytes()]


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError:
        raise MalformedError(
            "the result holds a numpy array, and numpy is not installed here; install numpy"
        ) from None
    return np


def decode_array(
    name: Any, shape: Any, order: Any, data: Any, take: Callable[[Any], Buffer]
) -> np.ndarray[Any, Any]:
    """Rebuild an array over the bytes that arrived."""
    if (
        type(name) is not str
        or not _DTYPE.fullmatch(name)
        or order not in ("C", "F")
        or type(shape) is not list
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(length) is int and 0 <= length < 1 << 62 for length in shape)
    ):
        raise MalformedError("an array is not described as arrays are")
    np = _numpy()
    dtype = np.dtype(name)
    memory = data if type(data) is bytes else take(data)
    if type(memory) is bytes:
        memory = bytearray(memory)  # which can be written to
    if math.prod(shape) * dtype.itemsize != len(memory):
        raise MalformedError(f"an array of shape {tuple(shape)} has {len(memory):,} bytes")
    if dtype.kind == "b" and memory:
        truths = np.frombuffer(memory, "u1")
        if int(truths.max()) > 1:  # what numpy takes for true in some places and for more in others
            np.minimum(truths, 1, out=truths)
    if dtype.kind == "U" and memory:
        letters = np.frombuffer(memory, dtype.str[0] + "u4")
        if int(letters.max()) > sys.maxunicode:
            raise MalformedError("an array of text holds what is no character")
    return np.ndarray(shape, dtype, memory, order=order)  # type: ignore[no-any-return]


def decode_scalar(name: Any, data: Any) -> Any:
    """Rebuild one element of an array."""
    if type(name) is not str or not _DTYPE.fullmatch(name) or type(data) is not bytes:
        raise MalformedError("a numpy scalar is not described as scalars are")
    np = _numpy()
    dtype = np.dtype(name)
    if dtype.kind in "US" or dtype.itemsize != len(data):
        raise MalformedError("a numpy scalar does not fit its dtype")
    return np.frombuffer(data, dtype)[0]


def decode_text(value: Any) -> Any:
    """Rebuild numpy's own str or bytes."""
    if type(value) not in (str, bytes):
        raise MalformedError("a numpy text is not text")
    np = _numpy()
    return np.str_(value) if type(value) is str else np.bytes_(value)
