"""Every reader of hostile bytes bears what it is sent: a value or one typed error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from every_message import MESSAGES
from hypothesis import given, settings
from hypothesis import strategies as st

from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode
from fuzz import targets
from fuzz.mutate import distort, spoil
from fuzz.project import known, sample
from fuzz.seeds import SEEDS
from fuzz.targets import EVERY, TARGETS, joined, split

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

FOUND = Path(__file__).parent / "found"


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    yield
    targets.close()


def test_every_target_has_seeds_and_all_messages_are_among_them() -> None:
    assert SEEDS.keys() == TARGETS.keys()
    assert {type(message) for message in MESSAGES} == {*EVERY}


@pytest.mark.parametrize("name", sample())
def test_the_seeds_of_values_are_values(name: str) -> None:
    document, buffers = encode(sample()[name])
    assert split(joined(document, buffers)) == (document, [bytes(one) for one in buffers])
    assert repr(decode(document, buffers, lambda: allowed_for(known))) == repr(sample()[name])


@pytest.mark.parametrize("name", TARGETS)
def test_real_encodings_are_borne(name: str) -> None:
    for seed in SEEDS[name]():
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_once_broke_a_reader_are_borne(name: str) -> None:
    for path in (FOUND / name).glob("*"):
        TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=300))
@settings(deadline=None, max_examples=150)
def test_arbitrary_bytes_are_borne(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
@given(which=st.integers(0, 1000), chance=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=250)
def test_spoiled_encodings_are_borne(name: str, which: int, chance: Random) -> None:
    seeds = SEEDS[name]()
    TARGETS[name](spoil(seeds[which % len(seeds)], chance))


@given(which=st.integers(0, 1000), chance=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=500)
def test_distorted_documents_are_borne(which: int, chance: Random) -> None:
    values = [*sample().values()]
    document, buffers = encode(values[which % len(values)])
    targets.rebuilt(distort(document, chance), buffers)
