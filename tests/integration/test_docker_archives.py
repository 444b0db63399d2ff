"""An archive as an image of a container: loaded once, under a name that is its own, and dropped."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import os
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import docker
import pytest
from heard import Heard
from images.archives import write_docker_archive, write_oci_layout, write_rootfs_tar
from images.bundles import bundle_that_runs
from images.registry import Published, Registry

from agentix import platforms
from agentix.errors import ImageError, ProviderError
from agentix.provider.base import SandboxConfig
from agentix.provider.docker import images
from agentix.provider.docker.engine import Engine
from agentix.provider.docker.loading import REPOSITORY
from agentix.provider.kit import ImageArchive, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engines import EngineUnderTest
    from images import TaskImage
    from images.engine import Leftovers

    from agentix.bundle import CachedBundle


@pytest.fixture
def task(task_image: Callable[[str], TaskImage], tmp_path: Path) -> TaskImage:
    """An image with a program, and with a file that no other image has."""
    busybox = task_image("busybox")
    rootfs = tmp_path / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    (rootfs / "bin/busybox").write_bytes((busybox.rootfs / "bin/busybox").read_bytes())
    (rootfs / "bin/busybox").chmod(0o755)
    (rootfs / "bin/cat").symlink_to("busybox")
    (rootfs / "unique").write_text(f"{os.urandom(8).hex()}\n")
    return replace(busybox, rootfs=rootfs)


@pytest.fixture
def named(engine: EngineUnderTest) -> Iterator[Callable[[Path], str]]:
    """Give the name that an archive gets in the engine, which loses it when the test is over."""
    names = set()

    def name(archive: Path) -> str:
        architecture = platforms.current().debian
        found = f"{REPOSITORY}:{ImageArchive(archive, architecture, Stop()).digest()}"
        names.add(found)
        return found

    yield name
    for each in names:
        if has(engine, each):
            engine.client.images.remove(each, force=True)


def has(engine: EngineUnderTest, name: str) -> bool:
    """Tell whether the engine has an image of that name."""
    try:
        engine.client.api.inspect_image(name)  # type: ignore[no-untyped-call]
    except docker.errors.ImageNotFound:
        return False
    return True


async def said(engine: EngineUnderTest, image: object, folder: Path, heard: Heard) -> str:
    """Return what the runtime of a sandbox says that prints the image's own file, and exits."""
    bundle = folder / "bundle"
    if not bundle.exists():
        bundle.symlink_to(bundle_that_runs("/bin/cat /unique; exit 9", folder))
    config = SandboxConfig(image=str(image), bundle=str(bundle.readlink()))
    with pytest.raises(ProviderError) as caught:
        await engine.provider(progress=heard).create(config)
    return str(caught.value)


def as_rootfs(task: TaskImage, target: Path) -> Path:
    write_rootfs_tar(task, target)
    target.write_bytes(gzip.compress(target.read_bytes(), 1))
    return target


def as_docker(task: TaskImage, target: Path) -> Path:
    return write_docker_archive(task, target, tag="agentix-test/taken:1")


def as_oci(task: TaskImage, target: Path) -> Path:
    write_oci_layout(task, target, tag="agentix-test/taken:1")
    target.write_bytes(gzip.compress(target.read_bytes(), 1))
    return target


@pytest.mark.parametrize("form", [as_rootfs, as_docker, as_oci])
async def test_an_archive_is_loaded_once_whoever_asks_and_takes_nobodys_name(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    task: TaskImage,
    tmp_path: Path,
    named: Callable[[Path], str],
    form: Callable[[TaskImage, Path], Path],
) -> None:
    archive = form(task, tmp_path / "image")
    name = named(archive)
    assert not has(engine, name)
    size = (task.rootfs / "bin/busybox").stat().st_size
    heard = Heard()
    every = await asyncio.gather(*(said(engine, archive, tmp_path, heard) for _ in range(2)))
    assert all((task.rootfs / "unique").read_text().strip() in each for each in every), every
    assert heard.amount >= size
    heard = Heard()
    again = archive.rename(tmp_path / "again")  # what is in it counts, not what it is called
    assert (task.rootfs / "unique").read_text().strip() in await said(
        engine, again, tmp_path, heard
    )
    assert heard.steps == []
    assert has(engine, name)
    assert not has(engine, "agentix-test/taken:1")


