"""Images of a registry: fetched by the real skopeo, from a real registry that may be unwell."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import logging
import os
import shutil
import signal
import stat
import sys
import tarfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from heard import Heard
from images.debian import ImagesUnavailable
from images.registry import NAME, Published, Registry, program
from patience import eventually_async

from agentix import platforms
from agentix.errors import ImageError
from agentix.provider.images.store import Image, ImageStore
from agentix.provider.stopping import stoppable
from agentix.reference import Reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.provider.stopping import Stop

HERE = platforms.current().debian
ELSEWHERE = "arm64" if HERE == "amd64" else "amd64"


@pytest.fixture(scope="module")
def _registry_here() -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed (tools/setup.sh tests installs it)")
    try:
        program()
    except ImagesUnavailable as error:
        pytest.skip(f"there is no registry here: {error}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has configured nothing."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home/.config/containers").mkdir(parents=True)
    return tmp_path / "home"


pytestmark = pytest.mark.usefixtures("_registry_here", "home")


def layer(*members: tuple[str, str | bytes | None, int], packing: str = "+gzip") -> Any:
    """Return a layer: names with a content, a link's target (``->x``, ``=>x``) or None."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content, mode in members:
            member = tarfile.TarInfo(name)
            member.mode = mode
            if content is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(content, str) and content[:2] in {"->", "=>"}:
                member.type = tarfile.SYMTYPE if content[0] == "-" else tarfile.LNKTYPE
                member.linkname = content[2:]
            data = content.encode() if isinstance(content, str) else content or b""
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    plain = buffer.getvalue()
    return plain, gzip.compress(plain, 1, mtime=0) if packing else plain, packing


def published(text: str = "one", architecture: str = HERE) -> Published:
    return Published.layered([layer(("file", text, 0o644))], architecture, User="7")


def store(tmp_path: Path, registry: Registry | None = None, **options: Any) -> ImageStore:
    insecure = [registry.address] if registry else []
    return ImageStore(tmp_path / "cache", insecure=insecure, **options)


async def opened(tmp_path: Path, registry: Registry, reference: str = "", **options: Any) -> Image:
    images = store(tmp_path, registry, **options)
    return await asyncio.to_thread(images.open, reference or registry.reference)


