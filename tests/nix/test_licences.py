"""What software says of its licence is found where each kind says it, and never its whole text."""

from __future__ import annotations

import json
from email.parser import Parser
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from types import SimpleNamespace

MACHINE_READABLE = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: thing
License: not of any file

Files: *
Copyright: 2001 Somebody
License: Expat and BSD-3-clause

Files: a/*
  b/*
Copyright: 2002 Somebody else
License: GPL-2+ or Artistic
 This program is free software.
 .
 More of it.

Files: c/*
Copyright: x
License: Zlib, ISC, and Expat

Files: debian/*
Copyright: 2003 A packager
License: GPL-3

License: GPL-2+
 On Debian systems, see /usr/share/common-licenses/GPL-2.
"""
NAMES = ["BSD-3-clause", "Expat", "GPL-2+ or Artistic", "ISC", "Zlib"]


def metadata(builders: SimpleNamespace, *lines: str) -> list[str]:
    found: list[str] = builders.licences.of_metadata(Parser().parsestr("\n".join(lines)))
    return found


def test_a_wheel_says_it_in_the_best_of_three_ways(builders: SimpleNamespace) -> None:
    expression = "License-Expression: MIT OR Apache-2.0"
    name = "License: BSD 3-Clause"
    classifiers = [
        "Classifier: License :: OSI Approved :: MIT License",
        "Classifier: Programming Language :: Python",
        "Classifier: License :: OSI Approved :: Apache Software License",
    ]
    assert metadata(builders, *classifiers, name, expression) == ["MIT OR Apache-2.0"]
    assert metadata(builders, *classifiers, name) == ["BSD 3-Clause"]
    assert metadata(builders, *classifiers, "License: UNKNOWN") == [
        "License :: OSI Approved :: Apache Software License",
        "License :: OSI Approved :: MIT License",
    ]
    assert metadata(builders, "Name: x") == []


def test_the_text_of_a_licence_is_not_its_name(builders: SimpleNamespace) -> None:
    text = "License: The Some License\n        " + "Permission is granted. " * 20
    approved = "Classifier: License :: OSI Approved :: MIT License"
    assert metadata(builders, text, approved) == ["License :: OSI Approved :: MIT License"]
    assert metadata(builders, text) == ["The Some License"]
    assert metadata(builders, "License: " + "Permission is granted. " * 20) == []


def test_a_debian_package_says_it_file_by_file(builders: SimpleNamespace) -> None:
    found = builders.licences.of_copyright(MACHINE_READABLE)
    assert found == NAMES


def test_prose_tells_the_licences_that_it_refers_to(builders: SimpleNamespace) -> None:
    common = "/usr/share/common-licenses"
    text = f"It is free.\nSee `{common}/LGPL-2.1', or {common}/GPL-2.\n"
    found = builders.licences.of_copyright(text)
    assert found == ["common-licenses/GPL-2", "common-licenses/LGPL-2.1"]
    assert builders.licences.of_copyright("PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2") == [
        "PSF-2.0"
    ]


@pytest.mark.parametrize(
    ("package", "names"),
    [
        ({"license": "MIT"}, ["MIT"]),
        ({"license": {"type": "ISC", "url": "x"}}, ["ISC"]),
        ({"licenses": [{"type": "MIT"}, {"type": "BSD"}]}, ["MIT", "BSD"]),
        ({}, []),
    ],
)
def test_an_npm_package_says_it_in_one_of_three_forms(
    builders: SimpleNamespace, package: dict[str, Any], names: list[str]
) -> None:
    assert builders.licences.of_npm(package) == names


def test_packages_of_one_source_share_what_one_of_them_says(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    (one / "share/doc").mkdir(parents=True)
    (one / "share/doc/one").symlink_to("two")
    (two / "share/doc/two").mkdir(parents=True)
    (two / "share/doc/two/copyright").write_text(MACHINE_READABLE)
    three.mkdir()
    licensed = builders.licences.Debian()
    for part in (one, two, three):
        licensed.add(part, part.name)
    licensed.write(tmp_path / "licences.json")
    found = json.loads((tmp_path / "licences.json").read_text())
    assert found["one"] == found["two"] == NAMES
    assert found["three"] == []


def test_packages_refer_to_one_another_along_any_way_also_in_circles(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    licensed = builders.licences.Debian({"ours": ["X11"], "unused": ["Y"]})
    links = {"a": "b", "b": "c", "x": "y", "y": "x", "lost": "elsewhere", "d": "e", "e": "ours"}
    for name, other in links.items():
        (tmp_path / name / "share/doc").mkdir(parents=True)
        (tmp_path / name / "share/doc" / name).symlink_to(f"../doc/{other}")
        licensed.add(tmp_path / name, name)
    (tmp_path / "c/usr/share/doc/c").mkdir(parents=True)
    (tmp_path / "c/usr/share/doc/c/copyright").write_text(MACHINE_READABLE)
    licensed.add(tmp_path / "c", "c")
    unknown: dict[str, list[str]] = {"lost": [], "x": [], "y": []}
    assert licensed.names() == {
        **dict.fromkeys("abc", NAMES),
        **{name: ["X11"] for name in "de"},
        **unknown,
    }


def test_gccs_packages_have_licences_though_no_bundle_has_the_file(
    builders: SimpleNamespace, tmp_path: Path
) -> None:
    licensed = builders.licences.Debian()
    exception = ["GPL-3.0-or-later WITH GCC-exception-3.1"]
    expected = {
        "cpp-12": ["GPL-3+"],
        "gcc-12": ["GPL-3+"],
        "libasan8": ["Apache-2.0 WITH LLVM-exception"],
        "libcc1-0": ["GPL-3+"],
        "libgcc-12-dev": exception,
        "libgcc-s1": exception,
        "libquadmath0": ["LGPL-2.1+"],
        "libstdc++6": exception,
    }
    for name in expected:
        (tmp_path / name / "share/doc").mkdir(parents=True)
        (tmp_path / name / "share/doc" / name).symlink_to("gcc-12-base")
        licensed.add(tmp_path / name, name)
    assert licensed.names() == expected


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "Source: x\n\nPermission is hereby granted, free of charge, to any\nperson obtaining\n"
            "  a copy of this software and associated documentation files",
            ["MIT"],
        ),
        (
            "The overall license is the GNU Lesser General Public\nLicense, version 2.1 (or, at "
            "your option, any later version); see /usr/share/common-licenses/ .",
            ["LGPL-2.1+"],
        ),
        ("Upstream-Name: x\n" + MACHINE_READABLE, NAMES),
        ("It is free.", []),
    ],
)
def test_a_file_of_another_form_tells_what_it_quotes(
    builders: SimpleNamespace, text: str, names: list[str]
) -> None:
    assert builders.licences.of_copyright(text) == names


def test_metadata_may_hold_any_letters(builders: SimpleNamespace) -> None:
    data = "Name: x\nLicense: Licença\nClassifier: License :: Ö\n\nText".encode() + b"\xff"
    message = builders.licences.parse_metadata(data)
    assert (message["Name"], message["License"]) == ("x", "Licença")
    assert builders.licences.of_metadata(message) == []


def test_hostile_names_are_left_out(builders: SimpleNamespace) -> None:
    assert metadata(builders, "License: \x1b[31mred") == []
    many = "Format: x\n\n" + "\n\n".join(f"Files: {n}\nLicense: L-{n}" for n in range(1000))
    assert len(builders.licences.of_copyright(many)) == 40
