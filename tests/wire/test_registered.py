"""Types that are registered on both sides, with pandas as the example."""

from __future__ import annotations

import fractions
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest

from agentix.results import register_type
from agentix.wire.errors import MalformedError, NotAllowedError, UnencodableError
from agentix.wire.values import registered, tags
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode

if TYPE_CHECKING:
    from collections.abc import Iterator


class Table:
    """Stands for a type of somebody else's: columns by name."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns


def take(table: Table) -> dict[str, Any]:
    """Take a table apart."""
    return table.columns


def make(columns: Any) -> Table:
    """Put a table together, bearing whatever arrives."""
    if type(columns) is not dict:
        raise TypeError("no columns")
    return Table(columns)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Undo what a test registers."""
    yield
    registered._by_type.clear()
    registered._by_name.clear()


def back(value: object) -> Any:
    """Send a value there and back."""
    document, buffers = encode(value)
    return decode(document, [bytearray(buffer) for buffer in buffers], dict)


def test_an_object_comes_back_with_its_arrays() -> None:
    register_type(Table, encode=take, decode=make)
    found = back([Table({"a": np.arange(100_000), "b": ["x"]}), 1])
    assert type(found[0]) is Table
    assert (found[0].columns["a"] == np.arange(100_000)).all()
    assert found[1] == 1


def test_without_it_the_error_says_what_to_do() -> None:
    with pytest.raises(UnencodableError, match="register_type"):
        encode(Table({}))


def test_the_host_has_to_know_it_too() -> None:
    register_type(Table, encode=take, decode=make)
    document, _ = encode(Table({}))
    forget_all = (registered._by_type, registered._by_name)
    for known in forget_all:
        known.clear()
    with pytest.raises(NotAllowedError, match="Table"):
        decode(document, [], dict)


def test_what_a_sandbox_makes_up_is_malformed() -> None:
    register_type(Table, encode=take, decode=make)
    name = f"{__name__}.Table"
    for node in ([tags.REGISTERED, name, 5], [tags.REGISTERED, 5, 5], [tags.REGISTERED, name]):
        with pytest.raises(MalformedError):
            decode(msgpack.packb([[], node]), [], dict)


def test_a_decoder_has_to_make_what_it_says() -> None:
    register_type(Table, encode=take, decode=lambda columns: columns)
    with pytest.raises(MalformedError, match="rebuilt as a dict"):
        back(Table({}))


def test_a_type_is_registered_in_one_way() -> None:
    register_type(Table, encode=take, decode=make)
    register_type(Table, encode=take, decode=make)
    with pytest.raises(ValueError, match="another way"):
        register_type(Table, encode=str, decode=make)


def test_an_encoder_that_goes_round_in_circles_is_refused() -> None:
    register_type(fractions.Fraction, encode=lambda f: f, decode=lambda f: f)
    register_type(Table, encode=lambda table: table, decode=make)
    with pytest.raises(UnencodableError, match="nested"):
        encode(Table({}))


def test_a_data_frame_as_the_docs_show_it() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed for development")

    def frame(parts: Any) -> Any:
        return pd.DataFrame(dict(zip(parts["columns"], parts["data"], strict=True)))

    register_type(
        pd.DataFrame,
        encode=lambda df: {
            "columns": list(df.columns),
            "data": [df[name].to_numpy() for name in df.columns],
        },
        decode=frame,
    )
    df = pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    pd.testing.assert_frame_equal(back(df), df)
