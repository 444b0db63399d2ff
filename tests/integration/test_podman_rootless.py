"""Podman of an ordinary user: the same tests once more, run by one who is made for that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from strangers import NoStrangerError, stranger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from images import TaskImage

    from agentix.bundle import CachedBundle

pytestmark = [pytest.mark.podman, pytest.mark.nix, pytest.mark.slow]

HERE = Path(__file__).parent
TUN = Path("/dev/net/tun")
CHOSEN = (
    "test_docker.py::test_a_session_on_an_image_of_one_program_answers[podman]",
    "test_docker.py::test_a_session_is_over_when_its_task_is_cancelled[podman]",
    "test_docker.py::test_a_sandbox_is_found_again_also_from_another_process[podman]",
    "test_docker.py::test_a_container_that_was_killed_is_not_found_and_can_be_deleted[podman]",
    "test_docker.py::test_a_sandbox_is_unprivileged_unless_told_otherwise[podman]",
    "test_docker.py::test_whoever_the_image_runs_as_reads_the_bundle_and_is_reached[podman]",
    "test_docker_failures.py::test_a_runtime_that_dies_is_reported_at_once_with_its_last_words",
    "test_engine_limits.py",
    "test_engine_networks.py",
    "test_podman_service.py",
)


@pytest.fixture
def tun() -> Iterator[None]:
    """The device without which ordinary users have no network; udev opens it to everybody."""
    if not TUN.exists():
        pytest.skip(f"ordinary users have no network here: there is no {TUN}")
    mode = TUN.stat().st_mode & 0o777
    TUN.chmod(0o666)
    try:
        yield
    finally:
        TUN.chmod(mode)


def test_podman_of_an_ordinary_user_keeps_the_same_promises(
    tun: None, numpy_bundle: CachedBundle, task_image: Callable[[str], TaskImage]
) -> None:
    busybox = task_image("busybox").rootfs.parent
    try:
        with stranger() as user:
            bundle = user.home / "bundles" / numpy_bundle.path.name
            images = user.home / "images/images"
            for folder in (bundle.parent, images):
                folder.mkdir(parents=True)
            # Links: a bundle has hundreds of files, and they are readable to everybody.
            subprocess.run(["cp", "-al", numpy_bundle.path, bundle], check=True, timeout=60)
            shutil.copytree(busybox, images / busybox.name, symlinks=True)
            os.chown(images, user.uid, user.gid)
            result = user.pytest(
                *("-q", "-k", "not docker-", "-rs", "-m", "not docker"),
                *(str(HERE / name) for name in CHOSEN),
                f"--basetemp={user.home}/tests",
                environment={
                    "XDG_RUNTIME_DIR": f"/run/user/{user.uid}",
                    "AGENTIX_TEST_BUNDLE": str(bundle),
                    "AGENTIX_TEST_IMAGES": str(images.parent),
                },
                timeout=280,
            )
    except NoStrangerError as error:
        pytest.skip(f"{error}")
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed
    assert int(passed[1]) >= 15
