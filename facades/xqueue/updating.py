"""Update operations of a record: {op, field, value}, as Tarantool's `update` knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandemq_server.drivers.base import DriverMisuse

#: Codes of the storage engine's own errors.
ER_FIELD_TYPE, ER_UPDATE_ARG_TYPE, ER_UNKNOWN_UPDATE_OP, ER_NO_SUCH_FIELD = 23, 26, 28, 37
ER_UPDATE_PRIMARY = 94
UPDATES_MAX = 4000

_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda old, value: old + value,
    "-": lambda old, value: old - value,
}
_BITS: dict[str, Callable[[int, int], int]] = {
    "&": lambda old, value: old & value,
    "|": lambda old, value: old | value,
    "^": lambda old, value: old ^ value,
}


def apply(fields: list[Any], names: dict[str, int], updates: Any) -> list[Any]:
    """The fields after `updates`; `fields` itself is left alone.

    Fields are named or numbered from 1, from the end with negative numbers. Operations: = + - & |
    ^ : (splice) and # (only to empty a field). Raises `DriverMisuse` with the storage's texts.
    """
    if type(updates) is not list or len(updates) > UPDATES_MAX:
        raise DriverMisuse("Illegal parameters, update operations must be an array of arrays", 1)
    found = list(fields)
    for update in updates:
        if type(update) is not list or len(update) < 2:
            raise DriverMisuse("Illegal parameters, update operation must be an array {op,..}", 1)
        at = _field(found, names, update[1])
        found[at] = _changed(found[at], update, update[1])
    return found


def _field(fields: list[Any], names: dict[str, int], field: Any) -> int:
    if type(field) is str and field in names:
        return names[field]
    if type(field) is int and 0 < abs(field) <= len(fields):
        return field - 1 if field > 0 else len(fields) + field
    raise DriverMisuse(f"Field '{field}' was not found in the tuple", ER_NO_SUCH_FIELD)


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _changed(old: Any, update: list[Any], field: Any) -> Any:
    op = update[0]
    value = update[2] if len(update) > 2 else None
    if op == "=" and len(update) == 3:
        return value
    if op == "#" and len(update) == 3:
        return None
    if op in _NUMBERS and len(update) == 3:
        if not _number(value) or not _number(old):
            raise _wrong(op, field, "a number")
        return _NUMBERS[op](old, value)
    if op in _BITS and len(update) == 3:
        if type(value) is not int or type(old) is not int or value < 0 or old < 0:
            raise _wrong(op, field, "a positive integer")
        return _BITS[op](old, value)
    if op == ":" and len(update) == 5:
        start, length, text = update[2:]
        if type(old) is not str or type(text) is not str:
            raise _wrong(op, field, "a string")
        if type(start) is not int or type(length) is not int or not start:
            raise DriverMisuse(f"SPLICE error on field {field}: offset is out of bound", 25)
        begin = start - 1 if start > 0 else max(0, len(old) + start + 1)
        end = begin + length if length >= 0 else max(begin, len(old) + length)
        return old[:begin] + text + old[end:]
    raise DriverMisuse(f"Unknown UPDATE operation #1: {op}", ER_UNKNOWN_UPDATE_OP)


def _wrong(op: str, field: Any, expected: str) -> DriverMisuse:
    return DriverMisuse(
        f"Argument type in operation '{op}' on field '{field}' does not match field type: "
        f"expected {expected}",
        ER_UPDATE_ARG_TYPE,
    )
