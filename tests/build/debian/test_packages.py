from __future__ import annotations

import itertools

import pytest

from agentix.build.debian.corrections import Correction, Corrections, corrections
from agentix.build.debian.packages import (
    Dependency,
    Package,
    closure,
    compare_versions,
    parse_depends,
)
from agentix.errors import LockError

# Each is older than the next, as `dpkg --compare-versions` has it.
ASCENDING = [
    *("0~~", "0~~a", "0~", "0", "0.1~rc1-1", "0.1-1~bpo1", "0.1-1", "0.1-1+b1", "0.1-1+deb12u2"),
    *("0.1-1+deb12u10", "0.1-2", "0.1a-1", "0.1+git1-1", "0.1.1", "0.2", "0.10", "1.0-1", "1:0.1"),
    *("1:1.2.13.dfsg-1", "1:1.3.dfsg+really1.3.1-1", "2:0"),
]


def test_versions_are_ordered_as_dpkg_orders_them() -> None:
    for (i, left), (j, right) in itertools.product(enumerate(ASCENDING), repeat=2):
        assert (compare_versions(left, right) > 0) == (i > j), (left, right)
        assert (compare_versions(left, right) < 0) == (i < j), (left, right)


@pytest.mark.parametrize(
    ("left", "right"), [("1", "1-0"), ("1", "0:1"), ("01", "1"), ("1", "1.0~")]
)
def test_versions_that_only_look_different(left: str, right: str) -> None:
    expected = -1 if right == "1.0~" else 0
    assert compare_versions(left, right) == expected


def test_dependencies_are_read() -> None:
    text = "libc6 (>= 2.36), a | b (<< 1:2~), python3:any, x (= 1) , debconf (>= 0.5)|debconf-2.0"
    assert list(parse_depends(text)) == [
        [Dependency("libc6", ">=", "2.36")],
        [Dependency("a"), Dependency("b", "<<", "1:2~")],
        [Dependency("python3")],
        [Dependency("x", "=", "1")],
        [Dependency("debconf", ">=", "0.5"), Dependency("debconf-2.0")],
    ]
    with pytest.raises(LockError, match="cannot read the Debian dependency"):
        list(parse_depends("what (is this"))


class FakeIndex:
    """An index in memory: ``name version depends provides``, one a line, separated by ``;``."""

    def __init__(self, text: str) -> None:
        rows = ([part.strip() for part in f"{line};;;".split(";")] for line in text.splitlines())
        self._packages = {
            r[0]: Package(r[0], r[1], r[2], r[3], f"pool/{r[0]}.deb", "0" * 64, 1)
            for r in rows
            if r[0]
        }

    def package(self, name: str) -> Package | None:
        return self._packages.get(name)

    def providers(self, name: str) -> list[Package]:
        offers = (
            (p, d.name)
            for p in self._packages.values()
            for a in parse_depends(p.provides)
            for d in a
        )
        return sorted({p for p, offered in offers if offered == name}, key=lambda p: p.name)

    def names(self) -> list[str]:
        return list(self._packages)


INDEX = FakeIndex("""
libc6; 2.36; libgcc-s1
libgcc-s1; 12; libc6 (>= 2.35), gcc-12-base (= 12)
gcc-12-base; 12
tool; 1; libc6, libnew (>= 2) | libold, mail-agent, debconf (>= 0.5) | debconf-2.0
libnew; 1.9
libold; 1
exim; 1; ; mail-agent
postfix; 1; ; mail-agent, other (= 2)
wants-postfix; 1; postfix, mail-agent
strict; 1; other (>= 1)
stricter; 1; mail-agent (>= 1)
broken; 1; gone (>= 1) | gone-too
""")


def names(*roots: str, without: tuple[str, ...] = ()) -> list[str]:
    return [package.name for package in closure(INDEX, roots, without=without)]


def test_the_closure_goes_round_circles_and_leaves_out_what_only_installers_need() -> None:
    assert names("libc6") == ["libc6", "libgcc-s1"]


def test_an_alternative_is_taken_when_the_first_is_too_old_and_virtual_packages_are_provided() -> (
    None
):
    assert names("tool", without=("libc6",)) == ["exim", "libold", "tool"]


def test_a_provider_that_is_there_already_is_not_doubled() -> None:
    assert names("wants-postfix") == ["postfix", "wants-postfix"]


def test_a_versioned_dependency_is_met_by_a_versioned_provider_only() -> None:
    assert names("strict") == ["postfix", "strict"]
    with pytest.raises(LockError, match="stricter needs mail-agent, which the suite does not have"):
        names("stricter")


def corrected(*entries: tuple[str, list[str], list[str]]) -> Corrections:
    return Corrections(
        dependency=[
            Correction(of=[of], adds=adds, drops=drops, reason="a test")
            for of, adds, drops in entries
        ]
    )


def test_a_table_adds_what_packages_do_not_name_and_drops_what_they_need_not() -> None:
    def names(*roots: str, without: tuple[str, ...] = ()) -> list[str]:
        found = closure(INDEX, roots, without=without, corrected=table)
        return [package.name for package in found]

    table = corrected(
        ("wants-*", ["libold"], ["postfix", "mail-agent"]),
        ("libc6", ["exim"], []),
        ("tool", [], ["debconf"]),
    )
    assert names("wants-postfix") == ["libold", "wants-postfix"]
    # What is there already may still need what is not.
    assert "exim" in names("tool", without=("libc6",))
    # Whoever declares what is dropped has it all the same.
    table = corrected(("wants-*", [], ["postfix", "mail-agent"]))
    assert names("wants-postfix") == ["wants-postfix"]
    assert names("wants-postfix", "postfix") == ["postfix", "wants-postfix"]


def test_the_table_of_agentix_can_be_read() -> None:
    table = corrections()
    assert table.drops("git", "perl")
    assert not table.drops("ack", "perl")
    assert table.drops("libstdc++6", "gcc-14-base")
    assert table.adds("libgcc-14-dev") == ["libc6-dev"]
    assert table.is_present("ca-certificates")
    assert not table.is_present("libc6")


def test_what_is_there_already_is_neither_returned_nor_looked_into() -> None:
    assert names("tool", "broken", without=("broken", "libc6", "libold", "exim")) == ["tool"]


@pytest.mark.parametrize(
    ("root", "says"),
    [
        ("toool", "'toool' is not a Debian package of this suite; did you mean tool"),
        ("xyzzy", "'xyzzy' is not a Debian package of this suite$"),
        ("mail-agent", "provided by several Debian packages; name one: exim, postfix"),
        ("broken", "broken needs gone | gone-too"),
    ],
)
def test_a_name_that_does_not_lead_anywhere_is_one_line(root: str, says: str) -> None:
    with pytest.raises(LockError, match=says.replace("|", r"\|")):
        names(root)
