"""A bundle's bill of materials in CycloneDX's JSON, version 1.6, for programs that read such.

It is made of the manifest alone, so the same bundle has the same one: with neither the time nor a
random number in it.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from agentix import platforms
from agentix.bundle.licences import expression, spdx

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentix.bundle.inventory import Package, Tool
    from agentix.bundle.manifest import Manifest
    from agentix.platforms import Platform

_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of names that are URLs
_ARCHITECTURE = re.compile(r"_([a-z0-9-]+)\.deb$")
_ROOT = "bundle"
_MOST_EXTRAS = 20  # rounds of finding out which extras are asked for


def cyclonedx(manifest: Manifest, digest: str) -> dict[str, Any]:
    """Return the document about the bundle with that *manifest*, whose tar has that *digest*."""
    packages = {_normal(package.name): package for package in manifest.packages}
    refs = {name: _package_url(package) for name, package in packages.items()}
    components = {refs[name]: _package(package) for name, package in packages.items()}
    others = {_tool_url(tool, manifest): tool for tool in (*manifest.tools, *manifest.base)}
    components |= {ref: _tool(tool, ref) for ref, tool in others.items()}
    edges = {
        refs[name]: sorted(refs[other] for other in found)
        for name, found in _edges(packages, _environment(manifest)).items()
    }
    needed = {ref for found in edges.values() for ref in found}
    ours = {refs[name] for name, package in packages.items() if package.built}
    top = ours | (components.keys() - needed)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, f'agentix:sha256:{digest}')}",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [
                    {"type": "application", "name": "agentix", "version": manifest.agentix}
                ]
            },
            "component": {
                "bom-ref": _ROOT,
                "type": "application",
                "name": manifest.name,
                "version": manifest.version,
                "hashes": [_hash(digest)],
                "properties": _properties(
                    {
                        "agentix:platform": manifest.platform,
                        "agentix:python": manifest.python,
                        "agentix:toolchain": manifest.toolchain,
                        "agentix:libc": manifest.libc,
                    }
                ),
            },
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [
            {"ref": _ROOT, "dependsOn": sorted(top)},
            *({"ref": ref, "dependsOn": edges.get(ref, [])} for ref in sorted(components)),
        ],
    }


def _normal(name: str) -> str:
    return str(canonicalize_name(name))


def _package(package: Package) -> dict[str, Any]:
    digest = package.sha256 or package.built
    return _component(
        "library", _package_url(package), package.name, package.version, digest, package
    )


def _tool(tool: Tool, url: str) -> dict[str, Any]:
    return _component("library", url, tool.package, tool.version, tool.sha256, tool)


def _component(
    kind: str, url: str, name: str, version: str, digest: str | None, item: Package | Tool
) -> dict[str, Any]:
    value: dict[str, Any] = {
        "bom-ref": url,
        "type": kind,
        "name": name,
        "version": version,
        "purl": url,
    }
    if digest is not None:
        value["hashes"] = [_hash(digest)]
    if item.licences:
        value["licenses"] = _licences(item.licences)
    facts = {"agentix:file": item.file, "agentix:size": item.size}
    known = {name: str(fact) for name, fact in facts.items() if fact is not None}
    if known:
        value["properties"] = _properties(known)
    return value


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


def _properties(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _licences(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one SPDX expression, or where a name is none, the list of identifiers and names."""
    whole = expression(names)
    if whole is not None and " " in whole:
        return [{"expression": whole}]
    listed = dict.fromkeys(spdx(name) or name for name in names)
    return [{"license": {_key(name): name}} for name in listed]


def _key(name: str) -> str:
    return (
        "id"
        if " " not in name and not name.startswith("LicenseRef-") and spdx(name) == name
        else "name"
    )


def _package_url(package: Package) -> str:
    """Return the package URL: of the index only for what came from there."""
    ours = package.sha256 is None and package.source is None
    name = package.name if ours else _normal(package.name)
    return f"pkg:{'generic' if ours else 'pypi'}/{quote(name)}@{quote(package.version, safe='')}"


def _tool_url(tool: Tool, manifest: Manifest) -> str:
    version = quote(tool.version, safe="")
    if tool.kind == "npm":
        return f"pkg:npm/{quote(tool.package)}@{version}"
    if tool.kind == "nix":
        return f"pkg:generic/{quote(tool.package)}@{version}"
    found = _ARCHITECTURE.search(tool.file or "")
    known = _platform(manifest)
    here = known.debian if known else manifest.platform.partition("/")[2]
    architecture = found[1] if found else here
    return (
        f"pkg:deb/debian/{quote(tool.package, safe='')}@{version}"
        f"?arch={architecture}&distro={quote(manifest.toolchain, safe='')}"
    )


def _platform(manifest: Manifest) -> Platform | None:
    """Return the platform of the bundle; None when it is none that is known here."""
    return next((p for p in platforms.PLATFORMS.values() if p.name == manifest.platform), None)


def _environment(manifest: Manifest) -> dict[str, str]:
    """Return the values of markers inside the bundle."""
    known = _platform(manifest)
    return {
        "implementation_name": "cpython",
        "implementation_version": manifest.python,
        "os_name": "posix",
        "platform_machine": known.machine if known else manifest.platform.partition("/")[2],
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": manifest.python,
        "python_version": ".".join(manifest.python.split(".")[:2]),
        "sys_platform": "linux",
    }


def _edges(packages: Mapping[str, Package], environment: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which packages each needs, with the extras that others ask of it."""
    parsed = {name: list(_parsed(package.requires)) for name, package in packages.items()}
    extras: dict[str, set[str]] = {name: {""} for name in packages}
    edges: dict[str, set[str]] = {name: set() for name in packages}
    for _ in range(_MOST_EXTRAS):
        before = sum(map(len, extras.values()))
        for name, requirements in parsed.items():
            for requirement in requirements:
                other = _normal(requirement.name)
                if other in packages and _applies(requirement, environment, extras[name]):
                    edges[name].add(other)
                    extras[other] |= {_normal(extra) for extra in requirement.extras}
        if sum(map(len, extras.values())) == before:
            break
    return edges


def _parsed(lines: Iterable[str]) -> Iterable[Requirement]:
    for line in lines:
        try:
            yield Requirement(line)
        except InvalidRequirement:  # metadata from before there were rules
            continue


def _applies(
    requirement: Requirement, environment: Mapping[str, str], extras: Iterable[str]
) -> bool:
    marker = requirement.marker
    if marker is None:
        return True
    try:
        return any(marker.evaluate({**environment, "extra": extra}) for extra in extras)
    except (ValueError, LookupError):  # it compares what cannot be compared, or is not known
        return True
