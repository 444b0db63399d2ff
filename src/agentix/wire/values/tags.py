"""The grammar of an encoded value.

    document  = [classes, node]
    classes   = [[kind, module, qualname, [field name, …]], …]
    node      = null | bool | int (64 bits) | float | str | bytes      themselves
              | [tag, …]                                              everything else, see below
    buffer    = index of an out-of-band buffer; each is used exactly once

Containers hold nodes; a list or a column of a dict that holds only scalars is therefore packed and
unpacked by msgpack alone, without a Python step for each element.
"""

from __future__ import annotations

from typing import Final

# [tag, [node, …]]
LIST: Final = 1
TUPLE: Final = 2
SET: Final = 3
FROZENSET: Final = 4
DEQUE: Final = 5  # [tag, [node, …], maxlen | null]

# [tag, [key node, …], [value node, …]]
DICT: Final = 10
ORDERED_DICT: Final = 11
COUNTER: Final = 12
DEFAULT_DICT: Final = 13  # […, name of a factory | null]

# Scalars that msgpack does not know
INT: Final = 20  # [tag, two's complement bytes, little end first]
BYTES: Final = 21  # [tag, buffer]
BYTEARRAY: Final = 22  # [tag, buffer | bytes]
COMPLEX: Final = 23  # [tag, real, imaginary]
DECIMAL: Final = 24  # [tag, text]
FRACTION: Final = 25  # [tag, node, node]
ELLIPSIS: Final = 26  # [tag]
RANGE: Final = 27  # [tag, node, node, node]
SLICE: Final = 28  # [tag, node, node, node]
UUID: Final = 29  # [tag, 16 bytes]
PATH: Final = 30  # [tag, text, pure]

# Time
DATETIME: Final = 40  # [tag, year, month, day, hour, minute, second, microsecond, fold, zone]
DATE: Final = 41  # [tag, year, month, day]
TIME: Final = 42  # [tag, hour, minute, second, microsecond, fold, zone]
TIMEDELTA: Final = 43  # [tag, days, seconds, microseconds]
FIXED_ZONE: Final = 44  # [tag, days, seconds, microseconds, name | null]
NAMED_ZONE: Final = 45  # [tag, key]

# Classes of the project: an index into the table, then what it says
OBJECT: Final = 50  # [tag, class, [node a field, …]]; dataclasses and named tuples
MODEL: Final = 51  # [tag, class, [node a field, …], [field that was set, …], extra, private]
# Both are DICT | null: extra fields, private attributes.
MEMBER: Final = 52  # [tag, class, name]
FLAG: Final = 53  # [tag, class, node]

# Types that were registered on both sides
REGISTERED: Final = 55  # [tag, module.qualname, node]

# numpy
ARRAY: Final = 60  # [tag, dtype, [length, …], "C" | "F", buffer | bytes]
SCALAR: Final = 61  # [tag, dtype, bytes]
NUMPY_TEXT: Final = 62  # [tag, str | bytes]

# Kinds in the class table
DATACLASS: Final = 1
NAMED_TUPLE: Final = 2
PYDANTIC: Final = 3
ENUM: Final = 4

MAX_DEPTH: Final = 100
MAX_INT_BYTES: Final = 64 << 10
MAX_RATIO_BYTES: Final = 1 << 10  # of each part of a fraction, which has to be reduced
MAX_DECIMAL: Final = 64 << 10
MAX_CLASSES: Final = 4096
MAX_FIELDS: Final = 4096

FACTORIES: Final = {
    "bool": bool,
    "bytes": bytes,
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "set": set,
    "str": str,
    "tuple": tuple,
}
"""The default factories of a defaultdict that keep their meaning on the other side."""

DTYPE: Final = (
    r"\|b1|\|[iu]1|[<>][iuf][248]|[<>]c(?:8|16)"
    r"|[<>][mM]8(?:\[(?:[1-9][0-9]{0,8})?[A-Za-z]{1,2}\])?|[<>]U[1-9][0-9]{0,8}|\|S[1-9][0-9]{0,8}"
)
"""The dtypes that arrays may have: numbers, times and fixed-width text.

No object, void or subarray dtypes, and no long doubles: their layout differs between machines.
"""
