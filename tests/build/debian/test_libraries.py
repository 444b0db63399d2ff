from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentix.build.debian.libraries import package_of
from agentix.build.debian.packages import Package

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class Suite:
    """An index of packages of which only the names are known."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def package(self, name: str) -> Package | None:
        known = name in self._names
        return Package(name, "1", "", "", "pool/x", "0" * 64, 1) if known else None

    def providers(self, name: str) -> Sequence[Package]:
        return []

    def names(self) -> Collection[str]:
        return self._names


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libGL.so.1", "libgl1"),
        ("libX11.so.6", "libx11-6"),
        ("libSM.so.6", "libsm6"),
        ("libglib-2.0.so.0", "libglib2.0-0"),
        ("libgthread-2.0.so.0", "libglib2.0-0"),
        ("libxkbcommon-x11.so.0", "libxkbcommon-x11-0"),
        ("libdbus-1.so.3", "libdbus-1-3"),
        ("libnss3.so", "libnss3"),
        ("libasound.so.2", "libasound2t64"),
        ("libfoo_bar.so.1.2", "libfoo-bar1.2"),
    ],
)
def test_a_package_is_called_after_its_library(library: str, package: str) -> None:
    assert package_of(library, Suite("libc6", package)) == package
    assert package_of(library, Suite("libc6")) is None


def test_what_has_no_librarys_name_is_in_no_package() -> None:
    assert package_of("ld-something", Suite("ld-something")) is None