def changed(source: Path, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copy an archive with each member's content changed, or the member left out."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            file = old.extractfile(member)
            content = change(member.name, file.read() if file else b"")
            if content is not None:
                member.size = len(content)
                new.addfile(member, io.BytesIO(content))
    return target


def without_layers(name: str, content: bytes) -> bytes | None:
    return None if name.endswith("layer.tar") else content


def other_layers(name: str, content: bytes) -> bytes | None:
    is_layer = name.endswith("layer.tar") or (name.startswith("blobs") and content[:1] != b"{")
    return content[:-1] + b"x" if is_layer else content


def described(archive: Path) -> str:
    """Return the digest by which the image would be known, if it is one."""
    with contextlib.suppress(ImageError):
        return ImageArchive(archive, platforms.current().debian, Stop()).digest()
    return "none"


def two_images(name: str, content: bytes) -> bytes | None:
    return json.dumps(json.loads(content) * 2).encode() if name == "manifest.json" else content


@pytest.mark.parametrize(
    ("form", "change", "reason"),
    [
        (as_docker, without_layers, "lacks the layer"),
        (as_docker, other_layers, r"cannot be loaded|damaged"),
        (as_oci, other_layers, "damaged: layer"),
        (as_docker, two_images, "holds 2 images"),
    ],
)
async def test_an_archive_that_is_damaged_is_one_line_and_leaves_nothing(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    task: TaskImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Callable[[TaskImage, Path], Path],
    change: Callable[[str, bytes], bytes | None],
    reason: str,
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    bad = changed(form(task, tmp_path / "image"), tmp_path / "bad", change)
    config = SandboxConfig(image=str(bad), bundle=str(bundle_that_runs("exit 1", tmp_path)))
    with pytest.raises(ImageError, match=reason) as caught:
        await engine.provider().create(config)
    assert "\n" not in str(caught.value)
    assert str(bad) in str(caught.value)
    assert not has(engine, f"{REPOSITORY}:{described(bad)}")
    assert list((tmp_path / "cache/staging").glob("*")) == []


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"PK\x03\x04" + bytes(100)])
async def test_a_file_that_is_no_archive_is_said_so(
    engine: EngineUnderTest, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "image").write_bytes(content)
    bundle = str(bundle_that_runs("exit 1", tmp_path))
    with pytest.raises(ImageError, match="no tar archive that can be read"):
        await engine.provider().create(SandboxConfig(image=str(tmp_path / "image"), bundle=bundle))


async def test_a_load_that_nobody_wants_any_more_leaves_nothing(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    task: TaskImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: Callable[[Path], str],
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    (task.rootfs / "large").write_bytes(os.urandom(1 << 22))
    archive = as_docker(task, tmp_path / "image")
    config = SandboxConfig(image=str(archive), bundle=str(bundle_that_runs("exit 1", tmp_path)))
    loop, begun, load = asyncio.get_running_loop(), asyncio.Event(), Engine.load

    def slowly(engine: Engine, pieces: Iterator[bytes]) -> None:
        def held() -> Iterator[bytes]:
            for number, piece in enumerate(pieces):
                yield piece
                if number == 1:
                    loop.call_soon_threadsafe(begun.set)
                    asyncio.run_coroutine_threadsafe(cancelled.wait(), loop).result(30)

        load(engine, held())

    cancelled = asyncio.Event()
    monkeypatch.setattr(Engine, "load", slowly)
    creating = asyncio.create_task(engine.provider().create(config))
    await asyncio.wait_for(begun.wait(), 30)
    creating.cancel()
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert not has(engine, named(archive))
    assert list((tmp_path / "cache/staging").glob("*")) == []


async def test_an_image_that_goes_at_the_last_moment_is_brought_again(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    task: TaskImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: Callable[[Path], str],
) -> None:
    bring, brought = images.bring, []

    async def bring_and_lose(asked: Engine, *arguments: Any) -> Any:
        found = await bring(asked, *arguments)
        brought.append(found[0])
        if len(brought) == 1:
            assert await asyncio.to_thread(asked.drop, found[0])
        return found

    monkeypatch.setattr(images, "bring", bring_and_lose)
    archive = as_docker(task, tmp_path / "image")
    unique = (task.rootfs / "unique").read_text().strip()
    assert unique in await said(engine, archive, tmp_path, Heard())
    assert brought == [named(archive)] * 2


@pytest.mark.nix
async def test_images_that_are_not_kept_go_with_the_last_sandbox_of_them(
    engine: EngineUnderTest,
    leftovers: Leftovers,
    numpy_bundle: CachedBundle,
    task: TaskImage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: Callable[[Path], str],
) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    provider = engine.provider(keep_images=False)

    def config(image: object) -> SandboxConfig:
        return SandboxConfig(image=str(image), bundle=numpy_bundle.path)

    archive = as_docker(task, tmp_path / "image")
    async with provider.session(config(archive)):
        async with provider.session(config(archive)):
            assert has(engine, named(archive))
        assert has(engine, named(archive))
    assert not has(engine, named(archive))

    async with Registry(Published.of(task, tmp_path), tmp_path).serving() as registry:
        name = registry.reference
        async with provider.session(config(name)):
            assert has(engine, name)
        assert not has(engine, name)
        # What was there before is not ours to remove.
        await asyncio.to_thread(engine.client.images.pull, name)
        try:
            async with provider.session(config(name)):
                pass
            assert has(engine, name)
        finally:
            engine.client.images.remove(name, force=True)
