"""A registry that is unwell is asked again, within bounds; what had been sent stays sent."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from agentix.distribution import pull, push
from agentix.errors import DistributionError
from agentix.patience import Patience
from distribution.conftest import QUICK

if TYPE_CHECKING:
    from pathlib import Path

    from bundle.handmade import Workshop

    from agentix.bundle import BundleCache
    from distribution.front import Front


def failing(times: int, status: int, *, also: str = "", **headers: str) -> object:
    """Answer the first *times* requests, whose path has *also*, with *status*."""
    left = [times]

    def meddle(request: web.Request) -> web.StreamResponse | None:
        if also not in request.path or request.path == "/v2/" or not left[0]:
            return None
        left[0] -= 1
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, headers=fields)

    return meddle


@pytest.mark.parametrize("status", [429, 502, 503])
@pytest.mark.parametrize("where", ["/blobs/uploads/", "/manifests/", "/blobs/sha256:"])
def test_a_registry_that_is_busy_is_asked_again(
    tar: Path, name: str, front: Front, cache: BundleCache, status: int, where: str
) -> None:
    front.meddle = failing(2, status, also=where)  # type: ignore[assignment]
    assert push(tar, name, cache=cache, patience=QUICK).sent == 2
    front.meddle = failing(2, status, also=where)  # type: ignore[assignment]
    pulled = pull(name, output=tar.with_name("out.tar"), cache=cache, patience=QUICK)
    assert pulled.path.read_bytes() == tar.read_bytes()


def test_a_registry_that_stays_busy_is_given_up_in_one_line(
    tar: Path, name: str, front: Front, cache: BundleCache
) -> None:
    front.meddle = failing(1000, 503)  # type: ignore[assignment]
    for action in (lambda: push(tar, name, cache=cache, patience=QUICK), lambda: pull(
        name, cache=cache, patience=QUICK)):  # fmt: skip
        with pytest.raises(DistributionError, match=r"it answered 503 \(tried 4 times\)") as caught:
            action()
        assert "\n" not in str(caught.value)


def test_a_registry_is_heeded_when_it_says_when_to_come_back(
    tar: Path, name: str, front: Front, cache: BundleCache
) -> None:
    push(tar, name, cache=cache)
    front.meddle = failing(1, 429, Retry_After="1")  # type: ignore[assignment]
    began = time.monotonic()
    pull(name, cache=cache, patience=Patience(tries=3, first=0.01))
    assert time.monotonic() - began >= 1


def test_an_upload_that_breaks_off_begins_again(
    name: str, front: Front, workshop: Workshop, tmp_path: Path, cache: BundleCache
) -> None:
    tar = workshop.bundle({"large": os.urandom(3 << 20)}).write(tmp_path / "large.tar").path
    front.cut = lambda request: 1 << 20 if request.method == "PUT" and front.cuts < 2 else None
    assert push(tar, name, cache=cache, patience=QUICK).sent == 3
    assert front.cuts == 2
    pull(name, output=tmp_path / "out.tar", cache=cache)
    assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_download_that_breaks_off_goes_on_where_it_was(
    name: str,
    front: Front,
    workshop: Workshop,
    tmp_path: Path,
    cache: BundleCache,
    elsewhere: BundleCache,
    ranges: bool,
) -> None:
    size = 6 << 20
    tar = workshop.bundle({"large": os.urandom(size)}).write(tmp_path / "large.tar").path
    push(tar, name, cache=cache)
    front.clear()
    asked: list[str] = []
    most = 3 if ranges else 1

    def cut(request: web.Request) -> int | None:
        asked.append(request.headers.get("Range", ""))
        return 2 << 20 if "/blobs/" in request.path and front.cuts < most else None

    front.cut, front.ranges = cut, ranges
    pull(name, output=tmp_path / "out.tar", cache=elsewhere, patience=QUICK)
    assert (tmp_path / "out.tar").read_bytes() == tar.read_bytes()
    assert front.cuts == most
    assert any(each.startswith("bytes=") and each != "bytes=0-" for each in asked)


def test_a_download_that_cannot_go_on_is_given_up(
    name: str, front: Front, workshop: Workshop, tmp_path: Path, cache: BundleCache,
    elsewhere: BundleCache,
) -> None:  # fmt: skip
    tar = workshop.bundle({"large": os.urandom(1 << 20)}).write(tmp_path / "large.tar").path
    push(tar, name, cache=cache)
    front.cut = lambda request: 100 if "/blobs/" in request.path else None
    with pytest.raises(DistributionError, match="tried 4 times"):
        pull(name, cache=elsewhere, patience=QUICK)
    front.clear()
    # The manifest.json arrives, but no layer does.
    front.cut = lambda request: 0 if "/blobs/" in request.path and front.fetched()[1:] else None
    with pytest.raises(DistributionError, match="tried 4 times"):
        pull(name, output=tmp_path / "out.tar", cache=elsewhere, patience=QUICK)
    assert not list(tmp_path.glob("*out.tar*"))
    assert not list((elsewhere.root / "bundles").glob("*"))


def test_nobody_there_is_said(tar: Path, cache: BundleCache, home: Path) -> None:
    for action in (push, pull):
        arguments = (tar, "127.0.0.1:1/x/y") if action is push else ("127.0.0.1:1/x/y",)
        with pytest.raises(DistributionError, match=r"127.0.0.1:1: .*(tried 4 times)") as caught:
            action(*arguments, cache=cache, patience=QUICK)
        assert "refused" in str(caught.value)


def test_a_push_that_failed_half_way_goes_on_where_it_was(
    name: str, front: Front, workshop: Workshop, tmp_path: Path, cache: BundleCache
) -> None:
    extra = {f"p{n}": os.urandom(1000) for n in range(6)}
    tar = workshop.bundle(extra).write(tmp_path / "x.tar").path
    refused: list[str] = []

    def meddle(request: web.Request) -> web.StreamResponse | None:
        if request.method == "PUT" and len(front.uploads()) > 3:
            refused.append(request.path)
            return web.json_response(
                {"errors": [{"code": "DENIED", "message": "quota exceeded"}]}, status=403
            )
        return None

    front.meddle = meddle
    with pytest.raises(DistributionError, match=r"403 \(DENIED: quota exceeded\)"):
        push(tar, name, cache=cache, patience=QUICK)
    done = len(front.uploads()) - len(refused)
    front.clear()
    assert push(tar, name, cache=cache, patience=QUICK).sent <= 8 - done
