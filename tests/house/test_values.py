"""What tandemq.model.values makes of a class is what the standard library would have made."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, NamedTuple

import pytest

from tandemq.model import values


class Point(NamedTuple):
    x: int


class Bare:
    """Of no field."""


class Told:
    """Of every kind of field."""

    number: int
    name: str
    point: Point | None = None
    words: list[str] = dataclasses.field(default_factory=list)
    hidden: str = dataclasses.field(default="", repr=False)
    apart: int = dataclasses.field(default=0, compare=False)
    last: bool = dataclasses.field(default=False, kw_only=True)


class One:
    value: Any


def both(kind: type) -> tuple[Any, Any]:
    """The same class by the library and by ours."""
    copied = dict(kind.__dict__), dict(kind.__dict__)
    kinds = [type(kind.__name__, (), {**one, "__qualname__": kind.__name__}) for one in copied]
    wanted: Any = dataclasses.dataclass(frozen=True, slots=True)(kinds[0])
    return wanted, values.dataclass(frozen=True, slots=True)(kinds[1])


@dataclasses.dataclass
class Outcome:
    """What a call gave, or the words of its error."""

    value: Any


def outcome(call: Any) -> Any:
    try:
        return call()
    except TypeError as error:
        return str(error)


GIVEN: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((1, "a"), {}),
    ((1,), {"name": "a", "hidden": "x", "apart": 7, "last": True}),
    ((1, "a", Point(2), ["w"]), {}),
    ((), {}),
    ((1, "a", None, [], "", 0, True), {}),
    ((1, "a"), {"nobody": 1}),
)


@pytest.mark.parametrize(("words", "named"), GIVEN)
def test_it_is_made_and_shown_as_the_librarys(words: Any, named: Any) -> None:
    library, ours = both(Told)
    made = [outcome(lambda kind=kind: kind(*words, **named)) for kind in (library, ours)]
    assert repr(made[0]) == repr(made[1])
    if not isinstance(made[0], str):
        assert dataclasses.asdict(made[0]) == dataclasses.asdict(made[1])
        changed = [dataclasses.replace(one, number=5) for one in made]
        assert repr(changed[0]) == repr(changed[1])


def test_its_parts_are_the_librarys() -> None:
    for kind in (Bare, Told, One):
        library, ours = both(kind)
        assert str(inspect.signature(library)) == str(inspect.signature(ours))
        assert library.__match_args__ == ours.__match_args__
        assert library.__slots__ == ours.__slots__
        shown = [[repr(part) for part in dataclasses.fields(one)] for one in (library, ours)]
        assert shown[0] == shown[1]


def test_equal_ones_hash_alike() -> None:
    library, ours = both(Told)
    for kind in (library, ours):
        a, b = kind(1, "a", Point(1), (), "h", 3), kind(1, "a", Point(1), (), "h", 4)
        assert (a == b, a == a, hash(a) == hash(b)) == (True, True, True)
        assert a != kind(1, "a", Point(1), (), "i", 3)
        assert a != (1, "a")
    assert hash(library(1, "a", None, ())) == hash(ours(1, "a", None, ()))
    assert library(1, "a") != ours(1, "a")
    assert ours(1, "a").words is not ours(1, "a").words
    _, one = both(One)
    nan = float("nan")
    assert one(nan) == one(nan)
    assert one(nan) != one(float("nan"))
    _, bare = both(Bare)
    assert bare() == bare()
    assert hash(bare()) == hash(())


@pytest.mark.parametrize("kind", [0, 1])
def test_it_never_changes(kind: int) -> None:
    made = both(Told)[kind](1, "a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'number'"):
        made.number = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del made.name
    with pytest.raises((AttributeError, TypeError)):
        made.other = 1
    assert not hasattr(made, "__dict__")


@values.dataclass(frozen=True, slots=True)
class Base:
    """A base."""

    step: int


@values.dataclass(frozen=True, slots=True)
class Further(Base):
    """With a field more."""

    name: str = dataclasses.field(default="x", kw_only=True)


def test_one_may_be_built_on_another_and_copied() -> None:
    made = Further(3)
    assert (made.step, made.name, isinstance(made, Base)) == (3, "x", True)
    assert repr(made) == "Further(step=3, name='x')"
    assert made != Base(3)
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert again == made
        assert again is not made
    match made:
        case Further(step):
            assert step == 3


def test_another_kind_is_the_librarys_own() -> None:
    @values.dataclass(frozen=True, slots=True)
    class Checked:
        value: int

        def __post_init__(self) -> None:
            assert self.value > 0

    @values.dataclass(slots=True)
    class Counter:
        value: int = 0

    @values.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        value: int

    with pytest.raises(AssertionError):
        Checked(0)
    counter = Counter()
    counter.value += 1
    assert counter == Counter(1)
    assert Ordered(1) < Ordered(2)
