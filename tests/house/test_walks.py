"""The way through the house stays short; see walks.py."""

from __future__ import annotations

from tests.house.walks import measure

#: Of both nodes together.
FLIP_CALLS_MAX = 1800


def test_a_flip_is_a_short_walk() -> None:
    walk = measure("flip")
    assert 100 < walk.calls <= FLIP_CALLS_MAX
    assert "statemachine/fiber.py" in walk.files


def test_the_same_walk_each_time() -> None:
    assert measure("put").calls == measure("put").calls
