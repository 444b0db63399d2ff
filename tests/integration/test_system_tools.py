"""Declared system tools, used for what they are for in every kind of task image.

One bundle has them all, and one session is opened for each image; the tests look at what it gave.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from images import RECIPES
from images.archives import write_docker_archive

from agentix import Failed, SandboxConfig
from agentix.build.build import build_bundle
from agentix.bundle import BundleCache
from agentix.provider.bubblewrap import BubblewrapProviderConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from images import TaskImage

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.nix, pytest.mark.bubblewrap, pytest.mark.slow]
PROJECT = Path(__file__).parents[1] / "projects/system-tools"
# Of the others, each is like one of these in all that a tool could notice.
IMAGES = ("empty", "busybox", "musl", "other-python", "preloaded", "numeric-user", "sealed")
DECLARED = ("git", "curl", "rg", "jq", "node", "tmux", "ssh", "make", "gcc", "ld", "ack")


@dataclass
class Used:
    """What the calls into one image gave."""

    image: TaskImage
    answers: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return the value of a call, or raise what it raised."""
        result = self.answers[name]
        if isinstance(result, Failed):
            raise result.error
        return result.value


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> CachedBundle:
    """The project system-tools as a deployed bundle."""
    scratch = tmp_path_factory.mktemp("system-tools")
    sys.path.insert(0, str(PROJECT))
    # A copy, so that no lock or output appears among the sources.
    project = shutil.copytree(PROJECT, scratch / PROJECT.name)
    built = build_bundle(project, output=scratch)
    return BundleCache(scratch / "cache").open(built.path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    folder = tmp_path_factory.mktemp("authority")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-days", "2", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return (folder / "cert.pem").read_text(), (folder / "key.pem").read_text()


@pytest.fixture(scope="module", params=IMAGES)
def used(
    request: pytest.FixtureRequest,
    bundle: CachedBundle,
    authority: tuple[str, str],
    task_image: Callable[[str], TaskImage],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Used]:
    image = task_image(request.param)
    scratch = tmp_path_factory.mktemp(image.name)
    archive = write_docker_archive(image, scratch / "image.tar", tag=f"{image.name}:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTIX_CACHE_DIR", str(scratch / "cache"))
        yield Used(image, asyncio.run(visit(str(archive), bundle, image, authority)))


async def visit(
    archive: str, bundle: CachedBundle, image: TaskImage, authority: tuple[str, str]
) -> dict[str, Any]:
    import system_tools as tools

    calls: Mapping[str, Any] = {
        "places": tools.places,
        "git": tools.use_git,
        "curl": partial(tools.use_curl, *authority),
        "ripgrep": tools.use_ripgrep,
        "jq": tools.use_jq,
        "node": tools.use_node,
        "tmux": tools.use_tmux,
        "ssh": tools.use_ssh,
        "gcc": tools.use_make_and_gcc,
        "scripts": tools.use_scripts,
    }
    if image.environment_program is not None:
        calls = {**calls, "environment": tools.environment_below_make}
    provider = BubblewrapProviderConfig(read_only=image.read_only).to_provider()
    config = SandboxConfig(image=archive, bundle=bundle.path)
    async with provider.session(config, timeout=180) as sandbox:
        answers = {}
        for name, call in calls.items():
            function, arguments = (
                (call.func, call.args) if isinstance(call, partial) else (call, ())
            )
            answers[name] = await sandbox.try_remote(function, *arguments)
        return answers


def test_the_tools_are_found_where_the_image_has_none(used: Used) -> None:
    places = used["places"]
    assert {name: places[name] for name in DECLARED} == {
        name: f"/nix/runtime/bin/{name}" for name in DECLARED
    }


def test_git_has_its_helpers_and_its_templates(used: Used) -> None:
    git = used["git"]
    subjects = [line.removeprefix("Task: ") for line in git["log"].splitlines()]
    assert sorted(subjects) == ["Add main", "Add one", "Add two", "Merge all"]
    assert git["files"] == "main one two"
    assert git["exec-path"] == "/nix/runtime/core"
    assert "pre-commit.sample" in git["templates"].split()
    assert git["version"].startswith("git version 2.")


def test_certificates_are_the_bundles_unless_a_variable_names_others(used: Used) -> None:
    curl = used["curl"]
    # 60: it has read the authorities, and the server's is none of them (77: it could not).
    assert "/nix/runtime/s/ca-certificates.crt" in curl["refused"]
    assert curl["SSL_CERT_FILE"] == curl["CURL_CA_BUNDLE"] == "served\n"
    assert re.search("server (certificate )?verification failed", curl["git refused"])
    for answer in (curl["git"], curl["git folder"]):
        assert "not valid: is this a git repository?" in answer


def test_small_programs_do_what_they_are_for(used: Used) -> None:
    assert used["ripgrep"] == "a.txt:2:two é\n"
    assert used["jq"] == '{"a":2,"b":true}\n'
    assert used["node"] == ["1.234,5", "fetched"]


def test_tmux_draws_on_a_terminal_that_the_image_may_not_know(used: Used) -> None:
    tmux = used["tmux"]
    assert "drawn é ┃" in tmux["screen"]
    assert "drawn é ┃" in tmux["attached"]
    assert "\x1b[" in tmux["attached"]


def test_ssh_works_for_users_that_the_image_does_not_know(used: Used) -> None:
    ssh = used["ssh"]
    assert ssh["version"].startswith("OpenSSH_")
    assert ssh["key"].startswith("ssh-ed25519 AAAA")
    assert re.search(r"program /nix/store/[^ ]*-tools/root/bin/ssh ", ssh["scp"])


def test_what_gcc_makes_runs_in_the_image(used: Used) -> None:
    assert used["gcc"] == {"made": "made 4 zlib\nmade 4 zlib\nshell\n", "hello": "run 4 zlib\n"}


def test_scripts_find_their_interpreters_and_modules(used: Used) -> None:
    scripts = used["scripts"]
    assert scripts["ack"] == "a.pl:2:sub found { 1 }\n"
    assert "duplication of key" in scripts["yamllint"]


def test_a_tool_adds_no_variable_of_ours(used: Used) -> None:
    if "environment" not in used.answers:
        pytest.skip("the image has no program that says what it sees")
    # make's own; and what would have been loaded into make itself (see launcher.py).
    own = {"MAKEFLAGS", "MAKELEVEL", "MAKE_TERMOUT", "MAKE_TERMERR", "MFLAGS"}
    if not (used.image.rootfs / "bin/sh").exists():
        own |= {"PWD", "SHLVL"}  # make takes the bundle's shell, and shells set those
    assert set(used["environment"]) - own <= {"LD_PRELOAD", "LD_AUDIT"}


def test_the_images_are_those_that_there_are() -> None:
    assert set(IMAGES) <= set(RECIPES)


def test_the_manifest_lists_what_came_along(bundle: CachedBundle) -> None:
    tools = {tool.package: tool for tool in bundle.manifest.tools}
    assert {"git", "curl", "ripgrep", "jq", "nodejs", "tmux", "openssh-client", "gcc"} <= set(tools)
    # What those need but do not name, and what they name but do not need.
    assert {"libc6-dev", "ncurses-base", "perl"} <= set(tools)
    assert {"git-man", "passwd", "ca-certificates", "python3"}.isdisjoint(tools)
    listed = [*tools.values(), *bundle.manifest.base]
    assert [tool.package for tool in listed if not tool.licences] == []


def test_nothing_is_carried_that_nobody_reads(bundle: CachedBundle) -> None:
    (root,) = (bundle.nix / "store").glob("*-tools/root")
    assert not [
        path for path in ("share/doc", "share/man", "share/locale") if (root / path).exists()
    ]
    content = json.dumps([str(path) for path in root.rglob("*")])
    assert not re.search(r"lto-dump|libasan\.a|libasan\.so\.8|gprofng", content)
