"""A bill of materials is CycloneDX's by its own schema, and says what the manifest knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from packageurl import PackageURL

from agentix.bundle import Manifest
from agentix.bundle.licences import expression, spdx
from agentix.bundle.sbom import cyclonedx as bill
from bundle.cyclonedx_schema import faults
from bundle.handmade import INFO, OLD, store_name

ROOT = store_name("bundle")
DIGEST = "1" * 64
MSGPACK = "pkg:pypi/msgpack@1.1.0"
OURS = "pkg:generic/hello-world@0.1.0"


def made(info: dict[str, Any] = INFO) -> dict[str, Any]:
    closure = {ROOT: {"sha256": "0" * 64, "size": 96}}
    manifest = Manifest.parse(json.dumps(info | {"closure": closure, "root": ROOT}).encode())
    document: dict[str, Any] = json.loads(json.dumps(bill(manifest, DIGEST)))
    assert not faults(document)
    refs = [component["bom-ref"] for component in document["components"]]
    assert len(refs) == len(set(refs))
    assert {edge["ref"] for edge in document["dependencies"]} == {"bundle", *refs}
    return document


def components(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {component["bom-ref"]: component for component in document["components"]}


def needs(document: dict[str, Any]) -> dict[str, list[str]]:
    return {edge["ref"]: edge["dependsOn"] for edge in document["dependencies"]}


def packages(*items: dict[str, Any]) -> dict[str, Any]:
    base = {"version": "1", "sha256": "a" * 64}
    return INFO | {"packages": [base | item for item in items], "tools": [], "base": []}


def test_the_schema_is_one_that_refuses() -> None:
    document = made()
    document["components"][0]["licenses"] = [{"license": {"id": "no-such"}}]
    assert faults(document)


def test_everything_has_its_address_its_hash_and_its_licence() -> None:
    document = made()
    found = components(document)
    arch = "?arch=amd64&distro=debian-12"
    assert sorted(found) == [
        f"pkg:deb/debian/jq@1.6-2.1%2Bdeb12u1{arch}",
        f"pkg:deb/debian/libc6@2.36-9%2Bdeb12u14{arch}",
        OURS,
        MSGPACK,
    ]
    for ref, component in found.items():
        assert PackageURL.from_string(ref).version == component["version"]
        assert component["hashes"][0]["alg"] == "SHA-256"
    assert found[MSGPACK]["hashes"][0]["content"] == "a" * 64
    assert found[MSGPACK]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert found[OURS]["hashes"][0]["content"] == "b" * 64
    assert "licenses" not in found[OURS]
    assert found[f"pkg:deb/debian/jq@1.6-2.1%2Bdeb12u1{arch}"]["licenses"] == [
        {"expression": "MIT AND (GPL-2.0-or-later OR Artistic-1.0)"}
    ]
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("hello-world", "0.1.0")
    assert root["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]


def test_what_needs_what_is_told_as_markers_and_extras_decide() -> None:
    document = made(
        packages(
            {"name": "App", "requires": ["a_b[fast]>=1", "never; sys_platform == 'win32'"]},
            {"name": "a-b", "requires": ["c; extra == 'fast'", "d; extra == 'slow'"]},
            {"name": "c", "requires": ["a-b", "not even a requirement ;;"]},
            {"name": "d", "requires": ["c; python_version < '3.11'", "c; platform_machine == 'x'"]},
            {"name": "never"},
        )
    )
    found = needs(document)
    assert found["pkg:pypi/app@1"] == ["pkg:pypi/a-b@1"]
    assert found["pkg:pypi/a-b@1"] == ["pkg:pypi/c@1"]
    assert found["pkg:pypi/c@1"] == ["pkg:pypi/a-b@1"]
    assert found["pkg:pypi/d@1"] == []
    assert found["bundle"] == ["pkg:pypi/app@1", "pkg:pypi/d@1", "pkg:pypi/never@1"]


@pytest.mark.parametrize(
    "marker", ['os_name ~= "posix"', 'python_full_version ~= "3"', '"x" in extras']
)
def test_a_marker_that_means_nothing_leaves_nothing_out(marker: str) -> None:
    document = made(packages({"name": "a", "requires": [f"b; {marker}"]}, {"name": "b"}))
    assert needs(document)["pkg:pypi/a@1"] == ["pkg:pypi/b@1"]


def test_a_bundle_for_a_platform_that_is_not_known_here_has_one_too() -> None:
    tool = {"package": "jq", "version": "1"}
    document = made(
        packages({"name": "a", "requires": ["b; platform_machine == 's390x'"]}, {"name": "b"})
        | {"platform": "linux/s390x", "tools": [tool]}
    )
    assert needs(document)["pkg:pypi/a@1"] == ["pkg:pypi/b@1"]
    assert "pkg:deb/debian/jq@1?arch=s390x&distro=debian-12" in components(document)


def test_what_the_bundle_was_built_of_is_needed_by_it_even_in_a_circle() -> None:
    ours = {"sha256": None, "built": "b" * 64}
    document = made(
        packages({"name": "one", "requires": ["two"], **ours}, {"name": "two", "requires": ["one"]})
    )
    assert needs(document)["bundle"] == ["pkg:generic/one@1"]


def test_tools_of_npm_and_of_nix_have_addresses_of_their_own() -> None:
    tools = [
        {"package": "@scope/tool", "version": "1.2.3", "kind": "npm", "licences": ["MIT"]},
        {"package": "hello", "version": "2.12", "kind": "nix"},
        {
            "package": "libc6",
            "version": "2.36-9+deb12u14",
            "file": "libc6_2.36-9+deb12u14_amd64.deb",
        },
    ]
    found = components(made(INFO | {"tools": tools}))
    assert "pkg:npm/%40scope/tool@1.2.3" in found
    assert "pkg:generic/hello@2.12" in found
    assert sum(ref.startswith("pkg:deb/debian/libc6@") for ref in found) == 1


def test_a_bundle_of_the_first_format_has_one_too() -> None:
    found = components(made(OLD))
    assert found[MSGPACK]["hashes"][0]["content"] == "a" * 64
    assert "pkg:deb/debian/jq@1.6-2.1%2Bdeb12u1?arch=amd64&distro=debian-12" in found


def test_the_same_bundle_has_the_same_bill() -> None:
    assert made() == made()
    other = bill(Manifest.parse(json.dumps(INFO | ROOTED).encode()), "2" * 64)
    assert other["serialNumber"] != made()["serialNumber"]


ROOTED = {"closure": {ROOT: {"sha256": "0" * 64, "size": 96}}, "root": ROOT}


def test_names_that_are_no_licence_stay_names() -> None:
    odd = ["GPL-2+", "permissive-fsf", "LicenseRef-Own"]
    found = components(made(packages({"name": "a", "licences": odd})))
    assert found["pkg:pypi/a@1"]["licenses"] == [
        {"license": {"id": "GPL-2.0-or-later"}},
        {"license": {"name": "permissive-fsf"}},
        {"license": {"name": "LicenseRef-Own"}},
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MIT", "MIT"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("BSD-3-Clause AND (MIT OR X11)", "BSD-3-Clause AND (MIT OR X11)"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("License :: OSI Approved :: MIT License", "MIT"),
        ("License :: OSI Approved :: BSD License", None),
        (
            "License :: OSI Approved :: GNU General Public License v3 or later (GPLv3+)",
            "GPL-3.0-or-later",
        ),
        ("License :: OSI Approved :: GNU General Public License (GPL)", None),
        ("GPL-2", "GPL-2.0-only"),
        ("LGPL-2.1+", "LGPL-2.1-or-later"),
        ("MPL-1.1 or GPL-2+ or LGPL-2.1+", "MPL-1.1 OR GPL-2.0-or-later OR LGPL-2.1-or-later"),
        ("Expat and GPL-2+ or Artistic", None),
        ("GFDL-NIV-1.3+", "GFDL-1.3-no-invariants-or-later"),
        ("GPL-2+ with Autoconf exception", None),
        ("public-domain", None),
        ("common-licenses/GPL-2", None),
        ("Proprietary", None),
        ("GPL-9", None),
        ("", None),
    ],
)
def test_a_name_becomes_an_identifier_only_where_it_is_certain(
    name: str, meant: str | None
) -> None:
    assert spdx(name) == meant


def test_licences_of_parts_all_hold() -> None:
    assert (
        expression(["Expat", "GPL-2+ or Artistic"]) == "MIT AND (GPL-2.0-or-later OR Artistic-1.0)"
    )
    assert expression(["MIT", "Expat"]) == "MIT"
    assert expression(["MIT", "public-domain"]) is None
    assert expression([]) is None
