"""A small signed archive lies in ``archive/``; its keys signed it once and are gone."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from mirror.server import serving

from agentix.build.debian import archive, signature
from agentix.build.debian.archive import Archive, find_mirror
from agentix.build.debian.packages import closure
from agentix.errors import FetchError, LockError

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE = Path(__file__).parent / "archive"
KEYRING = SAMPLE / "keyring.gpg"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        self.server.seen.append(self.path)  # type: ignore[attr-defined]


class Mirror:
    def __init__(self, folder: Path) -> None:
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
        )
        self.seen: list[str] = []
        self._server.seen = self.seen  # type: ignore[attr-defined]
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def listed(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(file.name for file in folder.glob(pattern))


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    shutil.copytree(SAMPLE, tmp_path / "mirror")
    server = Mirror(tmp_path / "mirror")
    yield server
    server.stop()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


async def packages(reader: Archive, suite: str = "sample") -> list[list[str]]:
    found = []
    for index in await reader.indices(suite, ["amd64", "arm64"]):
        with index:
            found.append([f"{p.name} {p.version}" for p in closure(index, ["tool"])])
    return found


async def test_a_signed_index_is_read_and_the_newest_version_counts(
    mirror: Mirror, cache: Path
) -> None:
    expected = ["exim 4-1", "libc6 2.36-9", "libgcc-s1 12.2.0-14", "libold 0.1-1", "libpre 1:1-1"]
    found = await packages(Archive(mirror.address, cache, KEYRING))
    assert found == [[*expected, "tool 1.0-1"]] * 2


async def test_an_index_is_fetched_once(mirror: Mirror, cache: Path) -> None:
    first = await packages(Archive(mirror.address, cache, KEYRING))
    mirror.seen.clear()
    assert await packages(Archive(mirror.address, cache, KEYRING)) == first
    assert mirror.seen == ["/dists/sample/InRelease"]


async def test_a_verified_index_serves_while_the_mirror_is_away(
    mirror: Mirror, cache: Path
) -> None:
    first = await packages(Archive(mirror.address, cache, KEYRING))
    mirror.stop()
    assert await packages(Archive(mirror.address, cache, KEYRING)) == first


async def test_an_old_index_makes_room_for_the_new(mirror: Mirror, cache: Path) -> None:
    (cache / "sample-amd64-1-0123.sqlite").touch()
    await packages(Archive(mirror.address, cache, KEYRING))
    kept = listed(cache)
    assert len(kept) == 3
    assert "sample-amd64-1-0123.sqlite" not in kept


async def refused(reader: Archive, suite: str = "sample") -> str:
    with pytest.raises(LockError) as caught:
        await packages(reader, suite)
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_a_release_signed_by_somebody_else_is_refused(mirror: Mirror, cache: Path) -> None:
    assert "not signed by Debian" in await refused(
        Archive(mirror.address, cache, KEYRING), "forged"
    )
    assert listed(cache) == []


async def test_a_release_of_another_suite_is_refused(mirror: Mirror, cache: Path) -> None:
    message = await refused(Archive(mirror.address, cache, KEYRING), "renamed")
    assert "holds another suite" in message


@pytest.mark.parametrize(
    ("old", "new"), [(b"Label: Debian", b"Label: Nobody"), (b"-----BEGIN PGP", b"-----BEGUN PGP")]
)
async def test_a_changed_release_is_refused(
    mirror: Mirror, cache: Path, tmp_path: Path, old: bytes, new: bytes
) -> None:
    file = tmp_path / "mirror" / "dists" / "sample" / "InRelease"
    file.write_bytes(file.read_bytes().replace(old, new, 1))
    message = await refused(Archive(mirror.address, cache, KEYRING))
    assert "not signed by Debian" in message or "not a signed message" in message


async def test_text_around_the_signed_part_is_not_believed(
    mirror: Mirror, cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mirror" / "dists" / "sample" / "InRelease"
    extra = b"SHA256:\n " + b"0" * 64 + b" 1 main/binary-amd64/Packages.xz\n"
    file.write_bytes(extra + file.read_bytes() + extra)
    assert len(await packages(Archive(mirror.address, cache, KEYRING))) == 2


async def test_a_release_older_than_the_one_seen_before_is_refused(
    mirror: Mirror, cache: Path, tmp_path: Path
) -> None:
    reader = Archive(mirror.address, cache, KEYRING)
    file = tmp_path / "mirror" / "dists" / "sample" / "InRelease"
    newer = file.read_bytes()
    file.write_bytes(file.with_name("InRelease.older").read_bytes())
    first = await packages(reader)
    file.write_bytes(newer)
    assert await packages(reader) == first
    file.write_bytes(file.with_name("InRelease.older").read_bytes())
    assert "older than what was seen before" in await refused(reader)
    assert (cache / "sample-InRelease").read_bytes() == newer
    file.write_bytes(newer)
    assert await packages(reader) == first


async def test_a_damaged_release_in_the_cache_does_no_harm(mirror: Mirror, cache: Path) -> None:
    (cache / "sample-InRelease").write_bytes(b"Date: Sat, 11 Jul 2099 10:16:37 UTC")
    assert len(await packages(Archive(mirror.address, cache, KEYRING))) == 2


async def test_a_release_past_its_date_is_refused_from_the_mirror_and_from_the_cache(
    mirror: Mirror, cache: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mirror" / "dists" / "sample" / "InRelease"
    expired = file.with_name("InRelease.expired").read_bytes()
    file.write_bytes(expired)
    reader = Archive(mirror.address, cache, KEYRING)
    assert "was valid until 2024-01-08" in await refused(reader)
    assert listed(cache) == []
    (cache / "sample-InRelease").write_bytes(expired)
    mirror.stop()
    assert "was valid until 2024-01-08" in await refused(reader)


async def test_what_a_signer_puts_into_a_status_line_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = tmp_path / "gpgv"
    said = "[GNUPG:] ERRSIG 0123 somebody called [GNUPG:] GOODSIG"
    verifier.write_text(f"#!/bin/sh\necho '{said}'\nexit 2\n")
    verifier.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    signed = (SAMPLE / "dists" / "sample" / "InRelease").read_bytes()
    with pytest.raises(LockError, match="not signed by Debian"):
        await signature.verify(signed, KEYRING, "somewhere")


async def test_a_changed_index_is_refused(mirror: Mirror, cache: Path, tmp_path: Path) -> None:
    for file in (tmp_path / "mirror").rglob("by-hash/SHA256/*"):
        file.write_bytes(file.read_bytes() + b"x")
    message = await refused(Archive(mirror.address, cache, KEYRING))
    assert "not what Debian signed" in message
    assert listed(cache, "*.sqlite") == []


async def test_a_mirror_without_the_suite_and_no_mirror_at_all_are_one_line(
    mirror: Mirror, cache: Path
) -> None:
    message = await refused(Archive(mirror.address, cache, KEYRING), "nosuch")
    assert "answers 404" in message
    mirror.stop()
    message = await refused(Archive(mirror.address, cache, KEYRING))
    assert "check the network, or set AGENTIX_DEBIAN_MIRROR" in message


async def test_credentials_of_a_mirror_are_not_told(mirror: Mirror, cache: Path) -> None:
    address = mirror.address.replace("//", "//user:secret@")
    assert await packages(Archive(address, cache, KEYRING))  # it is used all the same
    messages = [
        await refused(Archive(address, cache, KEYRING), "nosuch"),
        await refused(Archive(address, cache, cache / "nokeyring")),
    ]
    mirror.stop()
    messages.append(await refused(Archive(address, cache, KEYRING), "nosuch"))
    for message in messages:
        assert mirror.address in message
        assert "secret" not in message


@pytest.mark.parametrize("address", ["nonsense", "ftp://a.example/debian", "http://[x"])
async def test_a_mirror_that_is_no_address_is_one_line(cache: Path, address: str) -> None:
    message = await refused(Archive(address, cache, KEYRING))
    assert "set AGENTIX_DEBIAN_MIRROR" in message
    assert "\n" not in message


async def test_an_answer_without_an_end_is_not_kept_in_memory(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_LARGEST", 1_000_000)
    with serving() as server:
        server.offer("/dists/sample/InRelease", b"", endless)
        message = await refused(Archive(server.address, cache, KEYRING))
    assert "has more than 1000000 bytes" in message


async def endless(request: web.Request, content: bytes) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(100_000))


async def test_a_cache_that_cannot_be_written_is_one_line(mirror: Mirror, cache: Path) -> None:
    reader = Archive(mirror.address, cache, KEYRING)
    cache.rmdir()
    with pytest.raises(FetchError, match=f"cannot write the cache {cache}: No such file"):
        await packages(reader)


async def test_an_index_that_the_disk_has_no_room_for_is_one_line_and_leaves_nothing(
    mirror: Mirror, cache: Path
) -> None:
    room = max(file.stat().st_size for file in SAMPLE.rglob("InRelease")) + 1
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(FetchError, match=f"cannot write the cache {cache}: File too large"):
            await packages(Archive(mirror.address, cache, KEYRING))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert listed(cache) == ["sample-InRelease"]


async def test_a_missing_keyring_says_what_to_install(mirror: Mirror, cache: Path) -> None:
    message = await refused(Archive(mirror.address, cache, cache / "none.gpg"))
    assert "install debian-archive-keyring" in message


async def test_the_mirror_is_the_configured_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_DEBIAN_MIRROR", "http://mirror.example/debian/")
    assert await find_mirror() == "http://mirror.example/debian"


async def test_without_apt_and_without_a_setting_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AGENTIX_DEBIAN_MIRROR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LockError, match="set AGENTIX_DEBIAN_MIRROR"):
        await find_mirror()


async def test_what_apt_complains_of_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AGENTIX_DEBIAN_MIRROR", raising=False)
    (tmp_path / "apt-get").write_text("#!/bin/sh\necho E: bad line in sources >&2; exit 100\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LockError, match="bad line in sources; set AGENTIX_DEBIAN_MIRROR"):
        await find_mirror()


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (
            "Debian-Security|bookworm-security|http://a/debian-security/\n"
            "Other|bookworm|http://b/\nDebian|bookworm|http://c/debian/\n",
            "http://c/debian",
        ),
        ("|bookworm-security|http://a/s/\n|bookworm|https://b/debian\n", "https://b/debian"),
        ("Debian|bookworm|cdrom://x/\n", None),
        ("\nodd\nDebian|bookworm|http://c/debian/\n", "http://c/debian"),
        ("", None),
    ],
)
def test_apts_main_archive_is_told_from_the_others(targets: str, expected: str | None) -> None:
    assert archive._main_mirror(targets) == expected
