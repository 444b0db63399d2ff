"""Arguments enter a sandbox by pickle: large ones uncopied, a script's classes by reference."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import pickle
import subprocess
import sys
import types
from dataclasses import dataclass
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


class Coloured(enum.Enum):
    RED = 1


@dataclass
class Point:
    x: int


def _by_value() -> dict[str, object]:
    class Local:
        pass

    class Colour(enum.Enum):
        RED = 1

    return {
        "lambda": lambda x: x,
        "function": [functools.partial(lambda: 1)],
        "class": Local,
        "instance": {"deep": [Local()]},
        "enum": Colour.RED,
        "code": (lambda: 1).__code__,
        "method": types.MethodType(lambda self: self, 1),
    }


BY_NAME = {
    "plain": [1, "x", b"y", None, {"z": (1.5, True)}],
    "function": len,
    "own": Point,
    "instance": Point(1),
    "enum": Coloured.RED,
    "types": (type(None), type(...), type(NotImplemented), type, object, int),
    "unnamed types": (types.FunctionType, types.CodeType, types.GeneratorType),
    "array": np.zeros(3),
    "partial": functools.partial(max, 1),
    "error": ValueError("x"),
    "method": "x".join,
}


@pytest.mark.parametrize("name", [*_by_value()])
def test_a_pickle_that_holds_code_says_for_which_python(name: str) -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert arguments.dump((_by_value()[name],), {}).minor == here
    assert arguments.dump((), {"key": _by_value()[name]}).minor == here
    assert arguments.dump((), {}, carried={"variables": _by_value()}).minor == here


@pytest.mark.parametrize("name", [*BY_NAME])
def test_a_pickle_of_what_has_a_name_is_for_any_python(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, types.ModuleType("x")))
    monkeypatch.setattr(sys.modules[__name__], "Point", Point, raising=False)
    monkeypatch.setattr(sys.modules[__name__], "Coloured", Coloured, raising=False)
    assert arguments.dump((BY_NAME[name],), {}).minor == ""


def test_a_context_travels_behind_the_arguments_only_if_there_is_one() -> None:
    for carried in ({"baggage": {"a": 1}}, {"variables": {"when": dt.date(2020, 1, 2)}}):
        made = arguments.dump((1,), {"x": 2}, carried=carried)
        found = arguments.unpickle(b"".join(made.stream), made.buffers)
        assert found == ((1,), {"x": 2}, carried)
    made = arguments.dump((1,), {})
    assert len(arguments.unpickle(b"".join(made.stream), [])) == 2


def test_plain_arguments_keep_their_identity_and_cycles() -> None:
    shared = [1]
    (first, second, loop), _ = there_and_back(shared, {"x": shared}, _loop())
    assert second["x"] is first  # type: ignore[index]
    assert loop[0] is loop  # type: ignore[index]


def _loop() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made
