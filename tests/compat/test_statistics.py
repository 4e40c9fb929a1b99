"""What `queue.statistics` counts: one number per event, live counts by state.

Differences from the original (touch counted once, `delay` for every driver) are rows 10 and 14
of the defect table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import Tube, call, eventually, refusal
from tests.compat.compat_server import Server

CALLS = {"ack", "bury", "delete", "kick", "put", "release", "take", "touch", "ttl", "ttr", "delay"}
TASKS = {"taken", "buried", "ready", "done", "delayed", "total"}
DRIVERS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")


def counted(tube: Tube) -> dict[str, int]:
    """Calls that were counted at all."""
    return {name: count for name, count in tube.statistics()["calls"].items() if count}


@pytest.mark.parametrize("driver", DRIVERS)
def test_keys_of_a_fresh_tube(tube: Callable[..., Tube], driver: str) -> None:
    found = tube(driver).statistics()
    assert found == {"tasks": dict.fromkeys(TASKS, 0), "calls": dict.fromkeys(CALLS, 0)}


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_call_counts_once(tube: Callable[..., Tube], driver: str) -> None:
    fresh = tube(driver)
    for number in range(4):
        fresh("put", number, {"utube": str(number)})
    assert counted(fresh) == {"put": 4}
    fresh("take", 0)
    fresh("release", 0)
    fresh("bury", 1)
    fresh("bury", 1)
    fresh("bury", 2)
    fresh("kick", 5)
    fresh("take", 0)
    fresh("ack", 0)
    fresh("delete", 1)
    expected = {"put": 4, "take": 2, "release": 1, "bury": 2, "kick": 2, "ack": 1, "delete": 1}
    assert counted(fresh) == expected
    tasks = fresh.statistics()["tasks"]
    assert tasks == {"ready": 2, "taken": 0, "buried": 0, "delayed": 0, "total": 2, "done": 2}


def test_what_does_not_count(tube: Callable[..., Tube]) -> None:
    fresh = tube("limfifottl", capacity=1)
    fresh("put", "x")
    before = counted(fresh)
    fresh("put", "no room")
    fresh("peek", 0)
    fresh("touch", 0)
    fresh("release_all")
    for method, args in (("ack", (0,)), ("release", (0,)), ("touch", (0, 1)), ("delete", (9,))):
        refusal(lambda method=method, args=args: fresh(method, *args))  # type: ignore[misc]
    assert counted(fresh) == before
    fresh("take", 0)
    fresh("take", 0)
    assert counted(fresh) == {"put": 1, "take": 1}
    fresh("truncate")
    assert counted(fresh) == {"put": 1, "take": 1}
    assert fresh.statistics()["tasks"] == dict.fromkeys(TASKS, 0)


def test_a_failed_touch_does_not_count(tube: Callable[..., Tube]) -> None:
    """The original counts it before it finds out."""
    fresh = tube("fifo")
    fresh("put", "x")
    fresh("take", 0)
    refusal(lambda: fresh("touch", 0, 1))
    assert counted(fresh) == {"put": 1, "take": 1}


@pytest.mark.parametrize("driver", ["fifottl", "limfifottl", "utubettl"])
def test_deadlines_count(tube: Callable[..., Tube], driver: str) -> None:
    fresh = tube(driver)
    fresh("put", "expires", {"ttl": 0.02, "utube": "a"})
    eventually(lambda: fresh.statistics()["tasks"]["total"] == 0)
    assert counted(fresh) == {"put": 1, "delete": 1, "ttl": 1}
    assert fresh.statistics()["tasks"]["done"] == 1
    fresh("put", "returns", {"ttr": 0.02, "delay": 0.02, "utube": "b"})
    assert fresh.statistics()["tasks"]["delayed"] == 1
    assert fresh("take", 5)[0][2] == "returns"
    eventually(lambda: fresh.statistics()["tasks"]["ready"] == 1)
    assert counted(fresh) == {"put": 2, "delete": 1, "ttl": 1, "delay": 1, "take": 1, "ttr": 1}


def test_all_tubes_at_once(conn: Any, tube: Callable[..., Tube]) -> None:
    fresh = tube("fifo")
    fresh("put", "x")
    (everything,) = call(conn, "queue.statistics")
    assert everything[fresh.name] == fresh.statistics()
    assert call(conn, "queue.stats", fresh.name) == [fresh.statistics()]


def test_dropped_and_made_again(conn: Any, tube: Callable[..., Tube]) -> None:
    fresh = tube("fifo")
    fresh("put", "x")
    fresh("drop")
    call(conn, "queue.create_tube", fresh.name, "fifo")
    assert counted(fresh) == {}
    assert fresh("put", "y") == [[0, "r", "y"]]


def test_restart(launch: Callable[..., Server], connect: Callable[..., Any]) -> None:
    """Tasks are counted as they are; what was called is forgotten, as in the original."""
    node = launch()
    conn = connect(node)
    call(conn, "queue.create_tube", "kept", "utubettl")
    for number in range(4):
        call(conn, "queue.tube.kept:put", number, {"utube": number, "delay": 900 * (number == 3)})
    call(conn, "queue.tube.kept:take", 0)
    call(conn, "queue.tube.kept:bury", 1)
    node.restart()
    (found,) = call(connect(node), "queue.statistics", "kept")
    assert found["tasks"] == {
        "ready": 2, "taken": 0, "buried": 1, "delayed": 1, "total": 4, "done": 0
    }  # fmt: skip
    assert found["calls"]["put"] == 0
