"""Durations and deadlines of the ttl drivers: seconds in calls, µs of the log's clock in rows.

"No limit" is 100 years, as in the original; what reaches that far gets no timer.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from tandemq.model.errors import ER_FIELD_TYPE
from tandemq.model.task import INFINITY_S, INFINITY_US, NEVER_US
from tandemq.model.units import SECOND_US
from tandemq_server.drivers.base import DriverMisuse
from tandemq_server.spaces.space import Row

# Fields every ttl driver shares.
NEXT_EVENT, TTL, TTR, PRI, CREATED = 2, 3, 4, 5, 6

#: The longest ttl and ttr: however often a touch or a delay adds to them, their sum with any
#: moment still fits the 64 bits of a field.
LONGEST_US = 2**63

#: What the original's errors call a value's type.
LUA_TYPES = {
    str: "string",
    bytes: "string",
    bool: "boolean",
    dict: "table",
    list: "table",
    int: "number",
    float: "number",
}


def duration_us(option: str, value: Any) -> int:
    """Seconds (int or float, 0 or more) to µs; beyond 100 years is 100 years."""
    kind = type(value)
    if kind is not int and kind is not float:
        raise DriverMisuse(
            f"attempt to compare {LUA_TYPES.get(kind, 'userdata')} with number: "
            f"{option} must be seconds from 0 to {INFINITY_S}"
        )
    if value < 0 or not isfinite(value):
        raise DriverMisuse(
            f"Invalid value of {option}: {value} (expected seconds from 0 to {INFINITY_S})"
        )
    return INFINITY_US if value >= INFINITY_S else int(value * SECOND_US)


def priority(value: Any) -> int:
    """A priority: an unsigned 64-bit integer, smaller is served first."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= NEVER_US:
        raise DriverMisuse(
            "Tuple field 6 type does not match one required by operation: expected unsigned "
            f"(pri must be 0 to {NEVER_US})",
            ER_FIELD_TYPE,
        )
    return value


def due(row: Row) -> int | None:
    """When to look at a row again, None for "not in 100 years"."""
    moment: int = row[NEXT_EVENT]
    return moment if moment - row[CREATED] < INFINITY_US else None
