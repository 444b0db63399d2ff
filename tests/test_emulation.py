"""What the kernel gives to an emulator is read from its registry, as the kernel would decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.emulation import Emulator, emulator

if TYPE_CHECKING:
    from pathlib import Path

ARM = """enabled
interpreter /usr/bin/qemu-arm64
flags: POCF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""


def registry(folder: Path, **entries: str) -> Path:
    for name, text in ({"status": "enabled\n", "register": ""} | entries).items():
        (folder / name).write_text(text)
    return folder


def test_an_entry_for_that_machine_is_found_among_others(tmp_path: Path) -> None:
    other = ARM.replace("b700", "f300").replace("arm64", "riscv64")
    script = "enabled\ninterpreter /usr/bin/python3\nflags: \noffset 0\nmagic a70d0d0a\n"
    place = registry(tmp_path, a=other, b=script, c=ARM)
    assert emulator("linux/arm64", place) == Emulator("/usr/bin/qemu-arm64", everywhere=True)
    assert emulator("linux/amd64", place) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("enabled", "disabled"),
        ("magic 7f45", "magic 7f"),
        ("magic 7f", "magic zz"),
        ("offset 0\nmagic 7f", "offset 100\nmagic 7f"),
        ("offset 0", "offset none"),
        (ARM, "enabled\ninterpreter /bin/x\nflags: \nextension .so\n"),
        (ARM, ""),
    ],
)
def test_an_entry_that_is_off_damaged_or_for_something_else_does_not_count(
    tmp_path: Path, old: str, new: str
) -> None:
    assert old in ARM
    assert emulator("linux/arm64", registry(tmp_path, a=ARM.replace(old, new))) is None


def test_one_that_sandboxes_do_not_see_is_told_apart(tmp_path: Path) -> None:
    found = emulator("linux/arm64", registry(tmp_path, a=ARM.replace("POCF", "P")))
    assert found == Emulator("/usr/bin/qemu-arm64", everywhere=False)


def test_where_nothing_is_registered_or_all_is_off_there_is_none(tmp_path: Path) -> None:
    assert emulator("linux/arm64", tmp_path / "none") is None
    assert emulator("linux/arm64", registry(tmp_path, a=ARM, status="disabled\n")) is None
