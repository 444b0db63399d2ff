from __future__ import annotations

import importlib.metadata
import json
import os
import re
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

LOADER = "ld-linux-x86-64.so.2"
SITE = "lib/python3.11/site-packages"


@pytest.fixture
def install(
    tmp_path: Path, run_step: Callable[..., Any], helpers: dict[str, str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Install a wheel below tmp_path/out, with a patchelf that only notes what it was asked."""
    patchelf = tmp_path / "patchelf/bin/patchelf"
    patchelf.parent.mkdir(parents=True)
    patchelf.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/patched\nprintf patched >> "$(eval echo \\$$#)"\n'
    )
    patchelf.chmod(0o755)

    def run(wheel: Path, file: str | None = None) -> subprocess.CompletedProcess[str]:
        config = {
            "file": file or wheel.name,
            "wheel": str(wheel),
            "installer": helpers["installer"],
            "patchelf": str(tmp_path / "patchelf"),
            "toolchain": "/toolchain",
            "loader": LOADER,
            "python": "3.11",
        }
        result: subprocess.CompletedProcess[str] = run_step("wheel.py", config, tmp_path / "out")
        return result

    return run


def test_every_part_of_a_wheel_has_its_place(
    tmp_path: Path, make_wheel: Callable[..., Path], install: Callable[..., Any]
) -> None:
    wheel = make_wheel(
        tmp_path,
        "whole",
        {
            "whole/__init__.py": "VALUE = 1\n",
            "whole/tool.sh!": "#!/bin/sh\n",
            "whole/naïve name.txt": "",
            "whole-1.0.data/purelib/pure.py": "",
            "whole-1.0.data/platlib/plat.py": "",
            "whole-1.0.data/scripts/old-script": "#!python\nprint()\n",
            "whole-1.0.data/scripts/native": "#!/bin/sh\n",
            "whole-1.0.data/headers/whole.h": "",
            "whole-1.0.data/data/share/whole/data.txt": "",
        },
        entry_points="[console_scripts]\nwhole = whole:main\n[gui_scripts]\nwin = whole:win\n",
    )
    # Nix keeps the file under a name of its own.
    moved = wheel.rename(tmp_path / "abc123-whatever")
    done = install(moved, wheel.name)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    files = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    info = f"{SITE}/whole-1.0.dist-info"
    assert files == {
        "bin/native",
        "bin/old-script",
        "bin/whole",
        "bin/win",
        "include/python3.11/whole/whole.h",
        f"{SITE}/pure.py",
        f"{SITE}/plat.py",
        f"{SITE}/whole/__init__.py",
        f"{SITE}/whole/naïve name.txt",
        f"{SITE}/whole/tool.sh",
        *(f"{info}/{n}" for n in ("INSTALLER", "METADATA", "RECORD", "WHEEL", "entry_points.txt")),
        "share/whole/data.txt",
    }
    programs = {
        str(p.relative_to(out)) for p in out.rglob("*") if p.is_file() and os.access(p, os.X_OK)
    }
    assert programs == {f"{SITE}/whole/tool.sh", *(f for f in files if f.startswith("bin/"))}
    assert (out / "bin/whole").read_text().startswith("#!python\n")
    assert len(list(out.rglob("*.pyc"))) == 3


def test_the_record_is_complete_and_true(
    tmp_path: Path,
    make_wheel: Callable[..., Path],
    install: Callable[..., Any],
    make_elf: Callable[..., bytes],
) -> None:
    files = {"one.py": "1\n", "lib.so": make_elf(runpath="$ORIGIN")}
    install(make_wheel(tmp_path, "one", files, entry_points="[console_scripts]\none = one:main\n"))
    site = tmp_path / "out" / SITE
    distribution = importlib.metadata.PathDistribution(site / "one-1.0.dist-info")
    recorded = {str(file): file for file in distribution.files or ()}
    assert {str(Path(name)) for name in recorded} == {
        "one.py",
        "lib.so",
        "../../../bin/one",
        *(
            f"one-1.0.dist-info/{n}"
            for n in ("INSTALLER", "METADATA", "RECORD", "WHEEL", "entry_points.txt")
        ),
    }
    assert (site / "lib.so").read_bytes().endswith(b"patched")
    for name, file in recorded.items():
        assert (site / name).exists()
        if file.hash is not None:
            content = (site / name).read_bytes()
            assert file.size == len(content)
            digest = urlsafe_b64encode(sha256(content).digest()).decode().rstrip("=")
            assert file.hash.value == digest
    assert recorded["../../../bin/one"].hash is None


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param({}, None, id="a library that says nothing is left as published"),
        pytest.param(
            {"rpath": "$ORIGIN/../x.libs"}, None, id="an rpath from its own folder as well"
        ),
        pytest.param(
            {"runpath": "$ORIGIN"},
            "--force-rpath --set-rpath $ORIGIN:/toolchain/lib",
            id="a runpath becomes an rpath",
        ),
        pytest.param(
            {"rpath": "/usr/lib:${ORIGIN}/lib:"},
            "--force-rpath --set-rpath ${ORIGIN}/lib:/toolchain/lib",
            id="folders of an image are not searched",
        ),
        pytest.param(
            {"interpreter": f"/lib64/{LOADER}"},
            f"--force-rpath --set-rpath /toolchain/lib --set-interpreter /toolchain/lib/{LOADER}",
            id="a program gets interpreter and libraries",
        ),
        pytest.param(
            {"interpreter": "/lib/ld-musl-x86_64.so.1"}, None, id="a program for another C library"
        ),
    ],
)
def test_what_the_loader_reads_is_relocated_where_needed(
    tmp_path: Path,
    make_wheel: Callable[..., Path],
    make_elf: Callable[..., bytes],
    install: Callable[..., Any],
    links: dict[str, str],
    expected: str | None,
) -> None:
    files = {
        "a/x.libs/z.py": "",
        "a/lib/z.py": "",
        "a/b/lib/z.py": "",
        "a/b/thing": make_elf(**links),
    }
    done = install(make_wheel(tmp_path, "a", files))
    assert done.returncode == 0, done.stderr
    log = tmp_path / "patched"
    place = tmp_path / "out" / SITE / "a/b/thing"
    assert (log.read_text() if log.exists() else None) == (expected and f"{expected} {place}\n")


def test_packages_that_look_into_other_wheels_are_noted(
    tmp_path: Path,
    make_wheel: Callable[..., Path],
    make_elf: Callable[..., bytes],
    install: Callable[..., Any],
) -> None:
    files = {
        "a/lib/one.so": make_elf(rpath="$ORIGIN:$ORIGIN/../../other/lib"),
        "b/two.so": make_elf(rpath="$ORIGIN/../a/lib"),
    }
    install(make_wheel(tmp_path, "a", files))
    assert (tmp_path / "out/.spread").read_text() == "a\n"


@pytest.mark.parametrize(
    "damage",
    [
        *("not a zip", "cut off", "bit flipped", "encrypted", "compressed oddly"),
        *("no WHEEL", "no RECORD", "outside", "of the future", "bit flipped in lzma"),
    ],
)
def test_a_wheel_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, make_wheel: Callable[..., Path], install: Callable[..., Any], damage: str
) -> None:
    files: dict[str, str] = {"a/__init__.py": "x = 1\n" * 500}
    if damage == "outside":
        files["../../../../../evil.txt"] = ""
    if damage == "of the future":
        files["a-1.0.dist-info/WHEEL!"] = "Wheel-Version: 2.0\nRoot-Is-Purelib: true\n"
    without = {"no WHEEL": "WHEEL", "no RECORD": "RECORD", "of the future": "WHEEL"}.get(damage)
    wheel = make_wheel(tmp_path / "wheels", "a", files, without=without)
    if damage == "bit flipped in lzma":
        with zipfile.ZipFile(wheel) as old:
            members = {name: old.read(name) for name in old.namelist()}
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_LZMA) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    data = bytearray(wheel.read_bytes())
    if damage == "not a zip":
        data[:] = b"<html>"
    elif damage == "cut off":
        del data[len(data) // 2 :]
    elif damage.startswith("bit flipped"):
        data[60] ^= 0xFF
    elif damage in {"encrypted", "compressed oddly"}:
        field, bits = (8, 0x01) if damage == "encrypted" else (10, 0x40)
        for listed in re.finditer(rb"PK\x01\x02", data):
            data[listed.start() + field] ^= bits
    wheel.write_bytes(data)
    done = install(wheel)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("a-1.0-py3-none-any.whl is not a usable wheel: ")
    assert not list(tmp_path.rglob("evil.txt"))


def test_a_wheel_notes_the_libraries_that_it_lacks_and_those_that_others_may_need(
    tmp_path: Path,
    make_wheel: Callable[..., Path],
    make_elf: Callable[..., bytes],
    install: Callable[..., Any],
) -> None:
    needed = ("libc.so.6", "libown-1.so", "libGL.so.1", "libother.so.2")
    odd = ("lib\x1b[31m.so", "é.so", "../x.so", "x" * 256)
    files = {
        "some/_native.so": make_elf(needed=("/toolchain/lib/x", *odd, *needed)),
        "some.libs/libown-1.so": make_elf(),
        "some/plain.py": "",
    }
    wheel = make_wheel(tmp_path, "some", files, tag="cp311-cp311-linux_x86_64")
    assert install(wheel).returncode == 0
    noted = json.loads((tmp_path / "out/.libraries.json").read_text())
    assert noted["offers"] == ["_native.so", "libown-1.so"]
    (lacking,) = noted["lacks"].items()
    assert lacking[0] == f"{SITE}/some/_native.so"
    assert lacking[1] == ["libc.so.6", "libGL.so.1", "libother.so.2"]


@pytest.mark.parametrize("note", [".libraries.json", ".spread"])
def test_a_wheel_cannot_write_our_notes(
    tmp_path: Path, make_wheel: Callable[..., Path], install: Callable[..., Any], note: str
) -> None:
    done = install(make_wheel(tmp_path, "sly", {f"sly-1.0.data/data/{note}": "{}", "sly.py": ""}))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == (
        f"sly-1.0-py3-none-any.whl brings a file {note}, "
        "which environments take for a note of ours; pin another version"
    )


def test_a_pure_wheel_notes_no_libraries(
    tmp_path: Path, make_wheel: Callable[..., Path], install: Callable[..., Any]
) -> None:
    assert install(make_wheel(tmp_path, "pure", {"pure.py": ""})).returncode == 0
    assert not (tmp_path / "out/.libraries.json").exists()


def test_what_the_toolchain_has_is_not_lacking(builders: Any, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libc.so.6").touch()
    relocation = builders.wheel.Relocation(str(tmp_path), LOADER, "/patchelf")
    relocation._linked = {tmp_path / "a.so": ("libc.so.6", "libm.so.6")}
    assert relocation.libraries(tmp_path)["lacks"] == {"a.so": ["libm.so.6"]}


def test_what_only_debuggers_read_is_left_out_and_recorded_as_it_is(
    tmp_path: Path, make_wheel: Callable[..., Path], install: Callable[..., Any]
) -> None:
    import multidict

    [module] = Path(multidict.__file__).parent.glob("_multidict.*.so")
    published = module.read_bytes()
    wheel = make_wheel(tmp_path, "lean", {"lean/it.so": published}, tag="cp311-cp311-linux_x86_64")
    assert install(wheel).returncode == 0
    site = tmp_path / "out" / SITE
    found = (site / "lean/it.so").read_bytes()
    assert len(found) < len(published) / 2
    digest = urlsafe_b64encode(sha256(found).digest()).rstrip(b"=").decode()
    rows = (site / "lean-1.0.dist-info/RECORD").read_text().splitlines()
    assert f"lean/it.so,sha256={digest},{len(found)}" in rows
