"""Providers that are stubs check their configuration, keep its secret, and say what they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from agentix import SandboxConfig, providers
from agentix.errors import ProviderError
from agentix.provider.base import BundleDeployer, SandboxId
from agentix.provider.daytona import DaytonaProvider, DaytonaProviderConfig
from agentix.provider.e2b import E2bProvider, E2bProviderConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = "e2b_0123456789-the-secret"
STUBS: dict[str, type[DaytonaProvider] | type[E2bProvider]] = {
    "daytona": DaytonaProvider,
    "e2b": E2bProvider,
}
CONFIGS: dict[str, type[DaytonaProviderConfig] | type[E2bProviderConfig]] = {
    "daytona": DaytonaProviderConfig,
    "e2b": E2bProviderConfig,
}
VARIABLES = ("API_KEY", "API_URL", "TARGET", "DOMAIN")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        for name in STUBS:
            monkeypatch.delenv(f"{name.upper()}_{variable}", raising=False)


@pytest.fixture(params=sorted(STUBS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def methods(provider: DaytonaProvider | E2bProvider) -> list[Callable[[], Awaitable[object]]]:
    """Return everything that a provider can be asked to do."""
    return [
        lambda: provider.create(SandboxConfig(image="debian:12", bundle="x.bundle.tar")),
        lambda: provider.get(SandboxId("some-1")),
        lambda: provider.delete(SandboxId("some-1")),
        lambda: provider.deploy_bundle(Path("x.bundle.tar")),
    ]


async def test_without_a_key_each_says_what_to_set(name: str) -> None:
    for method in methods(STUBS[name]()):
        with pytest.raises(ProviderError, match=f"{name.upper()}_API_KEY, or give api_key") as it:
            await method()
        assert not isinstance(it.value, NotImplementedError)


@pytest.mark.parametrize("where", ["configuration", "environment"])
async def test_with_a_key_each_says_that_it_is_a_stub(
    name: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "environment":
        monkeypatch.setenv(f"{name.upper()}_API_KEY", SECRET)
        provider = STUBS[name]()
    else:
        provider = CONFIGS[name].model_validate({"api_key": SECRET}).to_provider()
    for method in methods(provider):
        with pytest.raises(NotImplementedError, match=f"{name} cannot .*: .* stub") as caught:
            await method()
        assert isinstance(caught.value, ProviderError)
        assert "\n" not in str(caught.value)


def test_doctor_hears_that_it_is_a_stub_and_what_it_lacks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [found] = STUBS[name]().diagnose()
    assert (found.level, found.advice) == ("problem", "")
    assert re.fullmatch(f"a stub so far, and .*set {name.upper()}_API_KEY.*", found.text)
    monkeypatch.setenv(f"{name.upper()}_API_KEY", SECRET)
    [found] = STUBS[name]().diagnose()
    assert found.level == "problem", "with a key it makes no sandbox either"
    assert found.text == "a stub so far, which only checks its configuration"
    monkeypatch.setenv(f"{name.upper()}_API_KEY", f"{SECRET} \n")
    [found] = STUBS[name]().diagnose()
    assert SECRET not in found.text


async def test_a_session_with_a_stub_ends_with_what_it_says(name: str) -> None:
    provider = CONFIGS[name].model_validate({"api_key": SECRET}).to_provider()
    with pytest.raises(NotImplementedError):
        async with provider.session(SandboxConfig(image="i", bundle="b")):
            pass


@pytest.mark.parametrize("key", [f"{SECRET}\n", f"{SECRET} ", f"{SECRET}é", f"\t{SECRET}"])
async def test_a_key_that_no_header_could_carry_is_refused_unseen(name: str, key: str) -> None:
    config = CONFIGS[name].model_validate({"api_key": key})
    with pytest.raises(ProviderError, match=r"cannot be one.*_API_KEY") as caught:
        await config.to_provider().get(SandboxId("some-1"))
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"api_keys": SECRET}, {"api_key": [SECRET]}, {"api_key": "", "name": SECRET}]
)
def test_a_key_in_the_wrong_place_is_not_in_the_error(name: str, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        CONFIGS[name].model_validate(wrong)
    assert SECRET not in str(caught.value)


def test_the_key_is_not_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS[name].model_validate({"api_key": SECRET})
    assert SECRET not in f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    monkeypatch.setenv(f"{name.upper()}_API_KEY", SECRET)
    completed = CONFIGS[name]().complete()
    assert SECRET not in repr(completed)
    assert completed.api_key is not None
    assert completed.api_key.get_secret_value() == SECRET


@pytest.mark.parametrize(
    "url",
    [
        "http://service.test/api",
        "service.test",
        "https://",
        f"https://u:{SECRET}@h.test",
        "https://[",
    ],
)
async def test_daytona_is_asked_where_nobody_reads_along(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", SECRET)
    for config in (DaytonaProviderConfig(api_url=url), DaytonaProviderConfig()):
        with pytest.raises(ProviderError, match="DAYTONA_API_URL") as caught:
            await config.to_provider().get(SandboxId("some-1"))
        assert SECRET not in repr(caught.value)
        monkeypatch.setenv("DAYTONA_API_URL", url)


@pytest.mark.parametrize(
    "domain", ["https://e2b.test", "e2b.test/api", "user@e2b.test", "e2b", "a b"]
)
async def test_e2b_is_asked_at_a_name(domain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("E2B_API_KEY", SECRET)
    for config in (E2bProviderConfig(domain=domain), E2bProviderConfig()):
        with pytest.raises(ProviderError, match="E2B_DOMAIN"):
            await config.to_provider().get(SandboxId("some-1"))
        monkeypatch.setenv("E2B_DOMAIN", domain)


def test_the_environment_completes_what_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTONA_TARGET", "eu")
    monkeypatch.setenv("DAYTONA_API_URL", "https://elsewhere.test/api")
    given = DaytonaProviderConfig.model_validate({"api_key": SECRET, "target": "us"})
    assert given.complete().target == "us"
    assert given.complete().api_url == "https://elsewhere.test/api"


def test_stubs_are_installed_and_can_be_deployed_to_by_name_only(name: str) -> None:
    provider = providers().get(name)
    assert provider is STUBS[name]
    assert issubclass(provider, BundleDeployer)  # or the local cache would be taken for it
    command = [str(Path(sys.executable).with_name("agentix")), "deploy", name, "x.bundle.tar"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stdout == ""
    assert f"{name.upper()}_API_KEY" in result.stderr
    assert len(result.stderr.splitlines()) == 1
