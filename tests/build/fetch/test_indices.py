"""Wheels come from where uv is configured to find them."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest
from mirror.fetching import bring, stored
from mirror.offers import index, needed_wheel, wheel
from mirror.server import status

from agentix.build.indices import Index, Indices
from agentix.build.lock.resolution import Resolver
from agentix.build.toolchain import toolchains
from agentix.errors import FetchError

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.server import Server

pytestmark = pytest.mark.nix


def test_a_wheel_comes_from_the_index_that_uv_is_configured_with(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    wanted = needed_wheel(file, data)
    bring(wanted)
    assert stored(wanted) == data


@pytest.mark.parametrize(
    "settings",
    [
        '[[tool.uv.index]]\nurl = "{0}/simple"\n',
        '[tool.uv]\nno-index = true\nfind-links = ["{0}/simple/demo-pkg/"]\n',
    ],
    ids=["simple", "flat"],
)
def test_a_wheel_whose_index_tells_no_size_is_locked_and_fetched(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    file, data = wheel()
    index(server, (file, data))
    (tmp_path / "pyproject.toml").write_text(settings.format(server.address))
    monkeypatch.delenv("UV_NO_CONFIG")
    resolver = Resolver(tmp_path, toolchains()["debian-12"])
    wanted = asyncio.run(resolver.resolve([], ["demo-pkg"], preferred={})).artifacts[file]
    assert wanted.size is None
    assert bring(wanted, project=tmp_path).files == 1
    assert stored(wanted) == data


def test_a_private_index_gets_the_credentials_of_uvs_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data), auth="me:secret")
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.address.replace("//", "//me:secret@") + "/simple")
    wanted = needed_wheel(file, data)
    bring(wanted)
    assert stored(wanted) == data


def test_credentials_of_uv_go_before_those_of_netrc_and_into_no_message(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, data = wheel()
    index(server, (file, data), auth="me:s3cr:t/@")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    address = server.address.replace("//", "//me:s3cr%3At%2F%40@")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{address}/simple")
    wanted = needed_wheel(file, data)
    server.behaviours[f"/simple/files/{file}"].insert(0, status(403))
    with pytest.raises(FetchError, match="answered 403") as caught:
        bring(wanted)
    assert "s3cr" not in str(caught.value)
    bring(wanted)
    assert stored(wanted) == data


def test_credentials_may_be_in_the_users_own_settings(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, data = wheel()
    index(server, (file, data), auth="me:secret")
    (tmp_path / "config/uv").mkdir(parents=True)
    address = server.address.replace("//", "//me:secret@")
    (tmp_path / "config/uv/uv.toml").write_text(f'[[index]]\nurl = "{address}/simple"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("UV_NO_CONFIG")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/pyproject.toml").write_text("")
    wanted = needed_wheel(file, data)
    bring(wanted, project=tmp_path / "project")
    assert stored(wanted) == data


@pytest.mark.parametrize("by", ["environment", "project"])
def test_a_password_may_be_in_a_keyring(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by: str
) -> None:
    file, data = wheel()
    index(server, (file, data), auth="me:s3cret")
    keyring = tmp_path / "bin/keyring"
    keyring.parent.mkdir()
    host = server.address.partition("//")[2]
    keyring.write_text(f'#!/bin/sh\n[ "$*" = "get {host} me" ] && echo s3cret\n')
    keyring.chmod(0o755)
    monkeypatch.setenv("PATH", str(keyring.parent), prepend=":")
    settings = f'[[tool.uv.index]]\nurl = "{server.address.replace("//", "//me@")}/simple"\n'
    monkeypatch.delenv("UV_NO_CONFIG")
    if by == "environment":
        monkeypatch.setenv("UV_KEYRING_PROVIDER", "subprocess")
    else:
        settings = '[tool.uv]\nkeyring-provider = "subprocess"\n' + settings
    (tmp_path / "pyproject.toml").write_text(settings)
    wanted = needed_wheel(file, data)
    bring(wanted, project=tmp_path)
    assert stored(wanted) == data


def test_a_package_pinned_to_an_index_comes_from_there(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (file, data), (other, wrong) = wheel(), wheel()
    index(server, (file, data), auth="me:secret", at="/private")
    index(server, (other, wrong))
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    monkeypatch.setenv("UV_INDEX_MY_OWN_USERNAME", "me")
    monkeypatch.setenv("UV_INDEX_MY_OWN_PASSWORD", "secret")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        f"""[project]
        name = "p"
        version = "1"
        [[tool.uv.index]]
        name = "my-own"
        url = "{server.address}/private"
        explicit = true
        [tool.uv.sources]
        Demo_Pkg = {{ index = "my-own" }}"""
    )
    wanted = needed_wheel(file, data)
    bring(wanted, project=project)
    assert stored(wanted) == data


def test_the_index_settings_of_a_workspace_are_its_members_alone(tmp_path: Path) -> None:
    index = '[[tool.uv.index]]\nname = "here"\nurl = "https://here.invalid/simple"\n'
    pin = '[tool.uv.sources]\nDemo_Pkg = { index = "here" }\n'
    members = '[tool.uv.workspace]\nmembers = ["inside"]\n'
    (tmp_path / "pyproject.toml").write_text(pin + members + index)
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").touch()
    expected = Index("here", "https://here.invalid/simple")
    assert Indices(tmp_path / "inside").pinned("demo.pkg") == expected
    assert Indices(tmp_path / "outside").pinned("demo.pkg") is None


def test_a_package_pinned_to_a_folder_of_wheels_comes_from_there(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (file, data), (other, wrong) = wheel(), wheel()
    index(server, (other, wrong))
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    for folder in ("our wheels", "members/app"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "our wheels" / file).write_bytes(data)
    (tmp_path / "pyproject.toml").write_text(
        """[tool.uv.workspace]
        members = ["members/*"]
        [[tool.uv.index]]
        name = "ours"
        url = "our wheels"
        format = "flat"
        explicit = true
        [tool.uv.sources]
        demo-pkg = { index = "ours" }"""
    )
    member = tmp_path / "members/app"
    (member / "pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    wanted = needed_wheel(file, data)
    bring(wanted, project=member)
    assert stored(wanted) == data


def test_a_folder_of_wheels_is_an_index_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, data = wheel()
    folder = tmp_path / "flat folder"
    folder.mkdir()
    (folder / file).write_bytes(data)
    monkeypatch.setenv("UV_FIND_LINKS", folder.as_uri())
    monkeypatch.setenv("UV_NO_INDEX", "1")
    wanted = needed_wheel(file, data)
    bring(wanted)
    assert stored(wanted) == data
    assert (folder / file).exists()


def test_two_versions_of_a_package_are_both_found(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build backend may need another version than the project."""
    old, new = wheel(version="1.0"), wheel(version="2.0")
    index(server, old, new)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    both = [needed_wheel(*old, version="1.0"), needed_wheel(*new, version="2.0")]
    bring(*both)
    assert [stored(file) for file in both] == [old[1], new[1]]


