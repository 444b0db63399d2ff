"""npm's settings mean here what they mean to npm."""

from __future__ import annotations

import base64
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from agentix.build.npm.settings import Settings, read_settings
from agentix.errors import LockError

if TYPE_CHECKING:
    from pathlib import Path


def npm_says(cwd: Path) -> tuple[str, str]:
    """Return what npm takes as the registry, and as that of the scope @acme."""
    words = ["npm", "config", "get", "registry", "@acme:registry"]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=60, check=True)
    registry, scoped = (line.partition("=")[2].rstrip("/") for line in done.stdout.splitlines())
    return registry, scoped if scoped != "undefined" else registry


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "package.json").write_text("{}")  # for npm, this is the project then
    return root


CASES = {
    "user": {"home": "registry = https://user.example/npm/ ; mine\n"},
    "project before user": {
        "home": "registry=https://user.example\n",
        "project": '# ours\nregistry="https://project.example/a"\n',
    },
    "environment before project": {
        "project": "registry=https://project.example\n",
        "NPM_CONFIG_REGISTRY": "https://variable.example/",
    },
    "lower case": {"npm_config_registry": "https://small.example/"},
    "machine": {"global": "registry=https://machine.example\n"},
    "variables": {
        "home": "registry=https://${THE_HOST}/${MISSING_ONE?}x\n",
        "THE_HOST": "from.example",
    },
    "scope": {"home": "@acme:registry=https://acme.example/\nregistry=https://other.example\n"},
    "another user's file": {"NPM_CONFIG_USERCONFIG": "{root}/elsewhere"},
    "sections and lists": {
        "home": "omit[]=dev\nregistry='https://quoted.example/'\n[part]\nregistry=https://no.example\n",
    },
}


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("case", CASES)
async def test_the_registry_is_the_one_that_npm_would_use(
    case: str, home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").write_text("registry=https://elsewhere.example\n")
    files = {"home": home / ".npmrc", "project": project / ".npmrc"}
    files["global"] = tmp_path / "global-npmrc"
    for key, value in CASES[case].items():
        if key in files:
            files[key].write_text(value)
        else:
            monkeypatch.setenv(key, value.replace("{root}", str(tmp_path)))
    settings = await read_settings(project)
    assert (settings.registry("left-pad"), settings.registry("@acme/x")) == npm_says(project)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_where_nobody_chose_npm_is_asked(home: Path, project: Path) -> None:
    settings = await read_settings(project)
    assert settings.registry("x") == npm_says(project)[0]


async def test_without_npm_and_settings_there_is_one_line(
    home: Path, project: Path, without_npm: None
) -> None:
    with pytest.raises(LockError, match=r"no npm registry is configured.*\.npmrc") as caught:
        await read_settings(project)
    assert "\n" not in str(caught.value)


async def test_settings_that_are_no_text_are_named(home: Path, project: Path) -> None:
    (home / ".npmrc").write_bytes(b"registry=\xff\n")
    with pytest.raises(LockError, match=r"\.npmrc: it is not UTF-8"):
        await read_settings(project)


def test_credentials_go_where_they_belong() -> None:
    secret = base64.b64encode(b"pass:word").decode()
    settings = Settings(
        {
            "registry": "https://one.example/npm/",
            "//one.example/npm/:_authToken": "token",
            "//two.example:8443/:username": "me",
            "//two.example:8443/:_password": secret,
            "//three.example/:_auth": "YTpi",
        }
    )
    registry = settings.registry("x")
    basic = "Basic " + base64.b64encode(b"me:pass:word").decode()
    for address, expected in {
        "https://one.example/npm/x": "Bearer token",
        "https://one.example/npm/x/-/x-1.tgz": "Bearer token",
        "https://one.example/files/x-1.tgz": "Bearer token",  # on the registry's own server
        "https://two.example:8443/a/b": basic,
        "https://two.example/a/b": None,
        "https://three.example/": "Basic YTpi",
        "https://evil.example/npm/x": None,
    }.items():
        assert settings.authorization(address, registry) == expected, address


@pytest.mark.parametrize("password", ["?", "é"])
def test_a_password_that_is_none_is_refused(password: str) -> None:
    settings = Settings({"//a.example/:username": "me", "//a.example/:_password": password})
    with pytest.raises(LockError, match="_password is not base64"):
        settings.authorization("https://a.example/x")


def test_proxies_are_used_except_where_they_are_not() -> None:
    settings = Settings({"https-proxy": "http://p.example:1", "noproxy": "in.example, .other"})
    assert settings.proxy("https://out.example/x") == "http://p.example:1"
    assert settings.proxy("https://a.in.example/x") is None
    assert settings.proxy("https://x.other/") is None
    assert Settings({}).proxy("https://x.example") is None
