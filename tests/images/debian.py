"""Debian packages by way of apt, with a package database of its own.

apt does what it does best: find the mirror's index, check the archive's signature, resolve
dependencies, download and verify. The machine's own package state is neither read nor touched,
so any suite can be asked for, also from another Debian.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from agentix.bundle.staging import acquire

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TIMEOUT = 300.0
# Maintainer scripts are not run, so these would bring nothing but their size.
UNUSED = ("debconf-", "dpkg-", "perl-base-", "mawk-", "debianutils-", "tar-")


class ImagesUnavailable(RuntimeError):  # noqa: N818 - the message is the reason to skip
    """Task images cannot be made on this machine."""


def mirror() -> str:
    """Return the Debian archive that this machine is configured to use."""
    if chosen := os.environ.get("AGENTIX_DEBIAN_MIRROR"):
        return chosen
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Origin: Debian",
        "Label: Debian",
    ]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ImagesUnavailable(f"apt does not say which Debian mirror to use: {error}") from error
    addresses = result.stdout.split()
    if not addresses:
        raise ImagesUnavailable(
            "apt has no index of Debian; run apt-get update or set AGENTIX_DEBIAN_MIRROR"
        )
    return addresses[0]


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold the lock *file* against all other processes."""
    lock = acquire(file, TIMEOUT)
    if lock is None:
        raise TimeoutError(f"somebody has held {file} for {TIMEOUT:.0f} s")
    try:
        yield
    finally:
        os.close(lock)


def download(
    suite: str,
    packages: Sequence[str],
    cache: Path,
    *,
    alone: bool,
    architecture: str | None = None,
) -> list[Path]:
    """Return the .debs of *packages* and, unless *alone*, of all they depend on.

    They are for this machine unless an *architecture* is named, as Debian does it.
    """
    cache.mkdir(parents=True, exist_ok=True)
    name = suite if architecture is None else f"{suite}-{architecture}"
    with held(cache / f"{name}.lock"):
        apt = _Apt(suite, cache / name, architecture)
        if apt.update():
            return apt.fetch(packages, alone=alone)
        try:
            return apt.fetch(packages, alone=alone)
        except ImagesUnavailable:
            # A point release replaces packages: the index that was fetched earlier is too old.
            apt.update(again=True)
            return apt.fetch(packages, alone=alone)


class _Apt:
    """apt for one suite, in a folder of its own."""

    def __init__(self, suite: str, root: Path, architecture: str | None) -> None:
        self.root = root
        for name in ("lists/partial", "archives/partial", "none/partial"):
            (root / name).mkdir(parents=True, exist_ok=True)
        # An empty database: nothing counts as installed, so a closure is complete.
        (root / "status").write_text("")
        self.source = f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n"
        self.options: dict[str, Path | str] = {
            "Dir::State": root,
            "Dir::State::lists": root / "lists",
            "Dir::State::status": root / "status",
            "Dir::Cache": root,
            "Dir::Cache::archives": root / "archives",
            "Dir::Etc::sourcelist": root / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Sandbox::User": "root",
            "APT::Keep-Downloaded-Packages": "true",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Acquire::Check-Valid-Until": "false",  # a mirror may stand still, and signed it is
            "Debug::NoLocking": "true",
        }
        if architecture is not None:
            self.options |= {"APT::Architecture": architecture, "APT::Architectures": architecture}

    def update(self, *, again: bool = False) -> bool:
        """Fetch the index of the suite unless it is here; return whether it was fetched."""
        sources = self.root / "sources.list"
        if not again and sources.exists() and sources.read_text() == self.source:
            return False
        sources.with_suffix(".new").write_text(self.source)
        self.options["Dir::Etc::sourcelist"] = sources.with_suffix(".new")
        self._run("update", "--error-on=any")
        sources.with_suffix(".new").rename(sources)
        self.options["Dir::Etc::sourcelist"] = sources
        return True

    def fetch(self, packages: Sequence[str], *, alone: bool) -> list[Path]:
        """Download what is missing and return the files, sorted by name."""
        archives = self.root / "archives"
        if alone:
            # `apt-get download` writes into the working directory.
            self._run("download", *packages)
            return [max(archives.glob(f"{name}_*.deb"), key=_modified) for name in packages]
        install = ("install", "--yes", "--no-install-recommends", *packages)
        listing = self._run(
            *install, "--print-uris", "-o", f"Dir::Cache::archives={self.root}/none"
        )
        names = [line.split()[1] for line in listing.splitlines() if line.startswith("'")]
        self._run(*install, "--download-only")
        return sorted(archives / name for name in names)

    def _run(self, *arguments: str) -> str:
        options = [f"-o{name}={value}" for name, value in self.options.items()]
        command = ["apt-get", "-q", *options, *arguments]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT, cwd=self.root / "archives"
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ImagesUnavailable(f"apt-get cannot be run: {error}") from error
        if result.returncode:
            last = result.stderr.strip().splitlines()[-1:] or ["no message"]
            raise ImagesUnavailable(f"apt-get {arguments[0]} failed: {last[0]}")
        return result.stdout


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns


def unpack(debs: Sequence[Path], rootfs: Path) -> None:
    """Unpack *debs* into *rootfs*, with /bin, /lib and /sbin as links into /usr."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (rootfs / "usr" / name).mkdir(parents=True, exist_ok=True)
        (rootfs / name).symlink_to(f"usr/{name}")
    for path in (rootfs / "usr", *(rootfs / "usr").iterdir()):
        path.chmod(0o755)
    for deb in debs:
        if deb.name.startswith(UNUSED):
            continue
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE
        ) as source:
            subprocess.run(
                ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-p", "-C", rootfs],
                stdin=source.stdout, check=True, timeout=TIMEOUT,
            )  # fmt: skip
        if source.returncode:
            raise ImagesUnavailable(f"dpkg-deb cannot unpack {deb.name}")
