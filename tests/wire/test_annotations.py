"""What a function's return annotation leads to comes back equal; the rest is one clear error."""

from __future__ import annotations

import sys
import types
import typing
from collections import abc, namedtuple
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)

import numpy as np
import pydantic
import pytest
from typing_extensions import TypeAliasType

from agentix.results import allow_type
from agentix.wire.errors import MalformedError, NotAllowedError, UnencodableError
from agentix.wire.values.allowed import allowed_for
from agentix.wire.values.annotations import field_types, reach
from agentix.wire.values.conform import conforms
from agentix.wire.values.decode import decode
from agentix.wire.values.encode import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from nowhere import Missing  # type: ignore[import-not-found]

T = TypeVar("T")


def returned(value: Any, function: Callable[..., Any]) -> Any:
    """Have a value returned by a function of this annotation."""
    document, buffers = encode(value)
    return decode(document, buffers, lambda: allowed_for(function))


class Kind(Enum):
    A = "a"
    B = "b"


@dataclass
class Leaf:
    x: int


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class Wide(Box[int]):
    more: list[Leaf] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strict:
    x: int
    late: str = field(init=False, default="late")


@dataclass
class Begun:
    seed: InitVar[int]
    _: KW_ONLY
    total: int = field(init=False)

    def __post_init__(self, seed: int) -> None:
        self.total = seed * 2


@dataclass(slots=True)
class Link:
    value: int
    next: Optional[Link] = None  # noqa: UP045


class Couple(NamedTuple, Generic[T]):
    a: T
    b: Leaf


Old = namedtuple("Old", "x y")


class Newer(Old):
    __slots__ = ()

    def both(self) -> Any:
        return self.x + self.y


class Row(TypedDict, total=False):
    leaf: Leaf
    more: list[Row]


Id = NewType("Id", Leaf)
Aliased = TypeAliasType("Aliased", dict[str, Box[Leaf]])


@pydantic.dataclasses.dataclass
class Checked:
    n: Annotated[int, pydantic.Field(gt=0)]
    when: pydantic.AwareDatetime | None = None


class Parent(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=False)
    name: str = pydantic.Field(validation_alias=pydantic.AliasChoices("Name", "n"))


class Child(Parent):
    children: list[Child] = []
    _calls: int = pydantic.PrivateAttr(default=0)
    _note: str | None = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"


class Home(pydantic.BaseModel):
    pets: list[Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]]


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Names(pydantic.RootModel[dict[str, Leaf]]):
    pass


class Typed(pydantic.BaseModel):
    __pydantic_extra__: dict[str, int] = pydantic.Field(init=False)
    model_config = pydantic.ConfigDict(extra="allow", use_enum_values=True, frozen=True)
    kind: Kind = Kind.A


