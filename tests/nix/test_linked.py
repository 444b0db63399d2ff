from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SITE = "lib/python3.11/site-packages"


@pytest.fixture
def link(tmp_path: Path, run_step: Callable[..., Any]) -> Callable[..., Path]:
    """Link wheels with tools that have libtool.so.1; a patchelf only notes what it was asked."""
    library = tmp_path / "tools/root/lib/x86_64-linux-gnu/libtool.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    patchelf = tmp_path / "patchelf/bin/patchelf"
    patchelf.parent.mkdir(parents=True)
    patchelf.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/patched\n')
    patchelf.chmod(0o755)

    def run(*wheels: Path) -> Path:
        config = {
            "multiarch": "x86_64-linux-gnu",
            "patchelf": str(tmp_path / "patchelf"),
            "tools": str(tmp_path / "tools"),
            "wheels": [str(wheel) for wheel in wheels],
        }
        done = run_step("linked.py", config, tmp_path / "out")
        assert done.returncode == 0, done.stderr
        return tmp_path / "out"

    return run


def wheel(folder: Path, files: Mapping[str, bytes], lacks: Mapping[str, list[str]] | None) -> Path:
    for name, content in files.items():
        (folder / SITE / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / SITE / name).write_bytes(content)
        (folder / SITE / name).chmod(0o444)
    if lacks is not None:
        noted = {"lacks": {f"{SITE}/{k}": v for k, v in lacks.items()}, "offers": ["one.so"]}
        (folder / ".libraries.json").write_text(json.dumps(noted))
    return folder


def test_a_wheel_that_lacks_a_library_that_is_there_is_a_copy_that_looks_there_last(
    tmp_path: Path, make_elf: Callable[..., bytes], link: Callable[..., Path]
) -> None:
    one = wheel(
        tmp_path / "abc-one-1.0",
        {
            "one/_one.so": make_elf(rpath="$ORIGIN/../one.libs:/toolchain/lib"),
            "one/_two.so": make_elf(),
            "one.libs/libown.so": b"own",
            "one/__init__.py": b"",
        },
        {"one/_one.so": ["libtool.so.1", "libnone.so.1"], "one/_two.so": ["libnone.so.1"]},
    )
    untouched = wheel(tmp_path / "abc-two-1.0", {"two.so": b""}, {"two.so": ["libnone.so.1"]})
    out = link(one, untouched, wheel(tmp_path / "abc-three-1.0", {"three.py": b""}, None))
    assert [path.name for path in out.iterdir()] == ["linked-one-1.0"]
    site = out / "linked-one-1.0" / SITE
    files = {str(p.relative_to(site)): p for p in site.rglob("*") if not p.is_dir()}
    assert not any(path.is_symlink() for path in [site / "one", *files.values()])
    assert files["one.libs/libown.so"].read_bytes() == b"own"
    assert not os.access(files["one/_one.so"], os.W_OK) or os.geteuid() == 0
    tools = tmp_path / "tools/root/lib"
    search = f"$ORIGIN/../one.libs:/toolchain/lib:{tools}/x86_64-linux-gnu:{tools}"
    expected = f"--force-rpath --set-rpath {search} {files['one/_one.so']}\n"
    assert (tmp_path / "patched").read_text() == expected
    assert json.loads((out / "linked-one-1.0/.libraries.json").read_text()) == {
        "lacks": {
            f"{SITE}/one/_one.so": ["libnone.so.1"],
            f"{SITE}/one/_two.so": ["libnone.so.1"],
        },
        "offers": ["one.so"],
    }


def test_where_nothing_is_lacking_nothing_is_made(
    tmp_path: Path, link: Callable[..., Path]
) -> None:
    assert list(link(wheel(tmp_path / "abc-one-1.0", {"one.py": b""}, None)).iterdir()) == []
