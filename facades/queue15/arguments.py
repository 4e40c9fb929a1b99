"""Arguments of the queue15 calls: text or numbers, in seconds; how a mistake is named.

The texts are those of the original's language, followed by what is wrong.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from tandemq.model.errors import QueueError, failure
from tandemq.model.task import INFINITY_S, NEVER_US
from tandemq.model.units import SECOND_US

TUBE_BYTES_MAX = 1000
#: Decimal numbers of a sensible length, as clients print them.
_NUMBER = re.compile(r"[+-]?(?=\.?[0-9])[0-9]{0,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,3})?")


def number(value: Any) -> float | int | None:
    """A finite number, given as such or as text; None for anything else."""
    if type(value) is bytes:
        value = value.decode("ascii", "replace")
    if type(value) is str:
        if _NUMBER.fullmatch(value) is None:
            return None
        value = float(value) if set(value) & set(".eE") else int(value)
    if type(value) not in (int, float) or not isfinite(value):
        return None
    return value  # type: ignore[no-any-return]


def compared(name: str, value: Any) -> float | int:
    """A number the original compares with another one."""
    found = number(value)
    if found is None:
        raise failure(f"attempt to compare nil with number: {name} must be a number")
    return found


def microseconds(name: str, value: Any) -> int:
    """Seconds to µs; 0 for "not given", which is what zero and less mean. At most 100 years."""
    seconds = compared(name, value)
    return int(min(seconds, INFINITY_S) * SECOND_US) if seconds > 0 else 0


def optional_microseconds(name: str, value: Any) -> int:
    return 0 if value is None else microseconds(name, value)


def timeout_us(value: Any) -> int:
    """How long a take waits: for ever unless said."""
    if value is None:
        return NEVER_US
    seconds = compared("timeout", value)
    if seconds < 0:
        raise failure("Timeout can't be less then 0")
    return NEVER_US if seconds >= INFINITY_S else int(seconds * SECOND_US)


def priority(value: Any) -> int:
    """A user's priority, larger first; beyond -127..128 it is clamped where it is stored."""
    found = number(value)
    if found is None:
        raise failure(
            "attempt to perform arithmetic on local 'pri' (a nil value): pri must be a number"
        )
    return int(max(-1000, min(1000, found)))


def tube_name(value: Any) -> str:
    """A tube's name: text; a number is its digits, as it was on the old wire."""
    if type(value) is bytes:
        value = value.decode("utf-8", "surrogateescape")
    if type(value) is int:
        value = str(value)
    if type(value) is not str:
        raise failure("Invalid tube: expected its name")
    if len(value.encode("utf-8", "surrogateescape")) > TUBE_BYTES_MAX:
        raise failure(f"Invalid tube: expected a name of at most {TUBE_BYTES_MAX} bytes")
    return value


def no_space() -> QueueError:
    return failure("table index is nil: space must be a number")
