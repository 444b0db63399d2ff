"""What the tests of distribution share: one real registry, a front for each test, and bundles."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest
from bundle.conftest import bundle, cache, tar, workshop
from images.debian import ImagesUnavailable
from images.registry import Registry, program

from agentix.bundle import BundleCache
from agentix.patience import Patience
from distribution.front import Front

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["bundle", "cache", "tar", "workshop"]  # fixtures that are the bundle tests', too

QUICK = Patience(tries=4, first=0.01, longest=0.02, asked=0.02)


@contextlib.contextmanager
def serving(scratch: Path, *, private: bool = False) -> Iterator[str]:
    """Run Debian's docker-registry; give its address."""
    try:
        program()
    except ImagesUnavailable as error:
        pytest.skip(f"there is no registry here: {error}")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        running = Registry(None, scratch, private=private).alone()
        address = asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(60)
        try:
            yield address
        finally:
            ending = running.__aexit__(None, None, None)
            asyncio.run_coroutine_threadsafe(ending, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry that lets everybody do everything."""
    with serving(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def front(registry: str, home: Path) -> Iterator[Front]:
    with Front(registry) as front:
        yield front


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who has logged in nowhere."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AGENTIX_CACHE_DIR", str(tmp_path / "cache"))
    unset = ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR")
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    for name in (*unset, *proxies, "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def name(front: Front, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A name at the registry that no other test uses."""
    return f"{front.address}/test/{tmp_path.name.lower().replace('_', '-').strip('-')}:1.0"


@pytest.fixture
def elsewhere(tmp_path: Path) -> BundleCache:
    """The cache of another machine."""
    return BundleCache(tmp_path / "elsewhere")