class Arrays(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    data: np.ndarray[Any, Any]
    scores: list[float] = []


class Counted(pydantic.BaseModel):
    n: int

    def model_post_init(self, context: Any) -> None:
        self._seen = self.n

    _seen: int = 0


class Eager(pydantic.BaseModel):
    late: Later | None = None


class Later(pydantic.BaseModel):
    x: int


def _child() -> Child:
    child = Child(Name="c", children=[Child(Name="d")])
    child._calls, child._note = 3, "x"
    return child


def fn(annotation: Any) -> Callable[..., Any]:
    """Make a function of this annotation."""

    def made() -> Any: ...

    made.__annotations__["return"] = annotation
    return made


CASES: dict[str, tuple[Any, Any]] = {
    "generic dataclass": (Box[int], Box(1)),
    "generic of a dataclass": (Box[Box[Leaf]], Box(Box(Leaf(1)))),
    "union": (int | Leaf | None, Leaf(1)),
    "old union": (Union[int, Leaf], Leaf(1)),  # noqa: UP007
    "optional": (Optional[Leaf], Leaf(1)),  # noqa: UP045
    "annotated": (Annotated[Leaf, "note"], Leaf(1)),
    "nested": (dict[str, list[tuple[Leaf, ...]]], {"a": [(Leaf(1), Leaf(2))]}),
    "typed dict": (Row, {"leaf": Leaf(1), "more": [{"leaf": Leaf(2)}]}),
    "new type": (Id, Leaf(1)),
    "forward reference": ("list[Leaf]", [Leaf(1)]),
    "forward reference inside": (list["Leaf"], [Leaf(1)]),
    "alias": (Aliased, {"a": Box(Leaf(1))}),
    "iterator": (typing.AsyncIterator[Leaf], Leaf(1)),
    "bound": (TypeVar("B", bound=Leaf), Leaf(1)),
    "inherited dataclass": (Wide, Wide(1, [Leaf(2)])),
    "frozen, slotted, by keyword": (Strict, Strict(x=1)),
    "init=False and InitVar": (Begun, Begun(4)),
    "recursive": (Link, Link(1, Link(2))),
    "generic named tuple": (Couple[int], Couple(1, Leaf(2))),
    "subclass of a named tuple": (Newer, Newer(1, 2)),
    "old named tuple": (Old, Old([1], "x")),
    "pydantic dataclass": (Checked, Checked(1, datetime(2020, 1, 1, tzinfo=UTC))),
    "aliases, private attributes, recursion": (Child, _child()),
    "discriminated union": (Home, Home(pets=[Cat(), Dog()])),
    "generic model": (Page[Leaf], Page[Leaf](items=[Leaf(1)])),
    "generic model without its argument": (Page[int], Page(items=[1])),
    "root model": (Names, Names({"a": Leaf(1)})),
    "plain root model": (pydantic.RootModel[list[int]], pydantic.RootModel[list[int]]([1])),
    "extra fields, enums by value": (Typed, Typed(kind=Kind.B, other=5)),
    "post init": (Counted, Counted(n=3)),
    "forward reference in a model": (Eager, Eager(late=Later(x=1))),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_is_returned_comes_back_equal(what: str) -> None:
    annotation, value = CASES[what]
    found = returned(value, fn(annotation))
    assert type(found) is type(value)
    assert found == value
    assert repr(found) == repr(value)
    if isinstance(value, pydantic.BaseModel):
        assert found.model_fields_set == value.model_fields_set
        assert found.__pydantic_private__ == value.__pydantic_private__


def test_arrays_in_models_come_back() -> None:
    value = Arrays(data=np.arange(5), scores=[float("nan"), 1.0])
    found = returned(value, fn(Arrays))
    assert np.array_equal(found.data, value.data)
    assert str(found.scores) == str(value.scores)


def test_an_unresolvable_annotation_hides_no_other_one() -> None:
    @dataclass
    class Partly:
        leaf: Leaf
        missing: Missing
        link: Link | None = None

    assert field_types(Partly) == {"leaf": Leaf, "link": Link | None}
    assert {*reach(Partly)} >= {Partly, Leaf, Link}
    found = returned(Partly(Leaf(1), [2], Link(3)), fn(Partly))
    assert found == Partly(Leaf(1), [2], Link(3))
    document, _ = encode(Partly(Leaf(1), None, 7))  # type: ignore[arg-type]
    with pytest.raises(MalformedError, match=r"link is int in the result, not .*Link \| None"):
        decode(document, [], lambda: allowed_for(fn(Partly)))


def test_an_alias_that_cannot_be_evaluated_leads_nowhere() -> None:
    class Alias:
        @property
        def __value__(self) -> Any:
            raise NameError("Missing")

    assert [*reach(Alias())] == []
    assert conforms(1, Alias())
    assert returned(Leaf(1), fn(Union[Leaf, Alias()])) == Leaf(1)  # noqa: UP007


def test_all_classes_are_reached_however_many_there_are() -> None:
    """Objects made on the way have their ids used again."""
    module = types.ModuleType("many")
    lines = ["from __future__ import annotations", "from dataclasses import dataclass"]
    for number in range(300):
        fields = [f"    f{n}: list[dict[str, C{number + 1}]] | None = None" for n in range(3)]
        lines += ["@dataclass", f"class C{number}:", *fields]
    lines += ["@dataclass", "class C300:", "    x: int = 0"]
    sys.modules["many"] = module
    try:
        exec("\n".join(lines), module.__dict__)
        assert len([*reach(module.C0)]) > 300
        assert {module.__dict__[f"C{n}"] for n in range(301)} <= {*reach(module.C0)}
    finally:
        del sys.modules["many"]


def test_classes_may_be_allowed_before_those_of_their_fields_exist() -> None:
    module = types.ModuleType("early")
    sys.modules["early"] = module
    try:
        exec(
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "from agentix.results import allow_type\n"
            "@allow_type\n@dataclass\nclass Early:\n    late: Late | None = None\n"
            "@dataclass\nclass Late:\n    x: int = 0\n",
            module.__dict__,
        )
        value = module.Early(module.Late(1))
        assert returned(value, fn(None)) == value
    finally:
        del sys.modules["early"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type statements came with Python 3.12")
def test_type_statements_and_parameters() -> None:
    module = types.ModuleType("modern")
    sys.modules["modern"] = module
    try:
        exec(
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "type Json = dict[str, Json] | list[Json] | str | int | None\n"
            "type Pairs[T] = list[tuple[T, Leaf]]\n"
            "type Lost = list[Nowhere]\n"
            "@dataclass\nclass Leaf:\n    x: int\n"
            "@dataclass\nclass Holder[T]:\n    content: T\n    json: Json = None\n"
            "def f[T](x: T) -> Holder[T] | Pairs[int]: ...\n"
            "def g() -> Lost | Leaf: ...\n",
            module.__dict__,
        )
        value = [(1, module.Leaf(2))]
        assert returned(value, module.f) == value
        holder = module.Holder(1, {"a": [1, {"b": None}]})
        assert returned(holder, module.f) == holder
        assert returned(module.Leaf(1), module.g) == module.Leaf(1)
        with pytest.raises(MalformedError, match="json"):
            returned(module.Holder(1, {"a": [1, {"b": 1.5}]}), module.f)
    finally:
        del sys.modules["modern"]


# What cannot come back


class Doubling(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def double(cls, n: int) -> int:
        return n * 2


class Own(pydantic.BaseModel):
    n: int

    def __init__(self, width: int) -> None:
        super().__init__(n=width)


class Bounded(pydantic.BaseModel):
    n: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class Listed(list[int]):
    x: int = 0


@dataclass
class FailingError(Exception):
    x: int = 0


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (Doubling(n=1), MalformedError, "Doubling is another one after it was validated"),
        (Own(1), MalformedError, "Own.__init__"),
        (Bounded.model_construct(n=-1), MalformedError, "n: Input should be greater than 0"),
        (Bounded.model_construct(), UnencodableError, "its field 'n' is not set"),  # type: ignore[call-arg]
        (
            Bounded.model_construct(n="1"),  # type: ignore[arg-type]
            MalformedError,
            "Bounded.n is str in the result, not int",
        ),
        (Listed(), UnencodableError, "Listed"),
        (FailingError(), UnencodableError, "FailingError"),
        (Wide(1), NotAllowedError, "Wide"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_come_back_is_one_clear_error(
    value: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as caught:
        returned(value, fn(Union[Doubling, Own, Bounded, Listed, FailingError, Box[int]]))  # noqa: UP007
    assert "\n" not in str(caught.value)


def test_attributes_that_are_no_fields_are_refused() -> None:
    class Loose(Old):
        pass

    value = Loose(1, 2)
    assert returned(value, fn(Loose)) == value
    setattr(value, "more", 3)  # noqa: B010 - which type checkers know
    with pytest.raises(UnencodableError, match="'more', which is not a field"):
        encode(value)
    child = _child()
    child.__dict__["more"] = 3
    with pytest.raises(UnencodableError, match="'more', which is not a field"):
        encode(child)


@pytest.mark.parametrize("what", [Listed, Row, list[int], Box[int], 5, int])
def test_what_no_result_can_hold_cannot_be_allowed(what: Any) -> None:
    with pytest.raises(TypeError, match="cannot allow"):
        allow_type(what)


def test_unions_of_nested_containers_are_judged_in_time() -> None:
    """Each level would double the work otherwise."""

    class Alias:
        __value__: Any

    alias: Any = Alias()
    alias.__value__ = Union[list[alias], abc.Sequence[alias], abc.Collection[alias], int]  # noqa: UP007
    assert conforms("text", alias)
    value: Any = 1.5
    for _ in range(90):
        value = [value]
    assert not conforms(value, alias)
    value = 1
    for _ in range(90):
        value = [value]
    assert conforms(value, alias)
