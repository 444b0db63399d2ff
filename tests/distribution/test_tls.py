"""TLS everywhere but on this machine, or where somebody says that it is fine without."""

from __future__ import annotations

import ssl
import subprocess
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from yarl import URL

from agentix.distribution import connection, pull, push
from agentix.distribution.place import Place
from agentix.errors import DistributionError
from distribution.conftest import QUICK
from distribution.front import Front

if TYPE_CHECKING:
    from pathlib import Path

    from agentix.bundle import BundleCache


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority of our own, and a certificate for 127.0.0.1 by it."""
    folder = tmp_path_factory.mktemp("authority")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ours"),
        *("-keyout", "ca.key", "-out", "ca.crt"),
    )
    openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=registry"),
        *("-keyout", "key.pem", "-out", "request.pem"),
    )
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        *("x509", "-req", "-in", "request.pem", "-CA", "ca.crt", "-CAkey", "ca.key", "-days", "2"),
        *("-CAcreateserial", "-extfile", "names", "-out", "cert.pem"),
    )
    return folder


@pytest.fixture
def tls(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    return context


def test_an_authority_is_believed_where_the_user_says_so(
    registry: str, authority: Path, tls: ssl.SSLContext, home: Path, tar: Path, tmp_path: Path,
    cache: BundleCache, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with Front(registry, tls) as front:
        name = f"{front.address}/tls/thing:1"
        for insecure in (False, True):
            with pytest.raises(DistributionError, match="not to be trusted") as caught:
                push(tar, name, cache=cache, insecure=insecure, patience=QUICK)
            assert "SSL_CERT_FILE names the certificates" in str(caught.value)
            assert "\n" not in str(caught.value)
        assert front.seen == []
        with monkeypatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(authority / "ca.crt"))
            assert push(tar, name, cache=cache, patience=QUICK).sent == 2
        folder = home / ".config/containers/certs.d" / front.address
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())
        pull(name, output=tmp_path / "out.tar", cache=cache, patience=QUICK)
        assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()
        (folder / "ca.crt").write_text("nonsense")
        with pytest.raises(DistributionError, match="cannot read the authority"):
            pull(name, cache=cache, patience=QUICK)


def test_another_machine_is_not_spoken_to_without_tls_unless_that_is_allowed(
    front: Front, tar: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry is on this machine, which the client is not told."""
    monkeypatch.setattr(connection, "is_loopback", lambda host: False)
    name = f"{front.address}/plain/thing:1"
    with pytest.raises(DistributionError, match="--insecure allows HTTP"):
        push(tar, name, cache=cache, patience=QUICK)
    assert front.seen == []
    assert push(tar, name, cache=cache, insecure=True, patience=QUICK).sent == 2


async def test_a_registry_elsewhere_leads_nobody_to_what_listens_here_without_tls() -> None:
    """What is sent there would be ours, and its answer is nobody's business."""
    for host, followed in (("registry.example", False), ("localhost:5000", True)):
        place = Place(host, "x", "1", None)
        asking = connection.Connection(place, "", insecure=False, patience=QUICK)
        for target in ("http://127.0.0.1:8080/x", "http://localhost/x", "http://[::1]:1/x"):
            answer = SimpleNamespace(headers={"Location": target})
            leads = partial(asking.location, answer, URL(f"https://{host}/v2/"))  # type: ignore[arg-type]
            if followed:
                assert str(leads()) == target
            else:
                with pytest.raises(DistributionError, match="without TLS"):
                    leads()


def test_a_proxy_is_used_but_not_for_this_machine(
    front: Front, tar: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://{front.address}")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:my-secret@127.0.0.1:1")
    assert push(tar, f"{front.address}/proxy/thing:1", cache=cache, patience=QUICK).sent == 2
    with pytest.raises(DistributionError, match="tried 4 times") as caught:
        pull("registry.example/x/y:1", cache=cache, patience=QUICK)
    assert "my-secret" not in str(caught.value)
    assert "refused" in str(caught.value)
    monkeypatch.setenv("HTTPS_PROXY", "127.0.0.1:1")  # as curl takes it
    with pytest.raises(DistributionError, match=r"refused.*tried 4 times"):
        pull("registry.example/x/y:1", cache=cache, patience=QUICK)


@pytest.mark.parametrize("proxy", ["socks5://user:my-secret@127.0.0.1:1", "SOCKS5H://127.0.0.1:1"])
def test_a_proxy_that_speaks_no_http_is_said_to_be_none(
    proxy: str, home: Path, cache: BundleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(DistributionError, match="does not speak HTTP; set HTTPS_PROXY") as caught:
        pull("registry.example/x/y:1", cache=cache, patience=QUICK)
    assert "my-secret" not in str(caught.value)
