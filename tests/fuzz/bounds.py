"""What hostile results cost their reader, measured: ``python -m fuzz.bounds [situation ...]``.

Each is made in two sizes, one four times the other, and decoded with little more memory than there
is already. Processor time is counted, so a busy machine changes nothing.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Sequence  # noqa: TC003 - an annotation that is looked at
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgpack
import numpy as np
import pydantic

from agentix.wire.errors import MalformedError, NotAllowedError
from agentix.wire.protocol import MAX_DOCUMENT
from agentix.wire.values import tags
from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode

if TYPE_CHECKING:
    from collections.abc import Callable


class Pair(NamedTuple):
    """A named tuple."""

    a: int
    b: str


@dataclass
class Holder:
    """A dataclass."""

    items: list[int]
    steps: Sequence[int] = ()


class Model(pydantic.BaseModel):
    """A model."""

    items: list[int] = []
    above: list[Annotated[int, pydantic.Field(gt=0)]] = []
    one: int = 0


def known() -> Holder | Model | Pair:
    """Have an annotation."""
    raise NotImplementedError


HOLDER = [tags.DATACLASS, Holder.__module__, "Holder", ["items", "steps"]]
MODEL = [tags.PYDANTIC, Model.__module__, "Model", ["items", "above", "one"]]
EMPTY = [tags.LIST, []]
PRIME = (1 << 61) - 1  # numbers that far apart have the same hash
CHANCE = random.Random(1)


def _holder(items: Any = EMPTY, steps: Any = EMPTY) -> Any:
    return [[HOLDER], [tags.OBJECT, 0, [items, steps]]]


def _model(
    items: Any = EMPTY, above: Any = EMPTY, one: Any = 0, given: Any = (), private: Any = None
) -> Any:
    return [[MODEL], [tags.MODEL, 0, [items, above, one], given, None, private]]


def _many(node: Any, count: int) -> Any:
    return [[], [tags.LIST, [node] * count]]


def _set(nodes: list[Any]) -> Any:
    return [[], [tags.SET, nodes]]


def _big(number: int) -> Any:
    return [tags.INT, number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)]


def _bytes(size: int) -> Any:
    return [tags.INT, b"\1" * size]


def _ratio() -> Any:
    parts = ([tags.INT, CHANCE.randbytes(size) + b"\1"] for size in (1023, 1022))
    return [tags.FRACTION, *parts]


def _list_of(element: bytes, count: int) -> bytes:
    return b"\x92\x90\x92\x01\xdd" + count.to_bytes(4, "big") + element * count


def _lies(header: bytes, count: int) -> bytes:
    return b"\x92\x90" + header + b"\xff" * 4 + b"\1" * count


def _every_second(count: int) -> Any:
    keys = [_big(number * PRIME) if number % 2 else number for number in range(1, count)]
    return [[], [tags.DICT, keys, [0] * len(keys)]]


def _map(count: int) -> bytes:
    pairs = b"".join(b"\xa8%08d\xc0" % number for number in range(count))
    return b"\x92\x90\xdf" + count.to_bytes(4, "big") + pairs


def _texts(count: int) -> list[str]:
    return [str(number) for number in range(count)]


S = tags
REFUSED: dict[str, tuple[int, Callable[[int], Any]]] = {
    # how large the smaller one is; what is sent, or its bytes
    "classes that nobody allowed": (1000, lambda n: [[[1, "os", "system", []]] * n, 1]),
    "items of another type": (200_000, lambda n: _holder([S.LIST, ["x"] * n])),
    "items of another type in a model": (200_000, lambda n: _model([S.LIST, ["x"] * n])),
    "items that a model does not want": (50_000, lambda n: _model(above=[S.LIST, [-1] * n])),
    "an endless range in a model": (1, lambda n: _model([S.RANGE, 0, n << 60, 1])),
    "an array for a list in a model": (
        200_000,
        lambda n: _model([S.ARRAY, "|i1", [n], "C", bytes(n)]),
    ),
    "a huge decimal for an integer": (1, lambda n: _model(one=[S.DECIMAL, f"1E+{n * 10**7}"])),
    "fields set that are none": (100_000, lambda n: _model(given=_texts(n))),
    "private attributes that are none": (
        50_000,
        lambda n: _model(private=[S.DICT, _texts(n), [0] * n]),
    ),
    "arrays whose sizes lie": (
        20_000,
        lambda n: _many([S.ARRAY, "<f8", [1 << 61, 8], "C", b""], n),
    ),
    "one byte again and again": (100_000, lambda n: _many([S.BYTES, 0], n)),
    "levels": (200_000, lambda n: b"\x92\x90" + b"\x92\x01\x91" * n + b"\xc0"),
    "a text that lies": (1, lambda n: _lies(b"\xdb", n)),
    "bytes that lie": (1, lambda n: _lies(b"\xc6", n)),
    "a list that lies": (1, lambda n: _lies(b"\xdd", n)),
    "a map that lies": (1, lambda n: _lies(b"\xdf", n)),
    "an extension that lies": (1, lambda n: _lies(b"\xc9", n)),
    "integers of 10**7 digits": (1, lambda n: _many(_bytes(4_200_000), n)),
    "fractions of 150,000 digits": (
        20,
        lambda n: _many([S.FRACTION, _bytes(1 << 16), _bytes(1 << 16)], n),
    ),
    "keys with the same hash": (
        20_000,
        lambda n: _set([_big(number * PRIME) for number in range(1, n)]),
    ),
    "every second key with the same hash": (20_000, _every_second),
    "tuples with the same hash": (
        20_000,
        lambda n: _set([[S.TUPLE, [_big(number * PRIME)]] for number in range(1, n)]),
    ),
    "groups with the same hash": (
        20_000,
        lambda n: _set([_big(number // 50 + 1 + number % 50 * PRIME) for number in range(n)]),
    ),
    "the same key again": (100_000, lambda n: [[], [S.DICT, [1] * n, [1] * n]]),
    "trailing bytes": (500_000, lambda n: b"\x92\x90\xc0" + b"\0" * n),
    "what is no text": (
        500_000,
        lambda n: b"\x92\x90\xdb" + n.to_bytes(4, "big") + b"\xff" * n,
    ),
    "unknown tags": (50_000, lambda n: _many([99, 1], n)),
    "empty lists": (200_000, lambda n: _list_of(b"\x90", n)),
    "empty maps": (200_000, lambda n: _list_of(b"\x80", n)),
    "a map of many keys": (100_000, _map),
}
BORNE: dict[str, tuple[int, Callable[[int], Any]]] = {
    # odd, but values
    "the same class again and again": (900, lambda n: [[MODEL] * n, 1]),
    "endless ranges": (10_000, lambda n: _many([S.RANGE, 0, 1 << 62, 1], n)),
    "an endless range for a sequence": (1, lambda n: _holder(steps=[S.RANGE, 0, n << 60, 1])),
    "huge decimals as keys": (
        2000,
        lambda n: _set([[S.DECIMAL, f"1E+{10**17 + number}"] for number in range(n)]),
    ),
    "nothing of large elements": (
        20_000,
        lambda n: _many([S.ARRAY, "|S999999999", [0], "C", b""], n),
    ),
    "arrays of many dimensions": (
        2000,
        lambda n: _many([S.ARRAY, "<f8", [1] * 64, "C", b"12345678"], n),
    ),
    "integers of 150,000 digits": (20, lambda n: _many(_bytes(1 << 16), n)),
    "an integer of 150,000 digits in a model": (1, lambda n: _model(one=_bytes(1 << 16))),
    "fractions to be reduced": (100, lambda n: [[], [S.LIST, [_ratio() for _ in range(n)]]]),
    "decimals of 65,536 digits": (20, lambda n: _many([S.DECIMAL, "9" * (1 << 16)], n)),
}
SITUATIONS = REFUSED | BORNE


def cost(what: str, size: int) -> tuple[float, int, str]:
    """Decode once: seconds of processor time, bytes of the document, how it ended."""
    made = SITUATIONS[what][1](size)
    document = made if type(made) is bytes else msgpack.packb(made)
    del made
    assert len(document) <= MAX_DOCUMENT
    buffers = [b"x"] if what == "one byte again and again" else []
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    # An empty list takes a byte here and a hundred there; pydantic keeps 400 for each error.
    each = 450 if what == "items that a model does not want" else 110
    resource.setrlimit(resource.RLIMIT_AS, (pages + (24 << 20) + each * len(document), -1))
    began = time.process_time()
    try:
        decode(document, buffers, lambda: allowed_for(known))
        ended = ""
    except (MalformedError, NotAllowedError) as exc:
        ended = str(exc)
    spent = time.process_time() - began
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert len(ended) < 600, ended
    assert "\n" not in ended, ended
    assert "MemoryError" not in ended, ended
    assert bool(ended) == (what in REFUSED), ended or "a value"
    return spent, len(document), ended


def check(what: str) -> str:
    """Measure one situation; say what was found."""
    size = SITUATIONS[what][0]
    for more in (True, True, False):
        small, length, _ = cost(what, size)
        large, longer, ended = cost(what, 4 * size)
        if large <= 10 * small + 0.2 and large <= 0.5 + 5e-6 * longer:
            break
        # Once more: something else may have taken the time.
        assert more, f"{small:.3f} s for {length:,} bytes, {large:.3f} s for {longer:,}"
    return f"{large * 1000:.1f} ms for {longer:,} bytes: {ended or 'a value'}"


def main() -> None:
    """Measure the situations that are named, or all."""
    # What is imported on the way must not count.
    one = [S.ARRAY, "<f8", [1], "C", b"12345678"]
    found = decode(msgpack.packb([[MODEL, HOLDER], one]), [], lambda: allowed_for(known))
    assert np.array_equal(found, np.frombuffer(b"12345678"))
    for what in sys.argv[1:] or SITUATIONS:
        try:
            sys.stdout.write(f"{what}: {check(what)}\n")
        except Exception as exc:
            sys.exit(f"{what}: {type(exc).__name__}: {exc}")


if __name__ == "__main__":
    main()