def unpacked(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache/images").glob("sha256-*")]


def staged(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache/staging").glob("*"))


def age(tmp_path: Path) -> None:
    """Have the answers of registries be old."""
    for path in (tmp_path / "cache/images/names").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"asked": 0.0}))


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def test_an_image_is_fetched_once_and_unpacked_as_an_engine_would(tmp_path: Path) -> None:
    layers = [
        layer(
            ("etc", None, 0o755),
            ("etc/gone", "x", 0o644),
            ("etc/secret", "s", 0o640),
            ("opt", None, 0o755),
            ("opt/old", "x", 0o644),
            ("bin", "->usr/bin", 0o777),
            ("usr/bin/tool", os.urandom(300_000), 0o755),
        ),
        layer(
            ("etc/.wh.gone", "", 0o644),
            ("opt/.wh..wh..opq", "", 0o644),
            ("opt/new", "y", 0o444),
            ("usr/bin/same", "=>usr/bin/tool", 0o755),
            packing="",
        ),
    ]
    heard = Heard()
    image = Published.layered(layers, HERE, User="7", Env=["A=b"], WorkingDir="/opt")
    async with Registry(image, tmp_path).serving() as registry:
        with umask(0o077):
            found = await opened(tmp_path, registry, progress=heard)
        assert (await opened(tmp_path, registry)).root == found.root
        sent = registry.blobs
    assert sent == 3  # the configuration and two layers
    assert heard.steps == [f"pull {registry.reference}", f"unpack {registry.reference}"]
    assert heard.amount > 300_000
    assert (found.run.user, found.run.env, found.run.working_dir) == ("7", ("A=b",), "/opt")
    assert found.platform == platforms.current().name
    root = found.root
    names = {str(path.relative_to(root)) for path in root.rglob("*")}
    assert names == {
        *("bin", "etc", "etc/secret", "opt", "opt/new"),
        *("usr", "usr/bin", "usr/bin/same", "usr/bin/tool"),
    }
    assert (root / "bin").readlink() == Path("usr/bin")
    assert (root / "usr/bin/same").samefile(root / "usr/bin/tool")
    assert stat.S_IMODE((root / "usr/bin/tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "etc/secret").stat().st_mode) == 0o640
    for folder in (root, root.parent, root / "usr", root / "usr/bin"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755, folder
    assert staged(tmp_path) == []


async def test_of_several_platforms_this_machines_is_taken(tmp_path: Path) -> None:
    async with Registry(None, tmp_path).serving() as registry:
        both = {HERE: published("ours"), ELSEWHERE: published("theirs", ELSEWHERE)}
        for name, each in both.items():
            await registry.push(each, name)
        await registry.push(Published.index(both), "both")
        await registry.push(Published.index({ELSEWHERE: both[ELSEWHERE]}), "theirs")
        found = await opened(tmp_path, registry, f"{registry.address}/{NAME}:both")
        assert (found.root / "file").read_text() == "ours"
        with pytest.raises(ImageError, match=f"is for linux/{ELSEWHERE}, not for linux/{HERE}"):
            await opened(tmp_path, registry, f"{registry.address}/{NAME}:theirs")
    assert unpacked(tmp_path) == [f"sha256-{both[HERE].digest}"]


@pytest.mark.parametrize("status", [429, 502])
async def test_a_registry_that_is_unwell_for_a_moment_is_asked_again(
    tmp_path: Path, status: int
) -> None:
    async with Registry(published(), tmp_path, failures=1, status=status).serving() as registry:
        assert ((await opened(tmp_path, registry)).root / "file").read_text() == "one"
        assert registry.pulls >= 3  # the failure, the question, the image


async def test_what_the_registry_does_not_have_fails_at_once(tmp_path: Path) -> None:
    async with Registry(published(), tmp_path).serving() as registry:
        begun = time.monotonic()
        with pytest.raises(ImageError, match=r"cannot be pulled: .*manifest unknown"):
            await opened(tmp_path, registry, f"{registry.address}/{NAME}:2")
        assert registry.pulls == 1
        assert time.monotonic() - begun < 10
    assert unpacked(tmp_path) == []


async def test_a_private_registry_wants_the_users_own_login(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Registry(published(), tmp_path, private=True).serving() as registry:
        with pytest.raises(ImageError, match="log in to the registry with skopeo login"):
            await opened(tmp_path, registry)
        assert registry.pulls == 1
        (home / "auth.json").write_text(registry.login())
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(home / "auth.json"))
        assert ((await opened(tmp_path, registry)).root / "file").exists()


async def test_a_registry_without_tls_is_named_by_the_user(tmp_path: Path, home: Path) -> None:
    async with Registry(published(), tmp_path).serving() as registry:
        plain = store(tmp_path)
        with pytest.raises(ImageError, match=r"insecure_registries.*registries\.conf"):
            await asyncio.to_thread(plain.open, registry.reference)
        settings = f'[[registry]]\nlocation = "{registry.address}"\ninsecure = true\n'
        (home / ".config/containers/registries.conf").write_text(settings)
        found = await asyncio.to_thread(plain.open, f"docker://{registry.reference}")
        assert (found.root / "file").exists()


async def test_a_tag_that_means_another_image_is_noticed_and_a_digest_never_asked_for_again(
    tmp_path: Path,
) -> None:
    async with Registry(published("one"), tmp_path).serving() as registry:
        assert ((await opened(tmp_path, registry)).root / "file").read_text() == "one"
        pinned = f"{registry.reference}@sha256:{published('one').digest}"
        await opened(tmp_path, registry, pinned)
        await registry.push(published("two"))
        asked = registry.pulls
        assert ((await opened(tmp_path, registry)).root / "file").read_text() == "one"
        age(tmp_path)
        assert ((await opened(tmp_path, registry, pinned)).root / "file").read_text() == "one"
        missing = await opened(tmp_path, registry, pull="missing")
        assert (missing.root / "file").read_text() == "one"
        assert registry.pulls == asked
        assert ((await opened(tmp_path, registry)).root / "file").read_text() == "two"
    assert len(unpacked(tmp_path)) == 2


async def test_without_the_registry_what_is_here_is_used_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Registry(published(), tmp_path).serving() as registry:
        await opened(tmp_path, registry)
    age(tmp_path)
    with caplog.at_level(logging.WARNING, "agentix.provider.images"):
        for _ in range(2):
            assert ((await opened(tmp_path, registry)).root / "file").read_text() == "one"
    (said,) = [record.getMessage() for record in caplog.records]
    assert registry.reference in said
    assert "using what it was on 20" in said
    with pytest.raises(ImageError, match=r"cannot be pulled: .*connection refused"):
        await opened(tmp_path, registry, f"{registry.address}/{NAME}:2")
    with pytest.raises(ImageError, match="pulling is switched off"):
        await opened(tmp_path, registry, f"{registry.address}/{NAME}:2", pull="never")


async def test_two_at_once_fetch_it_once(tmp_path: Path) -> None:
    async with Registry(published(), tmp_path).serving() as registry:
        found = await asyncio.gather(*(opened(tmp_path, registry) for _ in range(4)))
        assert {image.root for image in found} == {found[0].root}
        assert registry.blobs == 2


async def test_a_fetch_that_nobody_wants_any_more_leaves_nothing(tmp_path: Path) -> None:
    stuck = asyncio.Event()
    async with Registry(published(), tmp_path, stuck=stuck).serving() as registry:

        def fetch(stop: Stop) -> Image:
            return store(tmp_path, registry, stop=stop).open(registry.reference)

        def wait(stop: Stop) -> Image:
            return store(tmp_path, registry, stop=stop).open(registry.reference)

        first = asyncio.create_task(stoppable(fetch, name="first"))
        await asyncio.wait_for(stuck.wait(), 30)
        second = asyncio.create_task(stoppable(wait, name="second"))
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert time.monotonic() - begun < 10
    assert unpacked(tmp_path) == []
    assert staged(tmp_path) == []


FETCH = """
    import sys
    from pathlib import Path
    from agentix.provider.images.store import ImageStore
    ImageStore(Path(sys.argv[1]), insecure=[sys.argv[2]]).open(sys.argv[3])
"""


async def test_a_killed_fetch_leaves_staging_that_the_next_one_clears(tmp_path: Path) -> None:
    stuck = asyncio.Event()
    cache = tmp_path / "cache"
    async with Registry(published(), tmp_path, stuck=stuck).serving() as registry:
        command = [sys.executable, "-c", textwrap.dedent(FETCH), str(cache), registry.address]
        process = await asyncio.create_subprocess_exec(*command, registry.reference)
        await asyncio.wait_for(stuck.wait(), 60)
        (skopeo,) = children(process.pid)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await eventually_async(lambda: not runs(skopeo), "skopeo ends as well", within=10)
    assert unpacked(tmp_path) == []
    assert [path for path in staged(tmp_path) if path.is_dir()]
    async with Registry(published(), tmp_path).serving() as registry:
        await opened(tmp_path, registry)
    assert staged(tmp_path) == []


def children(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for file in listing for word in file.read_text().split()]


def runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_without_skopeo_the_answer_is_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_options: None)
    with pytest.raises(ImageError, match=r"'?debian:12'? .*apt-get install skopeo"):
        store(tmp_path).open("debian:12")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("debian", "docker://debian:latest"),
        ("debian:12", "docker://debian:12"),
        ("docker://some-body/a__b.c:V1", "docker://some-body/a__b.c:V1"),
        ("localhost/x", "docker://localhost/x:latest"),
        ("registry:5000/x/y:1", "docker://registry:5000/x/y:1"),
        ("[::1]:5000/x", "docker://[::1]:5000/x:latest"),
        (f"r.example/x:1@sha256:{'a' * 64}", f"docker://r.example/x@sha256:{'a' * 64}"),
    ],
)
def test_names_are_read_as_engines_read_them(text: str, location: str) -> None:
    reference = Reference.parse(text)
    assert reference is not None
    assert reference.location == location


@pytest.mark.parametrize(
    "text",
    ["", "A", "a/B", "a:", "a:b:c", "a@sha256:1", "a//b", "-a", "a b", "x" * 300, "a\n", "--help"],
)
def test_what_is_no_name_is_not_read_as_one(text: str) -> None:
    assert Reference.parse(text) is None