def test_an_index_with_other_bytes_is_found_out_before_they_are_fetched(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file, data), (_, other) = wheel(), wheel()
    index(server, (file, other))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    wanted = needed_wheel(file, data)
    with pytest.raises(FetchError) as caught:
        bring(wanted)
    for part in (file, wanted.sha256, hashlib.sha256(other).hexdigest()):
        assert part in str(caught.value)
    assert not server.asked(f"/simple/files/{file}")


def test_a_wheel_whose_index_tells_no_hash_is_locked_by_its_own(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, data = wheel()
    index(server, (file, data), hashes=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    resolver = Resolver(tmp_path, toolchains()["debian-12"])
    locked = asyncio.run(resolver.resolve([], ["demo-pkg"], preferred={})).artifacts[file]
    wanted = needed_wheel(file, data)
    assert locked.sha256 == wanted.sha256
    bring(locked)
    assert stored(wanted) == data


@pytest.mark.parametrize("empty", [True, False], ids=["no package", "no such file"])
def test_a_wheel_that_the_index_lacks_is_named(
    server: Server, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    file, data = wheel()
    if not empty:
        index(server, (file.replace("py3", "py2.py3"), data))
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{server.address}/simple")
    with pytest.raises(FetchError, match="demo-pkg") as caught:
        bring(needed_wheel(file, data))
    assert "\n" not in str(caught.value)
