"""The official schema of CycloneDX 1.6, and of the lists of licences that it refers to."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import cyclonedx.schema
import jsonschema
import referencing


def faults(document: Any) -> list[str]:
    """Return what the schema has against *document*."""
    return sorted(str(fault) for fault in _validator().iter_errors(document))


@cache
def _validator() -> jsonschema.Draft7Validator:
    folder = Path(cyclonedx.schema.__file__).parent / "_res"
    names = ("bom-1.6", "spdx", "jsf-0.82")
    loaded = {n: json.loads((folder / f"{n}.SNAPSHOT.schema.json").read_text()) for n in names}
    resources = [
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", resource)
        for name, schema in loaded.items()
        for resource in (referencing.Resource.from_contents(schema),)
    ]
    registry: referencing.Registry[Any] = referencing.Registry().with_resources(resources)
    return jsonschema.Draft7Validator(loaded["bom-1.6"], registry=registry)
