from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.errors import ImageError
from agentix.provider.bubblewrap.user import User, user_of
from agentix.provider.kit import Image, RunConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\napp:x:100:101::/home/app:/bin/sh\nbroken line\n"
        ":x:7:7:nameless:/:/bin/sh\n"
    )
    (tmp_path / "etc/group").write_text("root:x:0:\nstaff:x:50:app\n")
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "user"),
    [
        (None, User(0, 0, "/root")),
        ("", User(0, 0, "/root")),
        ("app", User(100, 101, "/home/app")),
        ("100", User(100, 101, "/home/app")),
        ("4321", User(4321, 0, "/")),
        ("4321:7", User(4321, 7, "/")),
        ("app:staff", User(100, 50, "/home/app")),
        ("0:0", User(0, 0, "/root")),
        (":staff", User(0, 50, "/root")),
        ("100:", User(100, 101, "/home/app")),
    ],
)
def test_the_user_is_whom_an_engine_would_run_as(root: Path, asked: str, user: User) -> None:
    assert user_of(Image("task", root, RunConfig(User=asked))) == user


@pytest.mark.parametrize(
    "asked", ["nobody-here", "app:nowhere", "4294967295", "-1", "9" * 5000, "\u0663"]
)
def test_a_user_that_the_image_does_not_know_is_refused(root: Path, asked: str) -> None:
    with pytest.raises(ImageError, match="task"):
        user_of(Image("task", root, RunConfig(User=asked)))


def test_a_number_needs_no_passwd(tmp_path: Path) -> None:
    assert user_of(Image("task", tmp_path, RunConfig(User="12:34"))) == User(12, 34, "/")


def test_a_passwd_that_leads_to_the_hosts_is_not_followed_there(tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("/etc")
    with pytest.raises(ImageError):
        user_of(Image("task", tmp_path, RunConfig(User="daemon")))
