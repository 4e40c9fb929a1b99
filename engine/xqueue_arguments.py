"""Arguments of xqueue's calls: times in seconds, options as a map, increments."""

from __future__ import annotations

from math import isfinite
from typing import Any

from model.errors import failure
from model.task import NEVER_US

PRETTY = {"R": "Ready", "T": "Taken", "W": "Waiting", "B": "Buried", "Z": "Zombie", "D": "Done"}


def us(name: str, value: Any) -> int | None:
    """Seconds as µs, None where there are none."""
    if value is None:
        return None
    if type(value) not in (int, float) or not isfinite(value) or abs(value) > 1e10:
        raise failure(f"{name} must be a number of seconds")
    return round(float(value) * 1_000_000)


def options(value: Any) -> dict[str, Any]:
    if value is None or value == []:
        return {}
    if type(value) is not dict:
        raise failure("Wrong options: expected a map")
    found: dict[str, Any] = value
    return found


def increment_us(value: Any) -> int:
    """How much more time a touch gives, in µs."""
    if type(value) not in (int, float) or not isfinite(value):
        raise failure("attr.increment must be number")
    if value < 0:
        raise failure("attr.increment can't be negative")
    return min(round(float(value) * 1_000_000), NEVER_US)
