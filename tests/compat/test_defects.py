"""Defects of the original that are fixed here, rows 1 to 14: deadlines, kick, truncate, callbacks.

A test is named after its row of the defect table in docs/compatibility.md. Rows 15 on are in
test_defects_engine.py, those about callbacks and role changes in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import Raw, Tube, eventually, new_tube, refusal
from tests.compat.compat_server import Server

S = 1_000_000
TTL_DRIVERS = ("fifottl", "limfifottl", "utubettl")
NEXT_EVENT, TTL, TTR, CREATED = 2, 3, 4, 6


def row(tube: Tube, number: int = 0) -> list[Any]:
    found: list[Any] = tube.conn.rows(tube.name)[number]
    return found


def taken(raw: Raw, driver: str, **options: Any) -> Tube:
    """A fresh tube whose only task is taken."""
    tube = new_tube(raw, driver)
    tube("put", "x", options)
    assert tube("take", 0) == [[0, "t", "x"]]
    return tube


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_defect_01_touch_by_the_seconds_of_infinity(raw: Raw, driver: str) -> None:
    """3153.6 s in µs is the number the original uses for "for ever" in seconds."""
    tube = taken(raw, driver, ttl=10_000, ttr=10)
    assert tube("touch", 0, 3153.6) == [[0, "t", "x"]]
    found = row(tube)
    assert (found[TTL], found[TTR]) == (13_153_600_000, 3_163_600_000)
    assert tube("ack", 0) == [[0, "-", "x"]]


@pytest.mark.parametrize("driver", TTL_DRIVERS)
@pytest.mark.parametrize("delta", [3.2e9, 1.7e10, 1e300, float("inf")])
def test_defect_02_touch_by_more_than_a_century(raw: Raw, driver: str, delta: float) -> None:
    tube = taken(raw, driver, ttl=10, ttr=10)
    assert tube("touch", 0, delta) == [[0, "t", "x"]]
    assert tube("touch", 0, delta) == [[0, "t", "x"]]
    assert row(tube)[TTL] >= 3_153_600_000 * S
    assert tube("ack", 0) == [[0, "-", "x"]]


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_defect_03_touch_by_a_fraction_of_a_microsecond(raw: Raw, driver: str) -> None:
    tube = taken(raw, driver, ttl=10, ttr=10)
    assert tube("touch", 0, 0.1234567) == [[0, "t", "x"]]
    assert row(tube)[TTL] == 10_123_456


@pytest.mark.parametrize("driver", ["utube", "utubettl"])
@pytest.mark.parametrize("mode", ["default", "ready_buffer"])
def test_defect_04_kick_of_more_than_is_buried(raw: Raw, driver: str, mode: str) -> None:
    tube = new_tube(raw, driver, storage_mode=mode)
    for number in range(3):
        tube("put", number, {"utube": "a"})
        tube("bury", number)
    assert tube("kick", 10) == [3]
    assert tube("kick", 10) == [0]
    assert tube("take", 0) == [[0, "t", 0]]


@pytest.mark.parametrize("driver", ["utube", "utubettl"])
@pytest.mark.parametrize("mode", ["default", "ready_buffer"])
def test_defect_05_kick_in_a_ready_buffer(raw: Raw, driver: str, mode: str) -> None:
    """A kicked task can be taken, and the sequence that hung the original does not."""
    tube = new_tube(raw, driver, storage_mode=mode)
    tube("put", "alone", {"utube": "b"})
    tube("bury", 0)
    assert tube("kick", 1) == [1]
    assert tube("take", 0) == [[0, "t", "alone"]]
    tube("put", "a0", {"utube": "a"})
    tube("put", "a1", {"utube": "a"})
    tube("bury", 1)
    tube("kick", 1)
    tube("put", "a2", {"utube": "a"})
    assert tube("take", 0) == [[1, "t", "a0"]]
    assert tube("take", 0) == []
    tube("ack", 1)
    assert tube("take", 0) == [[2, "t", "a1"]]


@pytest.mark.parametrize("mode", ["default", "ready_buffer"])
def test_defect_07_plain_release_keeps_the_deadline(raw: Raw, mode: str) -> None:
    tube = new_tube(raw, "utubettl", storage_mode=mode)
    tube("put", "x", {"ttl": 0.2, "ttr": 60, "utube": "a"})
    tube("take", 0)
    assert tube("release", 0) == [[0, "r", "x"]]
    found = row(tube)
    assert found[NEXT_EVENT] == found[CREATED] + 200_000
    eventually(lambda: tube.statistics()["tasks"]["total"] == 0)
    assert tube.statistics()["calls"]["ttl"] == 1


@pytest.mark.parametrize("mode", ["default", "ready_buffer"])
def test_defect_08_ttl_caps_a_taken_task_of_a_sub_queue(raw: Raw, mode: str) -> None:
    """As in fifottl: what a crashed worker holds is gone when its ttl is over."""
    tube = new_tube(raw, "utubettl", storage_mode=mode)
    tube("put", "x", {"ttl": 0.1, "utube": "a"})
    tube("put", "y", {"utube": "a"})
    tube("take", 0)
    found = row(tube)
    assert found[NEXT_EVENT] == found[CREATED] + 100_000
    assert tube("take", 5) == [[1, "t", "y"]]
    calls = tube.statistics()["calls"]
    assert (calls["ttr"], calls["delete"], calls["ttl"]) == (1, 1, 1)


@pytest.mark.parametrize("driver", ["fifo", "fifottl", "limfifottl", "utube", "utubettl"])
def test_defect_09_truncate_forgets_the_owners(
    server: Server, connect: Callable[..., Any], raw: Raw, driver: str
) -> None:
    worker = connect(server)
    tube, other = new_tube(raw, driver), new_tube(raw, driver)
    for one in (tube, other):
        one("put", "x")
        one.of(worker)("take", 0)
    assert tube("truncate") == []
    assert refusal(lambda: tube.of(worker)("ack", 0)).text == "Task was not taken"
    assert tube("drop") == [True], "nothing is taken in an empty tube"
    worker.close()
    assert other("take", 5) == [[0, "t", "x"]], "the rest of the session was released"


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_defect_10_touch_counts_once(raw: Raw, driver: str) -> None:
    tube = taken(raw, driver)
    tube("touch", 0, 1)
    tube("touch", 0, 1)
    assert tube.statistics()["calls"]["touch"] == 2


def test_defect_14_end_of_delay_has_one_name(raw: Raw) -> None:
    tube = new_tube(raw, "utubettl")
    tube("put", "x", {"delay": 0.02})
    assert tube("take", 5) == [[0, "t", "x"]]
    calls = tube.statistics()["calls"]
    assert calls["delay"] == 1
    assert "delayed" not in calls
