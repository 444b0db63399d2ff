"""Arguments enter a sandbox by pickle: large ones uncopied, a script's classes by reference."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from agentix.wire import arguments
from agentix.wire.protocol import OUT_OF_BAND

if TYPE_CHECKING:
    from pathlib import Path


def there_and_back(*args: object, **kwargs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """Pickle and rebuild."""
    pickled = arguments.dump(args, kwargs)
    stream = b"".join(pickled.stream)
    assert pickled.segments == (len(stream), *map(len, pickled.buffers))
    found: tuple[tuple[object, ...], dict[str, object]] = arguments.unpickle(
        stream, [bytearray(one) for one in pickled.buffers]
    )
    return found


def test_plain_and_by_value_arguments() -> None:
    assert there_and_back(1, "x", None, True, 1.5, b"y") == ((1, "x", None, True, 1.5, b"y"), {})
    assert there_and_back([1, {2: 3}], key=(4,)) == (([1, {2: 3}],), {"key": (4,)})
    (function,), _ = there_and_back(lambda x: x + 1)
    assert function(1) == 2  # type: ignore[operator]


@pytest.mark.parametrize("size", [100, OUT_OF_BAND, 1 << 20])
def test_large_bytes_and_arrays_are_not_copied(size: int) -> None:
    data, array = bytes(size), np.zeros(size, "u1")
    pickled = arguments.dump(({"data": data}, array), {})
    if size >= 1 << 20:
        assert any(part is data for part in pickled.stream)
        assert np.shares_memory(np.frombuffer(pickled.buffers[0], "u1"), array)
    (first, second), _ = there_and_back({"data": data}, array)
    assert first == {"data": data}
    assert np.array_equal(second, array)  # type: ignore[arg-type]


def test_what_cannot_be_pickled_raises() -> None:
    with pytest.raises(TypeError):
        arguments.dump(((n for n in range(3)),), {})


def test_classes_of_a_script_go_by_reference_only_for_its_own_functions(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import enum, pickle, sys\n"
        "from agentix.wire import arguments\n"
        "class Colour(enum.Enum):\n    RED = 1\n"
        "def local(): return 7\n"
        "if __name__ == '__main__':\n"
        "    for name in ('job', None):\n"
        "        made = arguments.dump((Colour.RED, local), {}, script=name)\n"
        "        found = arguments.unpickle(b''.join(made.stream), made.buffers)\n"
        "        print(found[0][0].__class__.__module__, found[0][1]())\n"
    )
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["job 7", "__main__ 7"]


def test_results_may_be_pickled_for_those_who_ask() -> None:
    pickled = arguments.dump_result({"x": np.zeros(OUT_OF_BAND)})
    assert len(pickled.buffers) == 1
    assert pickle.loads(b"".join(pickled.stream), buffers=pickled.buffers)["x"].sum() == 0
