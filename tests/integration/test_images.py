"""Every kind of task image, on every provider: the bundle works, and the image stays itself.

One session is opened for each image and provider; the tests look at what was seen in it.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import docker
import numpy as np
import pytest
from engines import docker_engine
from images import RECIPES
from images.apptainer import apptainer
from images.archives import write_docker_archive, write_oci_layout
from images.engine import loaded
from images.recipes import OTHER_PYTHON

from agentix import Failed, SandboxConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import docker
    from images import TaskImage

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.nix, pytest.mark.slow]

# What engines put into every container: name look-ups, and the mark that it is one.
OF_THE_ENGINE = {
    "/.dockerenv",
    "/etc",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/mtab",
    "/etc/resolv.conf",
}
MOUNTED = {"/dev", "/proc", "/sys"}
FORMS: dict[str, Callable[..., Path]] = {
    name: (write_oci_layout if number % 2 else write_docker_archive)
    for number, name in enumerate(RECIPES)
}
ADDED = {"AGENTIX_TEST_ADDED": "by  the caller"}


@dataclass
class Seen:
    """What one session showed: the answer of each call, and what was there afterwards."""

    image: TaskImage
    bundle: CachedBundle
    sandbox_id: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)

    def answer(self, name: str) -> Any:
        """Return the value of a call, or raise what it raised."""
        result = self.answers[name]
        if isinstance(result, Failed):
            raise result.error
        return result.value

    def program(self, name: str) -> str:
        """Return what a program printed that has to end well."""
        output = self.answer(name)
        assert (output.code, output.stderr) == (0, ""), output
        return str(output.stdout)


def cases() -> Iterator[Any]:
    for provider in ("apptainer", "bubblewrap", "docker"):
        for name in RECIPES:
            mark = pytest.mark.docker if provider == "docker" else pytest.mark.bubblewrap
            yield pytest.param((provider, name), marks=mark, id=f"{provider}-{name}")


@pytest.fixture(scope="module", params=cases())
def seen(
    request: pytest.FixtureRequest,
    numpy_bundle: CachedBundle,
    task_image: Callable[[str], TaskImage],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Seen]:
    provider, name = request.param
    task = task_image(name)
    if provider == "docker":
        # Only here: the others need no engine.
        with docker_engine() as engine, loaded(engine.client, task) as reference:
            seen = asyncio.run(visit(choices_of(provider), reference, task, numpy_bundle))
            label = f"agentix.sandbox={seen.sandbox_id}"
            left = engine.client.containers.list(all=True, filters={"label": label})
            seen.left["containers"] = [str(each.name) for each in left]
            yield seen
        return
    scratch = tmp_path_factory.mktemp(name)
    archive = FORMS[name](task, scratch / "image.tar", tag=f"{name}:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(scratch / "cache"))
        choices = choices_of(provider, scratch)
        yield asyncio.run(visit(choices, str(archive), task, numpy_bundle))


async def visit(
    choices: Callable[..., Any], reference: str, task: TaskImage, bundle: CachedBundle
) -> Seen:
    """Open one session, and call everything that the tests want to know."""
    import numpy_task as probe

    calls: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "solve": (probe.solve, [50]),
        "process": (probe.process, []),
        "child": (probe.own_child, []),
        "spawned": (probe.spawned, [[3, 4]]),
        "libraries": (probe.libraries, []),
        "restrictions": (probe.restrictions, []),
        "tool": (probe.run, [["jq", "--null-input", "40 + 2"]]),
        "orphans": (probe.orphans, [20]),
        "tree": (probe.tree, []),
    }
    if task.environment_program:
        calls["environment"] = (probe.run, [list(task.environment_program)])
    if task.python:
        code = "import sys; print(sys.prefix, '%d.%d' % sys.version_info[:2], sys.executable)"
        calls["python"] = (probe.run, [[task.python, "-c", code]])
    seen = Seen(task, bundle)
    provider = choices(read_only=task.read_only).to_provider()
    config = SandboxConfig(image=reference, bundle=str(bundle.path), env=ADDED)
    async with provider.session(config, timeout=60) as sandbox:
        for name, (function, arguments) in calls.items():
            seen.answers[name] = await sandbox.try_remote(function, *arguments)
    folder = Path(unquote(sandbox.runtime_url.removeprefix("http+unix://"))).parents[1]
    assert folder.name == sandbox.sandbox_id
    seen.left["folders"] = [str(folder)] if folder.exists() else []
    seen.left["processes and mounts"] = mounters(sandbox.sandbox_id)
    seen.sandbox_id = sandbox.sandbox_id
    return seen


def choices_of(provider: str, scratch: Path | None = None) -> Callable[..., Any]:
    """Return what makes a configuration of *provider*."""
    if provider == "docker":
        from agentix.provider.docker import DockerProviderConfig

        return DockerProviderConfig
    if provider == "apptainer":
        from agentix.provider.apptainer import ApptainerProviderConfig

        assert scratch is not None
        return partial(ApptainerProviderConfig, program=apptainer(scratch))
    from agentix.provider.bubblewrap import BubblewrapProviderConfig

    return BubblewrapProviderConfig


def mounters(sandbox_id: str) -> list[str]:
    """Return the processes, this one included, that still see the sandbox's folder mounted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if sandbox_id in (entry / "mountinfo").read_text():
                    found.append((entry / "cmdline").read_text())
            except OSError:
                continue  # it ended meanwhile
    return found


