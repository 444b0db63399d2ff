"""The Debian archive: where it is, and why its index can be trusted.

The mirror's address comes from the machine (apt's configuration, or ``AGENTIX_DEBIAN_MIRROR``), the
trust from Debian's archive keyring: it verifies the Release file, which holds the sha256 of each
index, which holds the sha256 of each package. Verified indices are kept in the user's cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import os
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from agentix.build.command import Command
from agentix.build.debian import signature
from agentix.build.debian.index import INDEX_FORMAT, SuiteIndex, write_index
from agentix.build.download import shown
from agentix.build.session import open_session
from agentix.errors import LockError
from agentix.folders import cache_folder, writing
from agentix.progress import SILENT, Progress
from agentix.replacing import replacing
from agentix.ungrouped import ungrouped

if TYPE_CHECKING:
    from collections.abc import Sequence

MIRROR_VARIABLE = "AGENTIX_DEBIAN_MIRROR"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TIMEOUT = 600
_LARGEST = 128 * 1024 * 1024  # bytes; the largest index has a tenth of that
_CHUNK = 256 * 1024
_PATIENCE = 60.0  # seconds for apt-get to read its configuration


async def find_mirror() -> str:
    """Return the address of the Debian archive that this machine uses, without a final slash.

    Raises LockError when neither ``AGENTIX_DEBIAN_MIRROR`` nor apt's configuration names one.
    """
    if configured := os.environ.get(MIRROR_VARIABLE):
        return configured.rstrip("/")
    with contextlib.suppress(FileNotFoundError):
        words = ["apt-get", "indextargets", "--format", "$(LABEL)|$(RELEASE)|$(REPO_URI)"]
        asked = await Command(words, raises=LockError, timeout=_PATIENCE).run_aside()
        if asked.status != 0:
            raise LockError(
                f"apt-get cannot tell the Debian archive of this machine: {asked.reason}; "
                f"set {MIRROR_VARIABLE} to the address of a mirror"
            )
        if mirror := _main_mirror(asked.output.decode(errors="replace")):
            return mirror
    raise LockError(
        "no Debian archive is configured on this machine; "
        f"set {MIRROR_VARIABLE} to the address of a mirror"
    )


def _main_mirror(targets: str) -> str | None:
    """Choose the main archive among apt's index targets, not the security one."""
    unlabelled = None
    for line in targets.splitlines():
        label, release, address = [*line.split("|", 2), "", ""][:3]
        if not address.startswith(("http://", "https://")):
            continue
        if label == "Debian":
            return address.rstrip("/")
        if not label and re.fullmatch(r"bookworm|trixie|forky|sid|(old)*stable|testing", release):
            unlabelled = unlabelled or address.rstrip("/")  # apt has not been updated yet
    return unlabelled


