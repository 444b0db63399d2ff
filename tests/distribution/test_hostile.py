"""A registry may say and send anything: one line, bounded memory, nothing left."""

from __future__ import annotations

import hashlib
import json
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from bundle.handmade import store_name

from agentix.bundle import BundleCache
from agentix.bundle.compression import zstd
from agentix.distribution import pull, push
from agentix.distribution.challenge import challenges
from agentix.errors import AgentixError
from distribution.conftest import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distribution.front import Front

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
COMPRESSED = "application/vnd.agentix.bundle.store-path.v1.tar+zstd"


class Evil:
    """Serves what was pushed, altered: documents and blobs with digests that fit, or do not."""

    def __init__(self, front: Front, name: str, tar: Path, cache: BundleCache) -> None:
        self.blobs: dict[str, bytes] = {}
        pushed = push(tar, name, cache=cache, compress=False)
        repository = name.partition("/")[2].rpartition(":")[0]
        front.clear()
        pull_everything(front, name, repository, pushed.digest, self)
        front.meddle = self
        self.named = name

    manifest: dict[str, Any]
    kind = MANIFEST

    def add(self, data: bytes, kind: str) -> dict[str, Any]:
        """Offer *data* as a blob; return how a manifest names it."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return {"mediaType": kind, "digest": digest, "size": len(data)}

    def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if "/manifests/" in request.path:
            return web.Response(body=self.document(), headers={"Content-Type": self.kind})
        digest = request.path.rpartition("/")[2]
        if digest in self.blobs:
            return web.Response(body=self.blobs[digest])
        return web.Response(status=404)

    def document(self) -> bytes:
        return json.dumps(self.manifest).encode()


def pull_everything(front: Front, name: str, repository: str, digest: str, evil: Evil) -> None:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(path: str) -> bytes:
        url = f"{front.behind}/v2/{repository}/{path}"
        with opener.open(
            urllib.request.Request(url, headers={"Accept": MANIFEST}), timeout=30
        ) as answer:
            data: bytes = answer.read()
            return data

    evil.manifest = json.loads(get(f"manifests/{digest}"))
    for each in [evil.manifest["config"], *evil.manifest["layers"]]:
        evil.blobs[each["digest"]] = get(f"blobs/{each['digest']}")


@pytest.fixture
def evil(front: Front, name: str, tar: Path, cache: BundleCache) -> Evil:
    return Evil(front, name, tar, cache)


def refused(evil: Evil, folder: Path, problem: str) -> None:
    """Expect both ways of pulling to fail in one line, and to leave nothing."""
    for output in (None, folder / "out.tar"):
        cache = BundleCache(folder / f"{output and output.name}-cache")
        with pytest.raises(AgentixError, match=problem) as caught:
            pull(evil.named, output=output, cache=cache, patience=QUICK)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 700
        assert not list((cache.root / "bundles").glob("*"))
        assert not list((cache.root / "staging").glob("*"))
    assert not list(folder.glob("*out.tar")) + list(folder.glob(".*"))


def test_the_unaltered_is_accepted(evil: Evil, elsewhere: BundleCache) -> None:
    assert pull(evil.named, cache=elsewhere).layers == 2


@pytest.mark.parametrize(
    ("alter", "problem"),
    [
        (lambda m: m.update(schemaVersion=1), "schemaVersion"),
        (lambda m: m.update(layers="x"), "layers"),
        (lambda m: m.pop("config"), "config"),
        (lambda m: m.update(artifactType="text/plain"), "is no bundle but something else"),
        (lambda m: m["config"].update(mediaType="x" * 200), "is no bundle but something else"),
        (lambda m: m["config"].update(size=2**60), "config.size"),
        (lambda m: m["config"].update(size=2**40), r"manifest.json is above 16777216 bytes"),
        (lambda m: m["config"].update(digest="sha256:../../x"), "digest"),
        (lambda m: m["config"].update(size=10), "sent more than the 10 bytes"),
        (lambda m: m["layers"].pop(), "has 1 layers for 2 store paths"),
        (lambda m: m["layers"].reverse(), "does not have|out of order|not the next|comes twice"),
        (lambda m: m["layers"].extend(m["layers"] * 6000), "layers: .*at most 10000"),
        (lambda m: m["layers"][0].update(mediaType="application/x"), "a layer of the type"),
        (lambda m: m["layers"][0].update(size=512), "sent more than the 512 bytes"),
        (lambda m: m["layers"][0].update(size=2**50), "tried 4 times"),
        (lambda m: m["layers"][0].update(mediaType=COMPRESSED), "compressed data is damaged"),
        (lambda m: m["annotations"].clear(), "does not say which bundle it is"),
        (
            lambda m: m["annotations"].update({"agentix.bundle.digest": "sha256:" + "0" * 64}),
            "sha256-0000",
        ),
    ],
)
def test_a_manifest_that_lies_is_refused(
    evil: Evil,
    tmp_path: Path,
    alter: Callable[[dict[str, Any]], object],
    problem: str,
) -> None:
    alter(evil.manifest)
    refused(evil, tmp_path, problem)


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff" * 100, b'{"a": NaN}']
)
def test_what_is_no_document_is_refused(evil: Evil, tmp_path: Path, document: bytes) -> None:
    evil.document = lambda: document  # type: ignore[method-assign]
    refused(evil, tmp_path, "cannot be read")


def test_an_endless_document_is_refused(evil: Evil, tmp_path: Path) -> None:
    evil.document = lambda: bytes(64 << 20)  # type: ignore[method-assign]
    refused(evil, tmp_path, "sent more than the 4194304 bytes")


def test_another_document_than_was_asked_for_is_refused(evil: Evil, tmp_path: Path) -> None:
    evil.named = f"{evil.named.rpartition(':')[0]}@sha256:{'a' * 64}"
    refused(evil, tmp_path, "sent something else than sha256:aaa")


def test_another_layer_than_was_promised_is_refused(evil: Evil, tmp_path: Path) -> None:
    """Also one that would do: it is not what whoever pushed has named."""
    layer = evil.manifest["layers"][-1]
    evil.blobs[f"sha256:{'0' * 64}"] = evil.blobs[layer["digest"]]
    layer["digest"] = f"sha256:{'0' * 64}"
    refused(evil, tmp_path, "sent something else than sha256:000")


@pytest.mark.parametrize("kept", [-1024, -512, -1, 0, 1])
def test_a_layer_that_is_no_tar_is_refused(evil: Evil, tmp_path: Path, kept: int) -> None:
    layer = evil.manifest["layers"][-1]
    data = evil.blobs[layer["digest"]]
    data = data[:kept] if kept <= 0 else data + bytes(kept)
    layer.update(evil.add(data, layer["mediaType"]))
    refused(evil, tmp_path, "no proper end|declared|damaged|header|begins|outside")


def test_a_layer_with_another_content_is_refused_though_its_digest_fits(
    evil: Evil, tmp_path: Path
) -> None:
    layer = evil.manifest["layers"][0]
    altered = evil.blobs[layer["digest"]].replace(b"import sys", b"import evi")
    other = evil.manifest["layers"][1]
    changed = layer if altered != evil.blobs[layer["digest"]] else other
    altered = evil.blobs[changed["digest"]].replace(b"import sys", b"import evi")
    assert altered != evil.blobs[changed["digest"]]
    changed.update(evil.add(altered, changed["mediaType"]))
    refused(evil, tmp_path, "does not have the content that the manifest declares")


@pytest.mark.parametrize("filling", ["zeros", "frames"])
def test_a_layer_that_grows_without_end_is_left_at_once(
    evil: Evil, tmp_path: Path, filling: str
) -> None:
    whole = evil.blobs[evil.manifest["layers"][0]["digest"]][:-1024]
    if filling == "zeros":
        compressor = zstd.ZstdCompressor(1)
        bomb = compressor.compress(whole)
        for _ in range(8192):
            bomb += compressor.compress(bytes(1 << 20))
        bomb += compressor.flush()
    else:
        bomb = zstd.compress(whole) + zstd.compress(b"") * 100_000
    evil.manifest["layers"][0] = evil.add(bomb, COMPRESSED)
    began = time.monotonic()
    tracemalloc.start()
    refused(
        evil,
        tmp_path,
        "members after|not declared|outside|proper end|pieces|begins|missing",
    )
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert time.monotonic() - began < 60


def test_a_layer_cannot_hold_another_store_path(evil: Evil, tmp_path: Path) -> None:
    first, second = (evil.blobs[each["digest"]] for each in evil.manifest["layers"])
    evil.manifest["layers"][0] = evil.add(
        first[:-1024] + second, evil.manifest["layers"][0]["mediaType"]
    )
    refused(evil, tmp_path, "comes twice|not declared|out of order")


def test_a_manifest_json_that_is_not_one_is_refused(evil: Evil, tmp_path: Path) -> None:
    config = evil.blobs[evil.manifest["config"]["digest"]]
    kind = evil.manifest["config"]["mediaType"]
    for altered, problem in (
        (b"{}", "manifest.json"),
        (config + b" ", "not written as agentix build writes it"),
        (config.replace(b"linux/amd64", b"linux/arm64"), "contradicts|does not have"),
        (config.replace(store_name("bundle").encode(), b"../../../../etc"), "manifest.json"),
    ):
        assert altered != config
        evil.manifest["config"] = evil.add(altered, kind)
        refused(evil, tmp_path, problem)


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        ({"schemaVersion": 2, "manifests": []}, "is for nothing, not for linux/"),
        ({"schemaVersion": 2}, "its index cannot be read"),
        ({"schemaVersion": 2, "manifests": [{"mediaType": MANIFEST, "size": 1}]}, "digest"),
    ],
)
def test_an_index_that_lies_is_refused(
    evil: Evil, tmp_path: Path, index: dict[str, Any], problem: str
) -> None:
    evil.kind = "application/vnd.oci.image.index.v1+json"
    evil.manifest = index
    refused(evil, tmp_path, problem)


def test_an_index_that_names_itself_ends(evil: Evil, tmp_path: Path) -> None:
    from agentix import platforms

    evil.kind = "application/vnd.oci.image.index.v1+json"
    system, architecture = platforms.current().name.split("/")
    entry = {
        "mediaType": MANIFEST,
        "digest": "sha256:" + "0" * 64,
        "size": 400,
        "platform": {"os": system, "architecture": architecture},
    }
    evil.manifest = {"schemaVersion": 2, "manifests": [entry]}
    refused(evil, tmp_path, "sent something else than sha256:000")


def test_what_a_registry_says_of_a_refusal_is_made_harmless(
    evil: Evil, elsewhere: BundleCache, front: Front
) -> None:
    said = "\x1b[2J\nlook at https://user:pw@evil/x?token=abc " + "y" * 5000
    complaint = {"errors": [{"code": "DENIED", "message": said}]}
    front.meddle = lambda request: web.json_response(complaint, status=403)
    with pytest.raises(AgentixError, match="DENIED") as caught:
        pull(evil.named, cache=elsewhere, patience=QUICK)
    text = str(caught.value)
    assert "\x1b" not in text
    assert "\n" not in text
    assert "pw@" not in text
    assert "abc" not in text
    assert len(text) < 400


def test_what_a_registry_says_takes_no_longer_for_being_long(
    evil: Evil, elsewhere: BundleCache, front: Front
) -> None:
    complaint = {"errors": [{"code": "DENIED", "message": "y" * 60_000}]}
    front.meddle = lambda request: web.json_response(complaint, status=403)
    began = time.process_time()
    with pytest.raises(AgentixError, match="DENIED: yyy"):
        pull(evil.named, cache=elsewhere, patience=QUICK)
    for filling in (" ", ",", "a", "a ", 'a="', "a=b,"):
        challenges([filling * 8000 + end for end in ('"', "", "=")])
    assert time.process_time() - began < 5
