from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace


def read(builders: SimpleNamespace, path: Path, content: bytes) -> object:
    path.write_bytes(content)
    return builders.elf.read(path)


def test_a_program_names_its_interpreter_and_libraries(
    builders: SimpleNamespace, tmp_path: Path, make_elf: Callable[..., bytes]
) -> None:
    content = make_elf(interpreter="/lib64/ld.so", needed=("libc.so.6", "libm.so.6"), machine=183)
    found = read(builders, tmp_path / "program", content)
    assert found == builders.elf.Elf(
        "aarch64", "/lib64/ld.so", None, None, ("libc.so.6", "libm.so.6")
    )


def test_a_runpath_hides_an_rpath(
    builders: SimpleNamespace, tmp_path: Path, make_elf: Callable[..., bytes]
) -> None:
    path = tmp_path / "library.so"
    assert read(builders, path, make_elf()).search == []  # type: ignore[attr-defined]
    assert read(builders, path, make_elf(rpath="$ORIGIN:/a")).search == ["$ORIGIN", "/a"]  # type: ignore[attr-defined]
    both = read(builders, path, make_elf(rpath="/a", runpath="/b"))
    assert (both.search, both.rpath, both.runpath) == (["/b"], "/a", "/b")  # type: ignore[attr-defined]


def test_what_is_not_dynamic_is_left_alone(
    builders: SimpleNamespace, tmp_path: Path, make_elf: Callable[..., bytes]
) -> None:
    whole = make_elf(rpath="/a")
    other = {
        "text": b"#!/bin/sh\n",
        "empty": b"",
        "short": b"\x7fELF\x02\x01",
        "of 32 bits": b"\x7fELF\x01\x01" + whole[6:],
        "big-endian": b"\x7fELF\x02\x02" + whole[6:],
        "cut off": whole[:80],
    }
    assert {
        name: read(builders, tmp_path / "f", data) for name, data in other.items()
    } == dict.fromkeys(other)


def test_damage_is_survived_wherever_it_is(
    builders: SimpleNamespace, tmp_path: Path, make_elf: Callable[..., bytes]
) -> None:
    whole = make_elf(interpreter="/lib/ld.so", rpath="/a", needed=("libc.so.6",))
    for position in range(16, len(whole)):
        for value in (0, 0x7F, 0xFF):
            damaged = bytearray(whole)
            damaged[position] = value
            read(builders, tmp_path / "damaged", bytes(damaged))


def test_reads_what_a_compiler_made(builders: SimpleNamespace) -> None:
    found = builders.elf.read(Path("/usr/bin/env").resolve())
    assert "libc.so.6" in found.needed
    assert "ld-linux" in found.interpreter
