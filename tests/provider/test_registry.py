"""Providers are found by name, and a broken plugin hides only itself."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import agentix
from agentix.errors import ProviderError, ProviderNotFound
from agentix.provider import registry
from agentix.provider.base import SandboxProvider
from agentix.provider.registry import providers, register_provider

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.provider.base import Sandbox, SandboxConfig, SandboxId


class Fly(SandboxProvider):
    """A provider that makes nothing."""

    async def create(self, config: SandboxConfig) -> Sandbox:
        raise NotImplementedError

    async def delete(self, sandbox_id: SandboxId) -> None:
        raise NotImplementedError

    async def get(self, sandbox_id: SandboxId) -> Sandbox:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def plugin(site: Path, name: str, points: str, source: str) -> None:
    """Install a distribution that names providers, in a folder of its own."""
    info = site / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[agentix.provider]\n{points}\n")
    (site / f"{name.replace('-', '_')}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_the_installed_providers_are_found() -> None:
    found = providers().all()
    assert found["bubblewrap"].__module__.startswith("agentix.provider.bubblewrap")
    assert agentix.providers is providers


def test_an_unknown_name_says_what_is_installed_and_what_to_install() -> None:
    with pytest.raises(ProviderNotFound) as caught:
        providers().get("fly")
    message = str(caught.value)
    assert message.startswith(
        "provider 'fly' is not installed; install agentix-provider-fly (installed: "
    )
    assert "bubblewrap" in message
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    "source",
    ["raise RuntimeError('two\\nlines')", "import sys; sys.exit(3)", "Broken = 5", "", "1 +"],
)
def test_a_broken_plugin_is_reported_and_hides_only_itself(site: Path, source: str) -> None:
    plugin(site, "agentix-broken", "broken = agentix_broken:Broken", source)
    sys.modules.pop("agentix_broken", None)
    assert "broken" not in providers().all()
    assert "bubblewrap" in providers().all()
    assert list(providers().errors()) == ["broken"]
    with pytest.raises(ProviderError) as caught:
        providers().get("broken")
    assert not isinstance(caught.value, ProviderNotFound)
    assert "agentix-broken" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_named_instead_of_a_broken_plugin_does_load(site: Path) -> None:
    for each in ("broken", "shattered"):
        plugin(site, f"agentix-{each}", f"{each} = agentix_{each}:Broken", "raise RuntimeError")
    with pytest.raises(ProviderError, match=r"or use another one \(.*bubblewrap") as caught:
        providers().get("broken")
    assert "shattered" not in str(caught.value)


def test_a_name_that_two_distributions_claim_is_nobodys_even_if_one_is_broken(site: Path) -> None:
    good = "from agentix.provider.base import SandboxProvider\nclass Fly(SandboxProvider): ..."
    plugin(site, "agentix-one", "fly = agentix_one:Fly", "raise RuntimeError")
    plugin(site, "agentix-two", "fly = agentix_two:Fly", good)
    with pytest.raises(ProviderError, match="agentix-one, agentix-two"):
        providers().get("fly")


def test_what_helps_against_two_of_one_name_is_to_uninstall_one(site: Path) -> None:
    for each in ("agentix-other", "agentix-docks"):
        plugin(site, each, f"fly = {each.replace('-', '_')}:Fly", "")
    said = "'fly': agentix-docks, agentix-other; uninstall all but one"
    with pytest.raises(ProviderError, match=f"^several distributions name a provider {said}$"):
        providers().get("fly")


def test_registering_adds_a_provider_in_this_process() -> None:
    register_provider("fly", Fly)
    register_provider("fly", Fly)
    assert providers().get("fly") is Fly
    assert providers().all()["fly"] is Fly


def test_a_name_is_registered_once() -> None:
    class Other(Fly):
        pass

    register_provider("fly", Fly)
    with pytest.raises(ValueError, match="registered already"):
        register_provider("fly", Other)


def test_a_provider_that_lacks_a_method_is_not_registered() -> None:
    class Half(SandboxProvider):
        create = Fly.create

    with pytest.raises(TypeError, match="does not implement delete, get"):
        register_provider("half", Half)  # type: ignore[type-abstract]


def test_what_is_no_provider_is_not_registered() -> None:
    with pytest.raises(TypeError, match="not a subclass of SandboxProvider"):
        register_provider("fly", int)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["docker", "bubblewrap"])
def test_a_provider_can_be_imported_first_in_a_fresh_interpreter(name: str) -> None:
    code = (
        f"import agentix.provider.{name}; from agentix import providers; providers().get({name!r})"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_the_registry_has_its_second_import_path() -> None:
    code = "from agentix.provider import providers, register_provider; providers().names()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