def parse(environment: str) -> dict[str, str]:
    variables = dict(line.split("=", 1) for line in environment.splitlines())
    variables.pop("HOSTNAME", None)  # every container has its own
    return variables


def own_environment(task: TaskImage) -> dict[str, str]:
    """What a process of the image meets when an engine runs it."""
    has_accounts = (task.rootfs / "etc/passwd").exists()
    return {"HOME": "/root" if has_accounts else "/"} | task.environment


@pytest.mark.parametrize(
    "engine", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True
)
@pytest.mark.parametrize("name", [name for name in RECIPES if RECIPES[name].environment_program])
def test_what_we_take_for_the_images_own_environment_is_what_docker_shows(
    client: docker.DockerClient, task_image: Callable[[str], TaskImage], name: str
) -> None:
    task = task_image(name)
    assert task.environment_program is not None
    with loaded(client, task) as tag:
        program = list(task.environment_program)
        output = client.containers.run(tag, entrypoint=program, command=[], remove=True)
    assert parse(output.decode()) == own_environment(task)


def test_a_numpy_function_answers(seen: Seen) -> None:
    assert np.allclose(seen.answer("solve"), np.ones(50))


def test_the_bundles_own_interpreter_and_libc_answer(seen: Seen) -> None:
    process = seen.answer("process")
    assert process.python == seen.bundle.manifest.python
    assert process.libc == seen.bundle.manifest.libc
    assert process.prefix.startswith("/nix/store/")
    assert process.optimize == 0


def test_no_library_of_the_image_is_in_our_process(seen: Seen) -> None:
    assert [name for name in seen.answer("libraries") if ".so" in name] == []


def test_the_images_user_and_working_folder_are_kept(seen: Seen) -> None:
    process = seen.answer("process")
    of_caller = seen.sandbox_id.startswith("apptainer")  # which cannot become anybody else
    assert process.user == (os.getuid() if of_caller else int(seen.image.config.user or "0"))
    assert process.folder == (seen.image.config.workdir or "/")


def test_a_program_of_the_image_sees_exactly_the_images_environment(seen: Seen) -> None:
    if seen.image.environment_program is None:
        assert list(seen.image.rootfs.iterdir()) == []  # there is no program to ask
        return
    actual = parse(seen.program("environment"))
    expected = own_environment(seen.image) | ADDED
    if seen.sandbox_id.startswith("apptainer") and os.getuid():
        expected["HOME"] = actual["HOME"]  # the caller's, not the image's user's
    path, own_path = actual.pop("PATH"), expected.pop("PATH")
    assert actual == expected
    assert path.startswith(f"{own_path}:/nix/")


def test_the_images_folders_come_first_on_path_and_ours_last(seen: Seen) -> None:
    own = seen.image.environment["PATH"].split(":")
    path = seen.answer("process").path.split(":")
    assert path[: len(own)] == own
    assert path[len(own) :]
    assert all(folder.startswith("/nix/") for folder in path[len(own) :])


def test_the_images_python_is_still_the_images(seen: Seen) -> None:
    if seen.image.python is None:
        assert not list(seen.image.rootfs.glob("usr/bin/python*"))
        return
    assert seen.program("python") == f"/usr {OTHER_PYTHON} {seen.image.python}\n"


def test_our_python_can_start_itself(seen: Seen) -> None:
    assert seen.program("child") == f"6 {seen.answer('process').prefix}\n"


def test_multiprocessing_can_spawn(seen: Seen) -> None:
    assert np.allclose(seen.answer("spawned"), [3, 4])


def test_a_tool_of_the_bundle_runs(seen: Seen) -> None:
    assert seen.program("tool") == "42\n"


def test_nothing_is_added_to_the_images_files_outside_nix(seen: Seen) -> None:
    rootfs = seen.image.rootfs
    own = {f"/{path.relative_to(rootfs)}" for path in rootfs.rglob("*")}
    visible = set(seen.answer("tree"))
    assert visible - own <= OF_THE_ENGINE
    assert own - visible <= MOUNTED


def test_no_process_can_gain_privileges(seen: Seen) -> None:
    assert seen.answer("restrictions")["NoNewPrivs"].strip() == "1"


def test_orphans_are_reaped(seen: Seen) -> None:
    assert seen.answer("orphans") == 0


def test_nothing_is_left_behind(seen: Seen) -> None:
    assert {what: left for what, left in seen.left.items() if left} == {}
    assert list((seen.bundle.nix / "run").iterdir()) == []
