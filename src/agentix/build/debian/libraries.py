"""Which Debian package has a shared library, by the names that Debian's policy gives them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentix.build.debian.packages import Index

_NAME = re.compile(r"(?P<name>.+?)\.so(?:\.(?P<version>[0-9]+(?:\.[0-9]+)*))?")
# Packages with several libraries are called after one of them, or after none.
_ELSEWHERE = {
    "libGLESv2.so.2": "libgles2",
    "libgio-2.0.so.0": "libglib2.0-0",
    "libgmodule-2.0.so.0": "libglib2.0-0",
    "libgobject-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
    "libnspr4.so": "libnspr4",
    "libnssutil3.so": "libnss3",
    "libpangocairo-1.0.so.0": "libpangocairo-1.0-0",
    "libsmime3.so": "libnss3",
    "libssl3.so": "libnss3",
}


def package_of(library: str, index: Index) -> str | None:
    """Return the package of *index* that has the shared *library*, or None when none is known."""
    return next((name for name in _candidates(library) if index.package(name) is not None), None)


def _candidates(library: str) -> Iterator[str]:
    if library in _ELSEWHERE:
        names = [_ELSEWHERE[library]]
    elif (found := _NAME.fullmatch(library)) is not None:
        name, version = found["name"].lower().replace("_", "-"), found["version"] or ""
        joint = "-" if version and name[-1].isdigit() else ""
        names = [f"{name}{joint}{version}"]
        if re.search(r"-[0-9.]+$", name):  # libglib-2.0.so.0 is in libglib2.0-0
            head, _, tail = name.rpartition("-")
            names.append(f"{head}{tail}{joint}{version}")
    else:
        return
    for name in names:
        yield name
        yield f"{name}t64"  # as those are called that had to change for 64-bit times
