"""Frozen dataclasses with slots, made in a quarter of the time: a node has a hundred at its start.

    from tandemq.model.values import dataclass

    @dataclass(frozen=True, slots=True)
    class Done: ...

The standard library compiles six functions for each class, of which this compiles one; the others
are shared. What a class then does is the same, and any other kind of dataclass is the library's
own. Must not be here: anything a checker of types would have to be told.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind: type | None = None, /, **options: Any) -> Any:
        """As `dataclasses.dataclass`."""

        def made(kind: type) -> type:
            if options != _FROZEN or not _OWN.isdisjoint(kind.__dict__):
                return dataclasses.dataclass(**options)(kind)
            return _made(kind)

        return made if kind is None else made(kind)


_FROZEN = {"frozen": True, "slots": True}
#: A class that has one of these itself is left to the library.
_OWN = frozenset(
    {"__init__", "__repr__", "__eq__", "__hash__", "__post_init__", "__getstate__", "__reduce__"}
)


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


#: Stands in a signature for what is made anew each time.
_ANEW = _Factory()


def _made(kind: type) -> type:
    if kind.__doc__ is None:
        kind.__doc__ = kind.__name__  # the library would look for a signature, at great cost
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(kind)
    parts = dataclasses.fields(made)
    made.__init__ = _init(made, parts)
    made.__repr__ = _repr(tuple(part.name for part in parts if part.repr))
    compared = _getter([part.name for part in parts if part.compare])
    hashed = [part.name for part in parts if (part.compare if part.hash is None else part.hash)]
    made.__eq__, made.__hash__ = _eq(compared), _hash(_getter(hashed))
    made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
    # Copied and pickled by its fields: what a copy is usually filled with, assignment, is refused.
    made.__reduce__ = _reduce(tuple(part.name for part in parts))
    return made  # type: ignore[no-any-return]


def _init(kind: type, parts: tuple[Any, ...]) -> Any:
    """The one function that is compiled: who sets a field asks its slot, not the class."""
    words, lines, keywords = ["self"], ["pass"], list[str]()
    names: dict[str, Any] = {"_anew": _ANEW}
    for part in parts:
        name, value = part.name, part.name
        names[f"_set_{name}"] = getattr(kind, name).__set__
        if part.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = part.default
            word = f"{name}=_default_{name}"
        elif part.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = part.default_factory
            word, value = f"{name}=_anew", f"_make_{name}() if {name} is _anew else {name}"
        else:
            word = name
        (keywords if part.kw_only else words).append(word)
        lines.append(f"_set_{name}(self, {value})")
    if keywords:
        words += ["*", *keywords]
    exec(f"def __init__({', '.join(words)}):\n " + "\n ".join(lines), names)
    made: Any = names["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    made.__annotations__ = {**{part.name: part.type for part in parts}, "return": None}
    return made


def _getter(names: list[str]) -> Any:
    """From a value to the tuple of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda value: ()
    only = attrgetter(names[0])
    return lambda value: (only(value),)


def _repr(names: tuple[str, ...]) -> Any:
    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    return __repr__


def _eq(fields_of: Any) -> Any:
    def __eq__(self: Any, other: object) -> Any:
        if other is self:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return fields_of(self) == fields_of(other)

    return __eq__


def _hash(fields_of: Any) -> Any:
    def __hash__(self: Any) -> int:
        return hash(fields_of(self))

    return __hash__


def _reduce(names: tuple[str, ...]) -> Any:
    def __reduce__(self: Any) -> tuple[Any, ...]:
        return _remade, (self.__class__, {name: getattr(self, name) for name in names})

    return __reduce__


def _remade(kind: type, fields: dict[str, Any]) -> Any:
    return kind(**fields)


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
