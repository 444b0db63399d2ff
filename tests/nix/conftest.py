"""What the tests of nix/ share: the builders, as modules and as programs, and their food."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import installer
import pyproject_hooks
import pytest

from agentix import nix, platforms
from agentix.build.fetch import fetch, needs
from agentix.build.lock import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPOSITORY = Path(__file__).parents[2]
BUILDERS = REPOSITORY / "nix/builders"


@pytest.fixture(scope="session")
def builders() -> SimpleNamespace:
    """The builders' modules, under names of their own in no one else's way."""
    names = sorted(path.stem for path in BUILDERS.glob("*.py"))
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(BUILDERS))
    try:
        modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(BUILDERS))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)
    return SimpleNamespace(**modules)


@pytest.fixture
def run_step(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a builder as a derivation would: one value in, the path ``out`` as its result."""

    def run(script: str, config: Mapping[str, Any], out: Path) -> subprocess.CompletedProcess[str]:
        top = tmp_path / f"build-of-{out.name}"
        top.mkdir()
        (top / "config").write_text(json.dumps(config))
        return subprocess.run(
            [sys.executable, "-s", "-B", BUILDERS / script],
            env={
                "configPath": str(top / "config"),
                "out": str(out),
                "NIX_BUILD_TOP": str(top),
                "PATH": os.environ["PATH"],
                "PYTHONHASHSEED": "0",
                "PYTHONUTF8": "1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture(scope="session")
def helpers() -> dict[str, str]:
    """Where the wheels are that builders import, by their name in a step's value."""
    return {
        "installer": str(Path(installer.__file__).parents[1]),
        "hooks": str(Path(pyproject_hooks.__file__).parents[1]),
    }


@pytest.fixture(scope="session")
def make_wheel() -> Callable[..., Path]:
    """Write a wheel with the given files; those whose name ends with ``!`` are executable."""

    def make(
        folder: Path,
        name: str,
        files: Mapping[str, bytes | str],
        *,
        version: str = "1.0",
        tag: str = "py3-none-any",
        entry_points: str | None = None,
        without: str | None = None,
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        info = f"{name}-{version}.dist-info"
        pure = str(tag.endswith("-any")).lower()
        members: dict[str, bytes | str] = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: {pure}\nTag: {tag}\n",
        }
        if entry_points is not None:
            members[f"{info}/entry_points.txt"] = entry_points
        path = folder / f"{name}-{version}-{tag}.whl"
        record = ""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                if member == f"{info}/{without}":
                    continue
                data = content.encode() if isinstance(content, str) else content
                entry = zipfile.ZipInfo(member.removesuffix("!"), (1980, 1, 1, 0, 0, 0))
                entry.external_attr = (0o100755 if member.endswith("!") else 0o100644) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                record += f"{entry.filename},sha256={digest.decode()},{len(data)}\n"
            if without != "RECORD":
                archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
        return path

    return make


@pytest.fixture(scope="session")
def make_elf() -> Callable[..., bytes]:
    """Return the bytes of a small ELF file that says how it wants to be loaded."""

    def make(
        *,
        interpreter: str | None = None,
        rpath: str | None = None,
        runpath: str | None = None,
        needed: tuple[str, ...] = (),
        machine: int = 62,
    ) -> bytes:
        base, header, entry = 0x400000, 64, 56
        strings = b"\0"
        dynamic: list[tuple[int, int]] = []
        for tag, text in [*((1, n) for n in needed), (15, rpath), (29, runpath)]:
            if text is not None:
                dynamic.append((tag, len(strings)))
                strings += text.encode() + b"\0"
        count = 3 if interpreter else 2
        start = header + count * entry
        loader = (interpreter or "").encode() + b"\0"
        dynamic += [(5, base + start + len(loader)), (0, 0)]
        table = b"".join(struct.pack("<qQ", *item) for item in dynamic)
        content = loader + strings + table
        size = start + len(content)
        segments = [
            (1, 0, base, size),
            (2, size - len(table), base + size - len(table), len(table)),
        ]
        if interpreter:
            segments.append((3, start, base + start, len(loader)))
        headers = b"".join(
            struct.pack("<IIQQQQQQ", kind, 4, offset, address, address, length, length, 8)
            for kind, offset, address, length in segments
        )
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        fixed = struct.pack(
            "<HHIQQQIHHHHHH", 3, machine, 1, 0, header, 0, 0, header, entry, count, 0, 0, 0
        )
        return ident + fixed + headers + content

    return make


@pytest.fixture(scope="session")
def stocked() -> Callable[[str, str], None]:
    """Bring into the store what building a toolchain for a platform starts from."""
    lock = load(REPOSITORY / "examples/hello-world/bundle.lock")

    def stock(toolchain: str, platform: str) -> None:
        wanted = lock.model_copy(update={"toolchain": toolchain})
        needed = needs(wanted, platforms.parse(platform).name, platforms.current().name)
        fetch(needed, project=REPOSITORY, python=lock.python)

    return stock


@pytest.fixture(scope="session")
def toolchain(stocked: Callable[[str, str], None]) -> Callable[[str, str], Path]:
    """Build a pinned toolchain for a platform."""

    def build(name: str, platform: str) -> Path:
        stocked(name, platform)
        arguments = {"name": name, "platform": platform}
        return nix.build(Path(__file__).with_name("toolchain.nix"), arguments)

    return build


@pytest.fixture(scope="session")
def busybox(stocked: Callable[[str, str], None]) -> Path:
    """The static busybox in the store, as the folder that launchers are given."""
    host = platforms.current().name
    stocked("debian-12", host)
    seed = json.loads((REPOSITORY / "nix/toolchains/seeds.json").read_text())["programs"][host]
    return Path(nix.fixed_path("busybox", seed["busybox"]["sha256"], recursive=True))
