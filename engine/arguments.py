"""Argument rules of the calls: what is accepted, what it means, how a mistake is named.

NULL is the same as left out everywhere. Times come in seconds and leave in µs.
"""

from __future__ import annotations

from math import isfinite, isnan
from typing import Any

from tandemq.model.errors import (
    ER_EXACT_MATCH,
    ER_FIELD_MISSING,
    ER_KEY_PART_TYPE,
    QueueError,
    failure,
)
from tandemq.model.task import INFINITY_S, NEVER_US
from tandemq.model.units import SECOND_US
from tandemq_server.drivers.deadlines import LUA_TYPES


def lua_type(value: Any) -> str:
    return LUA_TYPES.get(type(value), "userdata")


def seconds(name: str, value: Any) -> float | int:
    """A number of seconds; anything else is the caller's mistake."""
    if type(value) not in (int, float) or isnan(value):
        raise failure(
            f"attempt to compare {lua_type(value)} with number: {name} must be a number of seconds"
        )
    return value  # type: ignore[no-any-return]


def timeout_us(value: Any) -> int:
    """How long to wait, in µs: None = for ever (NEVER_US), below 0 = not at all."""
    if value is None:
        return NEVER_US
    if value == 0 and type(value) is int:
        return 0
    value = seconds("timeout", value)
    if value <= 0:
        return 0
    return NEVER_US if value >= INFINITY_S else int(value * SECOND_US)


def delta_us(value: Any) -> int:
    """How much more time a touch gives, in µs; 0 = nothing to do."""
    if value is None:
        return 0
    value = seconds("increment", value)
    if value <= 0:
        return 0
    return NEVER_US if not isfinite(value) or value > INFINITY_S else int(value * SECOND_US)


def task_id(value: Any, parts: int) -> int:
    """A task id; `parts` is the number of key parts the original looked it up by."""
    if type(value) is int and 0 <= value <= NEVER_US:
        return value
    if value is None:
        raise QueueError(
            ER_EXACT_MATCH,
            f"Invalid key part count in an exact match (expected {parts}, got {parts - 1})",
        )
    if type(value) is float and value.is_integer() and 0 <= value < 2**64:
        return int(value)
    raise QueueError(
        ER_KEY_PART_TYPE,
        f"Supplied key type of part {parts - 1} does not match index part type: expected unsigned",
    )


def kick_count(value: Any) -> int:
    """How many buried tasks to kick: 1 unless said, below 1 = none."""
    if value is None:
        return 1
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            value = None
    if type(value) not in (int, float) or isnan(value):
        raise failure("'for' limit must be a number")
    return int(max(0, min(value, NEVER_US)))


def options(value: Any, what: str) -> dict[str, Any] | None:
    """A map of options; absent, NULL and an empty array (one connector's empty map) are none."""
    if value is None or value == [] or value == {}:
        return None
    if type(value) is not dict:
        raise failure(f"Invalid options of {what}: expected a map, got {lua_type(value)}")
    return value


def task_options(value: Any, known: frozenset[str], what: str = "put") -> dict[str, Any] | None:
    """Options of a put or a release; an unknown one must not be dropped in silence."""
    if type(value) is not dict or not value:
        return options(value, what)
    return known_options(value, known)


def known_options(value: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    if not known.issuperset(value):
        raise unknown_option(value, known)
    return value


def unknown_option(value: dict[str, Any], known: frozenset[str]) -> QueueError:
    return failure(f"Unknown option {next(option for option in value if option not in known)}")


def wants_token(value: Any) -> bool | str:
    """Options of a take: whether it asks for the fencing token, or ("info") for all there is."""
    given = task_options(value, _TAKE, "take")
    if not given:
        return False
    for option in ("token", "info"):
        wanted = given.get(option)
        if wanted is not None and type(wanted) is not bool:
            raise failure(f"Invalid value of {option}: {wanted} (expected true or false)")
    return "info" if given.get("info") else given.get("token") is True


def split_token(value: Any, what: str, only: bool) -> tuple[Any, Any]:
    """(other options, token) of a call that may name a delivery; `only`: knows no other option."""
    given = options(value, what)
    if not given:
        return None, None
    if only:
        task_options(given, _TOKEN, what)
    rest = {key: item for key, item in given.items() if key != "token"}
    return rest, given.get("token")


def field_missing(field: int) -> QueueError:
    """A put without a payload; fields are counted from 1 in the text."""
    text = f"Tuple field {field + 1} required by space format is missing"
    return QueueError(ER_FIELD_MISSING, text)


_TOKEN = frozenset({"token"})
_TAKE = frozenset({"token", "info"})
