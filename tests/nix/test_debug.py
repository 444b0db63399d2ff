"""What only debuggers read is left out of what wheels bring, and nothing else is."""

from __future__ import annotations

import random
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import SimpleNamespace

SITE = Path(sysconfig.get_path("platlib"))
MODULE = "multidict._multidict"  # published with its debug information
LOAD = """
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.ExtensionFileLoader(sys.argv[1], sys.argv[2])
spec = importlib.util.spec_from_loader(sys.argv[1], loader)
module = importlib.util.module_from_spec(spec)
loader.exec_module(module)
assert module.MultiDict([("a", 1), ("a", 2)]).getall("a") == [1, 2]
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of a module that holds debug information."""
    [published] = (SITE / "multidict").glob("_multidict.*.so")
    content = published.read_bytes()
    assert b".debug_info\0" in content, "choose another module"
    copy = tmp_path / published.name
    copy.write_bytes(content)
    return copy


def test_a_library_gets_smaller_and_is_what_it_was_to_whoever_loads_it(
    builders: SimpleNamespace, library: Path
) -> None:
    old, linked = library.read_bytes(), builders.elf.read(library)
    assert builders.debug.strip(library)
    new = library.read_bytes()
    assert len(new) < len(old) / 2
    start = next(
        i for i, (one, other) in enumerate(zip(old[64:], new[64:], strict=False)) if one != other
    )
    assert start > len(new) * 0.9, "all but what says where the sections are is as it was"
    assert builders.elf.read(library) == linked
    subprocess.run([sys.executable, "-c", LOAD, MODULE, library], check=True, timeout=60)
    assert not builders.debug.strip(library), "there is nothing left to leave out"
    assert library.read_bytes() == new


@pytest.mark.parametrize("where", ["behind", "among"])
def test_a_file_with_something_of_its_own_stays_as_it_is(
    builders: SimpleNamespace, library: Path, where: str
) -> None:
    content = library.read_bytes()
    if where == "behind":
        content += b"payload"
    else:  # the section of another kind of data, behind those of the debugger
        content = content.replace(b".strtab\0", b".owntab\0").replace(b".symtab\0", b".owntab\0")
    library.write_bytes(content)
    assert not builders.debug.strip(library)
    assert library.read_bytes() == content


def test_what_is_no_library_or_a_damaged_one_stays_as_it_is_or_is_cut_where_debugging_begins(
    builders: SimpleNamespace, library: Path
) -> None:
    whole = library.read_bytes()
    builders.debug.strip(library)
    loaded = len(library.read_bytes()) * 9 // 10
    chance = random.Random(5)
    table = int.from_bytes(whole[40:48], "little")
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.choice([chance.randrange(64), chance.randrange(table, len(whole))])
            damaged[at] = chance.randrange(256)
        content = bytes(
            damaged[: chance.choice([len(whole), len(whole), chance.randrange(len(whole))])]
        )
        library.write_bytes(content)
        if builders.debug.strip(library):
            found = library.read_bytes()
            assert len(found) < len(content)
            assert found[64:loaded] == content[64:loaded]
        else:
            assert library.read_bytes() == content
    for content in (b"", b"\x7fELF\x02\x01", b"#!/bin/sh\n"):
        library.write_bytes(content)
        assert not builders.debug.strip(library)
        assert library.read_bytes() == content
