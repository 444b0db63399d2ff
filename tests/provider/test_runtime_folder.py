from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from agentix.errors import ProviderError, SandboxNotFound
from agentix.provider.base import SandboxId
from agentix.provider.runtime_folder import MAX_SOCKET_PATH, RuntimeFolder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short place for folders: pytest's own is too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="ax") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder, "agentix")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_all_but_the_mounted_folder_is_private_whatever_the_umask(base: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = RuntimeFolder.create("test")
        folder.record({"pid": 1})
    finally:
        os.umask(before)
    assert folder.path.parent == base
    assert _mode(base) == 0o700
    assert _mode(folder.path) == 0o700
    assert _mode(folder.path / "record.json") == 0o600
    assert _mode(folder.mount) == 0o777
    assert _mode(folder.mount / "token") == 0o644


def test_each_sandbox_has_an_id_and_a_secret_of_its_own(base: Path) -> None:
    one, other = RuntimeFolder.create("test"), RuntimeFolder.create("test")
    assert one.sandbox_id != other.sandbox_id
    assert one.token != other.token
    assert len(one.token) >= 43
    assert (one.mount / "token").read_text() == one.token


def test_the_secret_does_not_show_in_a_repr(base: Path) -> None:
    folder = RuntimeFolder.create("test")
    assert folder.token not in repr(folder)


def test_the_runtime_is_told_what_its_sandbox_is_called(base: Path) -> None:
    folder = RuntimeFolder.create("test")
    assert folder.command[0] == "/nix/runtime/bootstrap.sh"
    assert folder.command[-2:] == ("--name", folder.sandbox_id)
    folder.remove()


def test_the_url_names_the_socket(base: Path) -> None:
    folder = RuntimeFolder.create("test")
    scheme, _, path = folder.url.partition("://")
    assert scheme == "http+unix"
    assert "/" not in path
    assert unquote(path) == str(folder.socket)


def test_what_was_recorded_is_found_by_id(base: Path) -> None:
    folder = RuntimeFolder.create("test")
    folder.record({"pid": 7})
    assert RuntimeFolder.find(folder.sandbox_id) == (folder, {"pid": 7})


@pytest.mark.parametrize("wrong", ["test-000000000000", "../x", "", ".", "a/b", "/etc", "test-x\n"])
def test_an_unknown_id_is_not_found(base: Path, wrong: str) -> None:
    with pytest.raises(SandboxNotFound):
        RuntimeFolder.find(SandboxId(wrong))


def test_removing_takes_what_the_sandbox_left_and_nothing_outside(
    base: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    folder = RuntimeFolder.create("test")
    folder.record({})
    deep = folder.mount / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    deep.chmod(0)
    (folder.mount / "link").symlink_to(kept)
    folder.remove()
    folder.remove()
    assert not folder.path.exists()
    assert (kept / "file").exists()


def test_a_runtime_folder_too_deep_for_sockets_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    folder = RuntimeFolder.create("test")
    try:
        assert not folder.path.is_relative_to(deep)
        assert len(os.fsencode(folder.socket)) <= MAX_SOCKET_PATH
        folder.record({})
        assert RuntimeFolder.find(folder.sandbox_id)[0] == folder
    finally:
        folder.remove()


def test_a_base_that_others_could_have_prepared_is_neither_used_nor_read(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RuntimeFolder.create("test")
    folder.record({})
    base.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(base / "missing"))
    monkeypatch.setattr("agentix.provider.runtime_folder._SHARED", str(base / "missing"))
    with pytest.raises(SandboxNotFound):
        RuntimeFolder.find(folder.sandbox_id)
    with pytest.raises(ProviderError, match="open to other users"):
        RuntimeFolder.create("test")


def test_a_sandbox_of_another_provider_is_neither_given_nor_gone(base: Path) -> None:
    folder = RuntimeFolder.create("one")
    folder.record({})
    assert RuntimeFolder.find(folder.sandbox_id, "one")[0] == folder
    with pytest.raises(ProviderError, match="another provider") as caught:
        RuntimeFolder.find(folder.sandbox_id, "other")
    assert not isinstance(caught.value, SandboxNotFound)
