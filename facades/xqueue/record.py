"""How a record of an xqueue tube is kept, shown and checked.

A row is (key, status, runat, kind, expires, other fields...): `runat` is the moment in force (µs,
0 = none) and `kind` says what it means: "w" delay, "x" ttl, "t" ttr, "z" zombie. `expires` is the
end of the record's life (µs, 0 = none), which taking and giving back leave alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandemq_server.drivers.base import DriverMisuse
from tandemq_server.facades.xqueue.declaration import string_key
from tandemq_server.spaces.record_index import LETTERS
from tandemq_server.spaces.space import IndexShape, Row

RUNAT, KIND, EXPIRES, FIRST_OTHER = 2, 3, 4, 5
ER_FIELD_TYPE, ER_TUPLE_FOUND, ER_EXACT_MATCH = 23, 3, 19
_KEY_MAX = 2**64
#: Records of more fields than this are shown and made by loops: compiling takes 0.1 ms a field.
WIDE = 256
_INTS = frozenset({int})
_FLOATS = frozenset({int, float})
#: Types whose every value fits a field that may hold them; numbers have limits.
_ALL_FIT = frozenset({str, bool, dict, list, bytes})
#: What a field of a type may hold; types that are not here may hold anything but nil.
_HOLDS: dict[str, frozenset[type]] = {
    **dict.fromkeys(("str", "STR", "string"), frozenset({str})),
    **dict.fromkeys(("num", "NUM", "unsigned"), _INTS),
    "integer": _INTS,
    **dict.fromkeys(("number", "double", "decimal"), _FLOATS),
    "boolean": frozenset({bool}),
    "map": frozenset({dict}),
    "array": frozenset({list}),
    "varbinary": frozenset({bytes}),
}
_UNSIGNED = frozenset({"num", "NUM", "unsigned"})


def _fits(kind: str, value: Any) -> bool:
    """Whether a field of this type may hold the value; NaN fits nowhere, it has no order."""
    holds = _HOLDS.get(kind)
    if (holds is not None and type(value) not in holds) or value != value:
        return False
    if type(value) is not int:
        return True
    return (0 if kind in _UNSIGNED else -(2**63)) <= value < _KEY_MAX


class FieldPlaces:
    """Where each field of the format stands in a row."""

    def __init__(self, opts: dict[str, Any]) -> None:
        form, fields = opts["format"], opts["fields"]
        self.format = form
        self.width = len(form)
        self.pk: int = opts["pk"]
        self.status: int = fields["status"]
        self.runat: int | None = fields.get("runat")
        self.names = {field[0]: at for at, field in enumerate(form)}
        self.text_keys = string_key(opts)
        own = (self.pk, self.status, self.runat)
        self.others = [at for at in range(self.width) if at not in own]
        self.key_name: str = form[self.pk][0]
        self.other_names = [form[at][0] for at in self.others]
        self.priority = self._row_field(fields.get("priority"))
        self.tube = self._row_field(fields.get("tube"))
        self.whole = self.runat is not None and form[self.runat][1] in _UNSIGNED
        #: `view` by name.
        self.table: Callable[[Row], dict[str, Any]] = self._shower()
        #: The row of a ready record from its key and its checked fields by name; a field that is
        #: not there is nil, an unknown one dropped.
        self.fresh: Callable[[Any, dict[str, Any]], Row] = self._maker()

    def _row_field(self, at: int | None) -> int | None:
        return None if at is None else FIRST_OTHER + self.others.index(at)

    def view(self, row: Row) -> list[Any]:
        """The record as its format has it; times as seconds."""
        found: list[Any] = [None] * self.width
        found[self.pk] = row[0]
        found[self.status] = LETTERS[row[1]]
        if self.runat is not None:
            at = row[RUNAT]
            found[self.runat] = at if not at else -(-at // 1_000_000) if self.whole else at / 1e6
        for position, value in zip(self.others, row[FIRST_OTHER:], strict=True):
            found[position] = value
        return found

    def _shower(self) -> Callable[[Row], dict[str, Any]]:
        """A display over the row's columns: every reply makes one, and a loop takes five times as
        long. Names of fields enter it as literals. A very wide record is not worth compiling."""
        if self.width > WIDE:
            return lambda row: dict(zip(self.names, self.view(row), strict=True))
        spelt = {self.pk: "row[0]", self.status: "letters[row[1]]"}
        spelt.update({at: f"row[{FIRST_OTHER + n}]" for n, at in enumerate(self.others)})
        if self.runat is not None:
            seconds = "-(-row[{0}] // 1000000)" if self.whole else "row[{0}] / 1e6"
            spelt[self.runat] = ("row[{0}] and " + seconds).format(RUNAT)
        pairs = ", ".join(f"{name!r}: {spelt[at]}" for name, at in self.names.items())
        made: Callable[[Row], dict[str, Any]] = eval(
            f"lambda row: {{{pairs}}}", {"letters": LETTERS}
        )
        return made

    def _maker(self) -> Callable[[Any, dict[str, Any]], Row]:
        """Likewise a display over the task's fields: what needs no look at its value is let pass
        by its type."""
        if self.width > WIDE:
            named = list(zip(self.others, self.other_names, strict=True))
            return lambda key, task: (
                *(key, "r", 0, "", 0),
                *(self._checked(at, task.get(name)) for at, name in named),
            )
        passes = []
        for at in self.others:
            _, kind, nullable = self.format[at]
            fine = _HOLDS.get(kind, _ALL_FIT) & _ALL_FIT
            may_lack = (nullable or kind == "any") and not self._ordering(at)
            passes.append(fine | {type(None)} if may_lack else fine)
        fields = "".join(
            f", v if type(v := task.get({name!r})) in passes[{n}] else checked({at}, v)"
            for n, (at, name) in enumerate(zip(self.others, self.other_names, strict=True))
        )
        made: Callable[[Any, dict[str, Any]], Row] = eval(
            f"lambda key, task: (key, 'r', 0, '', 0{fields})",
            {"passes": passes, "checked": self._checked},
        )
        return made

    def _checked(self, at: int, value: Any) -> Any:
        self._check(at, self.format[at][1], self.format[at][2], value)
        return value

    def rest(self, fields: list[Any]) -> tuple[Any, ...]:
        """Checked fields of a record that a row keeps as they are."""
        form = self.format
        for at in self.others:
            self._check(at, form[at][1], form[at][2], fields[at])
        return tuple([fields[at] for at in self.others])

    def _check(self, at: int, kind: str, nullable: bool, value: Any) -> None:
        if value is None:
            # The order of takes needs a number.
            if (nullable or kind == "any") and not self._ordering(at):
                return
        elif _fits(kind, value):
            return
        name = self.format[at][0]
        raise DriverMisuse(
            f"Tuple field {at + 1} ({name}) type does not match one required by operation: "
            f"expected {kind}",
            ER_FIELD_TYPE,
        )

    def _ordering(self, at: int) -> bool:
        return self.priority is not None and self.others[self.priority - FIRST_OTHER] == at

    def check_key(self, key: Any) -> Any:
        """A key of the declared type, or the storage's error."""
        if self.text_keys:
            if type(key) is str:
                return key
        elif type(key) is int and 0 <= key < _KEY_MAX:
            return key
        elif type(key) is float and key.is_integer() and 0 <= key < _KEY_MAX:
            return int(key)
        name, kind, _ = self.format[self.pk]
        raise DriverMisuse(
            f"Tuple field {self.pk + 1} ({name}) type does not match one required by operation: "
            f"expected {kind}",
            ER_FIELD_TYPE,
        )

    def key_of(self, argument: Any) -> Any:
        """The key an argument of ack, release and the like stands for (bare, array or map)."""
        if type(argument) is int and not self.text_keys:
            return argument
        if type(argument) is dict:
            key = argument.get(self.key_name)
        elif type(argument) is list:
            key = argument[self.pk] if len(argument) > self.pk else None
        elif (type(argument) is str) if self.text_keys else (type(argument) in (int, float)):
            key = argument
        else:
            raise DriverMisuse("Wrong key/task argument. Expected table or tuple or key")
        if key is None:
            raise DriverMisuse(
                "Invalid key part count in an exact match (expected 1, got 0)", ER_EXACT_MATCH
            )
        if type(key) not in (str, int, float):
            raise DriverMisuse("Wrong key/task argument. Expected table or tuple or key")
        return int(key) if type(key) is float and key.is_integer() else key

    def shapes(self) -> tuple[IndexShape, ...]:
        """Indexes as connectors see them."""
        form = self.format

        def parts(*fields: int | None) -> list[tuple[int, str]]:
            return [(at, form[at][1]) for at in fields if at is not None]

        pri = None if self.priority is None else self.others[self.priority - FIRST_OTHER]
        found = [IndexShape("primary", parts(self.pk))]
        found.append(IndexShape("xq", parts(self.status, pri, self.pk)))
        if self.tube is not None:
            tube = self.others[self.tube - FIRST_OTHER]
            found.append(IndexShape("tube", parts(tube, self.status, pri, self.pk)))
        if self.runat is not None:
            found.append(IndexShape("runat", parts(self.runat, self.pk)))
        return tuple(found)


def key_text(key: Any) -> str:
    """A key as messages show it: 64-bit numbers with the suffix of the original."""
    return f"{key}ULL" if type(key) is int and key >= 10**14 else str(key)
