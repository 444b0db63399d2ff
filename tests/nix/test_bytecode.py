from __future__ import annotations

import marshal
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import SimpleNamespace

SOURCE = '''
"""Module {number}."""
NAMES = {{"alpha", "beta", "gamma", "module{number}"}}


class Thing{number}:
    shared, own{number} = 1, 2

    def method(self, shared: int, own{number}: int) -> int:
        return shared in {{1, 2, {number}}} and own{number}
'''


def tree(root: Path, count: int) -> Path:
    (root / "package").mkdir(parents=True)
    for number in range(count):
        (root / f"package/module{number}.py").write_text(SOURCE.format(number=number))
    return root


def compiled(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.pyc"))}


def test_byte_code_is_never_checked_against_its_source(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    builders.bytecode.compile_tree(tree(tmp_path, 1))
    (content,) = compiled(tmp_path).values()
    hash_based, checked = 0b01, 0b10
    flags = int.from_bytes(content[4:8], "little")
    assert flags & hash_based
    assert not flags & checked


def test_the_place_of_the_build_is_not_in_it(builders: SimpleNamespace, tmp_path: Path) -> None:
    builders.bytecode.compile_tree(tree(tmp_path, 1))
    (content,) = compiled(tmp_path).values()
    assert str(tmp_path).encode() not in content
    assert marshal.loads(content[16:]).co_filename == "package/module0.py"


def test_a_tree_with_a_known_place_says_so(builders: SimpleNamespace, tmp_path: Path) -> None:
    builders.bytecode.compile_tree(tree(tmp_path, 1), "/nix/store/x/")
    (content,) = compiled(tmp_path).values()
    assert marshal.loads(content[16:]).co_filename == "/nix/store/x/package/module0.py"


def test_what_is_no_python_is_left_out(builders: SimpleNamespace, tmp_path: Path) -> None:
    root = tree(tmp_path, 1)
    (root / "package/old.py").write_text("print 'two'\n")
    (root / "package/null.py").write_bytes(b"a = '\0'\n")
    (root / "package/latin.py").write_bytes(b"a = '\xe9'\n")
    builders.bytecode.compile_tree(root)
    assert [Path(name).stem.split(".")[0] for name in compiled(root)] == ["module0"]


def test_the_result_does_not_depend_on_the_number_of_processors(
    builders: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 * builders.bytecode.CHUNK + 3
    results = []
    for processors in (1, 5):
        root = tree(tmp_path / str(processors), count)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=processors: set(range(n)))
        builders.bytecode.compile_tree(root)
        results.append(compiled(root))
    assert len(results[0]) == count
    assert results[0] == results[1]


def test_a_compiler_that_dies_fails_the_build(
    builders: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders.bytecode, "_compile", lambda *_: os._exit(9))
    with pytest.raises(RuntimeError, match="ended with status"):
        builders.bytecode.compile_tree(tree(tmp_path, 1))
