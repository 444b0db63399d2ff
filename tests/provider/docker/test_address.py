"""Which engine is meant, by the rules of the docker command."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest

from agentix.errors import ProviderError
from agentix.provider.docker.address import DEFAULT_DOCKER, Address, Tls, locate

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def nothing_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "TLS_VERIFY", "CERT_PATH", "CONTEXT"):
        monkeypatch.delenv(f"DOCKER_{name}", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")


def make_context(folder: Path, name: str, host: str, *, certs: bool = False) -> Path:
    """Do what `docker context create` does; return where its certificates are."""
    key = hashlib.sha256(name.encode()).hexdigest()
    meta, tls = folder / "contexts/meta" / key, folder / "contexts/tls" / key / "docker"
    meta.mkdir(parents=True)
    endpoint = {"Host": host, "SkipTLSVerify": False}
    about = {"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}
    (meta / "meta.json").write_text(json.dumps(about))
    if certs:
        tls.mkdir(parents=True)
        for file in ("ca.pem", "cert.pem", "key.pem"):
            (tls / file).write_text("")
    return tls


def test_it_is_the_local_one_if_nothing_is_chosen() -> None:
    assert locate("docker") == Address("docker", DEFAULT_DOCKER)
    assert not locate("docker").remote


def test_a_host_wins_over_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_context(tmp_path, "far", "ssh://far")
    monkeypatch.setenv("DOCKER_CONTEXT", "far")
    assert locate("docker").url == "ssh://far"
    monkeypatch.setenv("DOCKER_HOST", "ssh://farther")
    assert locate("docker") == Address("docker", "ssh://farther")
    assert locate("docker").remote


def test_the_current_context_is_taken_with_its_certificates(tmp_path: Path) -> None:
    tls = make_context(tmp_path, "far", "tcp://far:2376", certs=True)
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "far"}))
    ca, cert, key = (str(tls / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    assert locate("docker") == Address("docker", "tcp://far:2376", Tls(ca, cert, key, verify=True))


def test_a_context_that_is_not_there_is_not_taken_for_the_local_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(ProviderError, match="no docker context 'nowhere'"):
        locate("docker")


def test_tls_is_as_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://far:2376")
    assert locate("docker").tls is None
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    (tmp_path / "ca.pem").write_text("")
    where = locate("docker")
    assert where.tls == Tls(str(tmp_path / "ca.pem"), None, None, verify=True)
    # A record in a file of JSON gives the same.
    assert Address.of("docker", json.loads(json.dumps(where.facts()))) == where


@pytest.mark.parametrize("url", ["npipe:////./pipe/docker", "fd://", "http://far"])
def test_other_ways_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", url)
    with pytest.raises(ProviderError, match="may begin with unix://, tcp:// or ssh://"):
        locate("docker")


def test_podman_is_used_on_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", "ssh://far/run/podman/podman.sock")
    with pytest.raises(ProviderError, match="works with Docker only"):
        locate("podman")
