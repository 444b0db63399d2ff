"""A manifest is exactly what it says it is, or one line says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentix.bundle import Info, Manifest
from agentix.errors import BundleError
from bundle.handmade import INFO, OLD, store_name

ROOT = store_name("bundle")
GOOD: dict[str, Any] = INFO | {"closure": {ROOT: {"sha256": "0" * 64, "size": 96}}, "root": ROOT}


def parse(value: dict[str, Any]) -> Manifest:
    return Manifest.parse(json.dumps(value).encode(), label="x")


def test_reading_what_was_written_gives_the_same() -> None:
    manifest = parse(GOOD)
    assert Manifest.parse(manifest.to_bytes()) == manifest
    assert json.loads(manifest.to_bytes()) == GOOD
    assert json.loads(manifest.info.to_bytes()) == INFO
    assert (
        Manifest.of(manifest.info, dict(manifest.closure), ROOT).to_bytes() == manifest.to_bytes()
    )


def test_a_bundle_of_the_first_format_is_read_and_written_as_it_was() -> None:
    old = OLD | {"closure": GOOD["closure"], "root": ROOT}
    manifest = parse(old)
    assert (manifest.base, manifest.packages[0].licences) == ((), ())
    assert json.loads(manifest.to_bytes()) == old
    assert json.loads(manifest.info.to_bytes()) == OLD
    with pytest.raises(BundleError, match="format 2 needs base"):
        parse(old | {"format": 2})


def test_text_is_sorted_and_ends_with_a_newline() -> None:
    shuffled = dict(reversed(GOOD.items()))
    assert parse(shuffled).to_bytes() == parse(GOOD).to_bytes()
    assert parse(GOOD).to_bytes().endswith(b"}\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"format": 3},
            "bundle format 3 is newer than 2, the newest that this Agentix reads; upgrade",
        ),
        ({"format": 3, "unheard-of": []}, "upgrade agentix"),
        ({"format": 1}, "format 1 has no base"),
        ({"format": 0}, "format"),
        ({"format": "1"}, "format"),
        ({"format": True}, "format"),
        ({"surprise": 1}, "surprise: Extra inputs"),
        ({"name": "../evil"}, "name"),
        ({"name": "evil\n"}, "name"),
        ({"version": "\x1b[31m"}, "version"),
        ({"platform": "linux"}, "platform"),
        ({"protocol": "1"}, "protocol"),
        ({"protocol": -1}, "protocol"),
        ({"packages": [GOOD["packages"][0] | {"licences": ["\x1b[31m"]}]}, "licences.0"),
        ({"packages": [GOOD["packages"][0] | {"file": "../a.whl"}]}, "file"),
        ({"packages": [GOOD["packages"][0] | {"requires": ["a\nb"]}]}, "requires.0"),
        ({"tools": [GOOD["tools"][0] | {"kind": "rpm"}]}, "tools.0.kind"),
        ({"packages": [{"name": "a", "version": "1"}]}, "packages.0.sha256: Field required"),
        ({"root": "../../../etc"}, "root"),
        ({"root": store_name("other")}, "root is not one of the closure's store paths"),
        ({"closure": {}}, "closure"),
        ({"closure": {ROOT + "/..": GOOD["closure"][ROOT]}}, "closure"),
        ({"closure": {"x" * 32 + "-\n": GOOD["closure"][ROOT]}}, "closure"),
        ({"closure": {ROOT: {"sha256": "0" * 63, "size": 1}}}, "sha256"),
        ({"closure": {ROOT: {"sha256": "A" * 64, "size": 1}}}, "sha256"),
        ({"closure": {ROOT: {"sha256": "0" * 64, "size": -1}}}, "size"),
        ({"closure": {ROOT: {"sha256": "0" * 64, "size": 1.5}}}, "size"),
        ({"closure": {ROOT: {"sha256": "0" * 64, "size": 10**30}}}, "size"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse(GOOD | change)
    message = str(caught.value)
    assert problem in message
    assert message.startswith("x")
    assert message.isprintable()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": 1' + b"0" * 10_000 + b"}",
    ],
    ids=["empty", "cut", "list", "null", "binary", "deep", "long number"],
)
def test_what_is_no_manifest_is_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(BundleError) as caught:
        Manifest.parse(data)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_each_missing_key_is_named() -> None:
    for key in GOOD.keys() - {"format", "base"}:
        with pytest.raises(BundleError, match=f"{key}: Field required"):
            parse({name: value for name, value in GOOD.items() if name != key})


def test_an_info_is_no_manifest_and_a_manifest_no_info() -> None:
    with pytest.raises(BundleError):
        Manifest.parse(json.dumps(INFO).encode())
    with pytest.raises(BundleError):
        Info.parse(json.dumps(GOOD).encode())