class Archive:
    """A Debian mirror, its signature checked with *keyring*, its indices kept below *cache*."""

    def __init__(self, mirror: str, cache: Path | None = None, keyring: Path = KEYRING) -> None:
        self.mirror = mirror
        self._suites = f"{shown(mirror)}/dists"  # for people: the mirror's may have credentials
        self._cache = cache or cache_folder("debian")
        self._keyring = keyring

    async def indices(
        self, suite: str, architectures: Sequence[str], progress: Progress = SILENT
    ) -> list[SuiteIndex]:
        """Return the verified index of *suite*'s main component for each architecture.

        Raises LockError when the mirror cannot be reached and nothing verified is in the cache, or
        when something is not what Debian signed.
        """
        with progress.step("index") as step:
            async with open_session(len(architectures)) as session:
                release = await self._release(session, suite)
                sums = _checksums(release)
                with ungrouped():
                    async with asyncio.TaskGroup() as group:
                        tasks = [
                            group.create_task(self._index(session, suite, architecture, sums))
                            for architecture in architectures
                        ]
            files = [task.result() for task in tasks]
            state = "fetched" if any(fresh for _, fresh in files) else "cached"
            step.outcome(f"Debian {suite}, {state}")
        return [SuiteIndex(file) for file, _ in files]

    def kept(self, suite: str, architecture: str) -> SuiteIndex | None:
        """Return the index that is in the cache, verified when it came, however old it is."""
        files = self._cache.glob(f"{suite}-{architecture}-{INDEX_FORMAT}-*.sqlite")
        file = next(iter(sorted(files)), None)
        return None if file is None else SuiteIndex(file)

    async def download(self, session: aiohttp.ClientSession, path: str) -> bytes:
        """Return the file at *path* below the archive's root; LockError when it cannot be had."""
        address, data = f"{self.mirror}/{path}", bytearray()
        try:
            async with asyncio.timeout(_TIMEOUT), session.get(address) as response:
                if response.status != 200:
                    raise LockError(
                        f"cannot fetch {shown(address)}: the mirror answers {response.status}; "
                        f"check the mirror, or set {MIRROR_VARIABLE} to another"
                    )
                async for chunk in response.content.iter_chunked(_CHUNK):
                    data += chunk
                    if len(data) > _LARGEST:
                        raise LockError(
                            f"cannot fetch {shown(address)}: it has more than {_LARGEST} bytes; "
                            f"check the mirror, or set {MIRROR_VARIABLE} to another"
                        )
        except aiohttp.InvalidURL as error:
            raise LockError(
                f"the address of the Debian archive, {shown(address)!r}, is not valid; "
                f"set {MIRROR_VARIABLE} to that of a mirror"
            ) from error
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise LockError(
                f"cannot fetch {shown(address)}: {str(error) or type(error).__name__}; "
                f"check the network, or set {MIRROR_VARIABLE} to another mirror"
            ) from error
        return bytes(data)

    async def _release(self, session: aiohttp.ClientSession, suite: str) -> str:
        """Return the signed Release text: the mirror's, or the last one seen when it is away."""
        kept = self._cache / f"{suite}-InRelease"
        try:
            signed = await self.download(session, f"dists/{suite}/InRelease")
        except LockError:
            if not kept.exists():
                raise
            return await self._verified(kept.read_bytes(), suite)
        release = await self._verified(signed, suite)
        before = kept.read_bytes() if kept.exists() else b""
        if before != signed:
            self._refuse_replay(release, before, suite)
            with writing(self._cache), replacing(kept) as draft:
                draft.write_bytes(signed)
        return release

    def _refuse_replay(self, release: str, before: bytes, suite: str) -> None:
        """Raise LockError when *release* is older than the one seen *before*: signed, but stale."""
        try:
            known = _date(signature.signed_text(before, "what is in the cache"), "Date")
        except LockError:
            return  # nothing was seen before, or it is damaged
        offered = _date(release, "Date")
        if known and offered and offered < known:
            raise LockError(
                f"{self._suites}/{suite} is of {offered}, older than what was seen before, of "
                f"{known}; wait for the mirror to catch up, or set {MIRROR_VARIABLE} to another"
            )

    async def _verified(self, signed: bytes, suite: str) -> str:
        """Return what Debian signed in *signed*; LockError unless it is a Release of *suite*."""
        release = await signature.verify(signed, self._keyring, f"{self._suites}/{suite}")
        if f"\nCodename: {suite}\n" not in release:
            raise LockError(f"{self._suites}/{suite} holds another suite; check the mirror")
        until = _date(release, "Valid-Until")
        if until and until < datetime.now(UTC):
            raise LockError(
                f"{self._suites}/{suite} was valid until {until}; check the clock, or set "
                f"{MIRROR_VARIABLE} to a mirror that is up to date"
            )
        return release

    async def _index(
        self, session: aiohttp.ClientSession, suite: str, architecture: str, sums: dict[str, str]
    ) -> tuple[Path, bool]:
        name = f"main/binary-{architecture}/Packages.xz"
        if name not in sums:
            raise LockError(f"{self._suites} has no {architecture} packages for {suite}")
        expected = sums[name]
        prefix = f"{suite}-{architecture}-"
        file = self._cache / f"{prefix}{INDEX_FORMAT}-{expected}.sqlite"
        if file.exists():
            return file, False
        data = await self.download(
            session, f"dists/{suite}/main/binary-{architecture}/by-hash/SHA256/{expected}"
        )
        if hashlib.sha256(data).hexdigest() != expected:
            raise LockError(
                f"{self._suites}/{suite}: the index for {architecture} is not what Debian signed; "
                "try again, or another mirror"
            )
        with writing(self._cache):
            await asyncio.to_thread(write_index, data, file)
        for old in self._cache.glob(f"{prefix}*.sqlite"):
            if old != file:
                old.unlink(missing_ok=True)
        return file, True


def _date(release: str, field: str) -> datetime | None:
    """Return the time in a *field* of a Release file, if it has that."""
    found = re.search(rf"^{field}: (.+)$", release, re.MULTILINE)
    if found is None:
        return None
    try:
        return parsedate_to_datetime(found[1]).astimezone(UTC)
    except ValueError as error:
        raise LockError(f"the Debian archive's {field} {found[1]!r} is not understood") from error


def _checksums(release: str) -> dict[str, str]:
    """Return the sha256 of each file that a Release file lists."""
    _, _, section = release.partition("\nSHA256:\n")
    listed = itertools.takewhile(lambda line: line.startswith(" "), section.splitlines())
    return {name: checksum for checksum, _, name in map(str.split, listed)}
