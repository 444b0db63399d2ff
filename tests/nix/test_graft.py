"""A large program gets its loader and search path without being rewritten."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

PROGRAM = Path(shutil.which("true") or "/bin/true").resolve()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A copy of a program of this machine, with something of its own at its end."""
    copy = tmp_path / "program"
    shutil.copyfile(PROGRAM, copy)
    with copy.open("ab") as file:
        file.write(b"payload" * 1000)
    copy.chmod(0o755)
    return copy


def test_a_program_still_runs_with_what_it_was_given(
    builders: SimpleNamespace, program: Path
) -> None:
    before = builders.elf.read(program)
    loader = str(Path(before.interpreter).resolve())
    old = program.read_bytes()
    assert builders.graft.graft(program, loader, "$ORIGIN/lib:/elsewhere")
    after = builders.elf.read(program)
    assert (after.interpreter, after.rpath, after.runpath) == (
        loader,
        "$ORIGIN/lib:/elsewhere",
        None,
    )
    assert after.needed == before.needed
    subprocess.run([program], check=True, timeout=20)
    new = program.read_bytes()
    table = struct.unpack_from("<HH", old, 54)
    rest = 64 + table[0] * table[1]  # all that changes is the table of segments
    assert new[rest : len(old)] == old[rest:]
    assert len(new) < len(old) + 64 * 1024 + 4096


@pytest.mark.nix
def test_an_interpreter_of_a_toolchain_still_runs(
    builders: SimpleNamespace, toolchain: Callable[[str, str], Path], tmp_path: Path
) -> None:
    made = toolchain("debian-12", "linux/amd64")
    copy = tmp_path / "python"
    shutil.copyfile(made / "bin/python3.11", copy)
    copy.chmod(0o755)
    assert builders.graft.graft(copy, f"{made}/lib/ld-linux-x86-64.so.2", f"{made}/lib")
    words: list[Any] = [copy, "-S", "-c", "import ctypes; print(ctypes.__file__)"]
    environment = {"PYTHONHOME": str(made)}  # the copy would look for what the machine has
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith(f"{made}/lib/python3.11/")


def test_it_gives_the_same_bytes_each_time(builders: SimpleNamespace, program: Path) -> None:
    other = program.with_name("other")
    shutil.copyfile(program, other)
    for path in (program, other):
        assert builders.graft.graft(path, "/loader", "/lib")
    assert program.read_bytes() == other.read_bytes()


def test_what_has_no_room_is_left_alone(
    builders: SimpleNamespace, make_elf: Callable[..., bytes], tmp_path: Path
) -> None:
    path = tmp_path / "program"
    content = make_elf(interpreter="/lib/ld.so", needed=("libc.so.6",))
    path.write_bytes(content)
    assert not builders.graft.graft(path, "/loader", "/lib")
    assert path.read_bytes() == content


@pytest.mark.parametrize("size", [10, 64, 80, 700])
def test_what_is_damaged_raises(builders: SimpleNamespace, program: Path, size: int) -> None:
    program.write_bytes(program.read_bytes()[:size])
    before = program.read_bytes()
    with pytest.raises((ValueError, struct.error, StopIteration)):
        builders.graft.graft(program, "/loader", "/lib")
    assert program.read_bytes() == before


def test_memory_does_not_grow_with_the_program(program: Path) -> None:
    with program.open("ab") as file:
        file.truncate(1024**3)  # sparse
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import graft, pathlib;"
        "assert graft.graft(pathlib.Path(sys.argv[2]), '/loader', '/lib');"
        "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    )
    folder = Path(__file__).parents[2] / "nix/builders"
    words: list[Any] = [sys.executable, "-c", code, folder, program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) < 64 * 1024


def test_large_programs_of_npm_are_grafted(
    builders: SimpleNamespace, program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(builders.patch, "LARGE", 0)
    linked = builders.elf.read(program)
    config = {
        "toolchain": "/toolchain",
        "loader": Path(linked.interpreter).name,
        "platform": {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[linked.machine],
        "patchelf": "/none",
    }
    builders.npm.relocate(tmp_path, config)
    after = builders.elf.read(program)
    assert after.interpreter == f"/toolchain/lib/{config['loader']}"
    assert after.rpath == "/toolchain/lib"


def test_what_is_damaged_is_left_for_patchelf_to_name(
    builders: SimpleNamespace, program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(builders.patch, "LARGE", 0)
    program.write_bytes(program.read_bytes()[:700])
    (tmp_path / "patchelf/bin").mkdir(parents=True)
    (tmp_path / "patchelf/bin/patchelf").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "patchelf/bin/patchelf").chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError):
        builders.patch.patch(program, "/lib", "/loader", str(tmp_path / "patchelf"))
