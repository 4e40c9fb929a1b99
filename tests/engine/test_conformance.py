"""The suite of the contract for the five drivers, and what they promise beyond it.

Order, sub-queues and times; texts and codes are those of the behavioural specification.
"""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.record import encode_frame
from tandemq.model.task import NEVER_US
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine.clients import EMPTY
from tandemq_server.engine.tube import EngineTube
from tandemq_server.testing import Check, driver_checks, driver_conformance
from tests.engine.engine_bench import EPOCH, SECOND, TTL_DRIVERS, UTUBES, Bench, text

E1 = "Task was not taken"
#: What a put is given while the suite runs: sub-queues, priorities, times that are far away.
SUB_QUEUES = ({"utube": "a"}, {"utube": "b"}, {"utube": "a"})
TIMES = ({"ttl": 60, "ttr": 15}, {"pri": 3}, {"pri": 1, "delay": 0})


def puts_of(driver: str) -> list[dict[str, Any]]:
    puts = list(SUB_QUEUES) if driver in UTUBES else [{}]
    return [
        {**one, **times} for one in puts for times in (TIMES if driver in TTL_DRIVERS else [{}])
    ]


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=f"{name}-{check}")
        for name, driver in BUILT_IN.items()
        for check in driver_checks(driver, puts=puts_of(name))
    ],
)
def test_the_contract(check: Check) -> None:
    check()


def test_a_tube_of_few_tasks() -> None:
    driver_conformance(BUILT_IN["limfifottl"], options={"capacity": 5})


@pytest.mark.parametrize("how", ["release", "kick", "disconnect"])
def test_a_task_that_comes_back_keeps_its_place(bench: Bench, tube: EngineTube, how: str) -> None:
    who, other = bench.worker(), bench.worker()
    for name in ("a", "b"):
        bench.call(tube.put, who, 0, b"x", {"utube": name})
    bench.call(tube.take, other, 0, 0)
    if how == "release":
        bench.call(tube.release, other, 0)
    elif how == "kick":
        bench.call(tube.bury, who, 0)
        assert bench.call(tube.kick, who) == 1
    else:
        bench.disconnect(other)
    assert bench.call(tube.take, who, 0, 0)[0] == 0


def test_kick_takes_buried_tasks_in_order(bench: Bench, tube: EngineTube) -> None:
    who = bench.worker()
    for pri in (2, 0, 1):
        bench.call(tube.put, who, 0, b"x", {"pri": pri, "utube": pri})
    for task_id in (2, 0, 1):
        bench.call(tube.bury, who, task_id)
    first = 1 if tube.type in TTL_DRIVERS else 0
    assert bench.call(tube.kick, who, 1) == 1
    assert [row[0] for row in tube.driver.tasks_by_state("r")] == [first]
    assert bench.call(tube.kick, who, 10) == 2
    assert bench.call(tube.kick, who, 1.5) == 0


def test_truncate_clears_owners(bench: Bench, tube: EngineTube) -> None:
    who = bench.worker()
    other = bench.create("other", "fifo")
    bench.call(other.put, who, 0, b"x")
    bench.call(other.take, who, 0, 0)
    bench.call(tube.put, who, 0, b"x")
    bench.call(tube.take, who, 0, 0)
    assert bench.call(tube.truncate, who) is EMPTY
    assert list(tube.taken.rows) == [(other.id, 0)]
    assert text(bench.call(tube.ack, who, 0)) == E1
    bench.disconnect(who)
    assert other.space.rows[0][1] == "r"
    assert not bench.reports


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_priority_then_id(bench: Bench, driver: str) -> None:
    tube, who = bench.create("t", driver), bench.worker()
    for name, pri in (("a", 5), ("b", 3), ("a", 1), ("b", 7), ("c", 1)):
        bench.call(tube.put, who, 0, f"{name}{pri}".encode(), {"utube": name, "pri": pri})
    taken = [bench.call(tube.take, who, 0, 0) for _ in range(5)]
    found = [row[-1] for row in taken if row is not EMPTY]
    if driver in UTUBES:
        assert found == [b"a1", b"c1", b"b3"]
    else:
        assert found == [b"a1", b"c1", b"b3", b"a5", b"b7"]


@pytest.mark.parametrize("driver", UTUBES)
@pytest.mark.parametrize(
    ("free", "following"),
    [("ack", 1), ("delete", 1), ("bury", 1), ("release", 0), ("release_all", 0)],
)
def test_a_busy_sub_queue_offers_nothing(
    bench: Bench, driver: str, free: str, following: int
) -> None:
    tube, who = bench.create("t", driver), bench.worker()
    for name in ("a", "a", "b"):
        bench.call(tube.put, who, 0, b"x", {"utube": name})
    assert [bench.call(tube.take, who, 0, 0)[0] for _ in range(2)] == [0, 2]
    assert bench.call(tube.take, who, 0, 0) is EMPTY
    bench.call(getattr(tube, free), *([who] if free == "release_all" else [who, 0]))
    assert bench.call(tube.take, who, 0, 0)[0] == following


@pytest.mark.parametrize("driver", UTUBES)
@pytest.mark.parametrize(
    ("value", "name"),
    [(1, "1"), ("1", "1"), (2.0, "2"), (1.5, "1.5"), (True, "true"), (None, "nil"), (b"x", "x")],
)
def test_names_of_sub_queues(bench: Bench, driver: str, value: Any, name: str) -> None:
    tube, who = bench.create("t", driver), bench.worker()
    row = bench.call(tube.put, who, 0, b"x", {"utube": value})
    assert row[-2] == name
    assert "utube" in text(bench.call(tube.put, who, 0, b"x", {"utube": [1]}))


# -- time ------------------------------------------------------------------------------------------


def raw(tube: EngineTube, task_id: int = 0) -> tuple[Any, ...]:
    """status, next_event - now of the beginning, ttl, ttr: in seconds, as the vectors give them."""
    row = tube.space.rows[task_id]
    return row[1], (row[2] - EPOCH) / SECOND, row[3] / SECOND, row[4] / SECOND


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_time_arithmetic(bench: Bench, driver: str) -> None:
    """The golden vectors of the specification's section 11."""
    tube, who = bench.create("t", driver), bench.worker()
    bench.call(tube.put, who, 0, b"x", {"ttl": 10, "ttr": 20})
    assert raw(tube, 0) == ("r", 10, 10, 20)
    bench.call(tube.put, who, 0, b"x", {"ttl": 60.1, "delay": 80})
    assert raw(tube, 1) == ("~", 80, 140.1, 3_153_600_000)
    bench.call(tube.truncate, who)
    bench.call(tube.put, who, 0, b"x", {"ttl": 10, "ttr": 2})
    bench.call(tube.take, who, 0, 0)
    bench.call(tube.touch, who, 0, 3)
    assert raw(tube) == ("t", 5, 13, 5)
    bench.call(tube.release, who, 0, {"delay": 0.3})
    assert raw(tube) == ("~", 0.3, 13.3, 5)
    bench.pass_time(0.3)
    assert raw(tube) == ("r", 13.3, 13.3, 5)


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_what_deadlines_do(bench: Bench, driver: str) -> None:
    tube, who = bench.create("t", driver), bench.worker()
    events: list[tuple[str, str]] = []
    tube.callback = lambda row, event: events.append((event, row[1]))
    bench.call(tube.put, who, 0, b"x", {"ttl": 10, "ttr": 2, "delay": 1})
    bench.pass_time(1)
    bench.call(tube.take, who, 0, 0)
    bench.pass_time(2)
    assert text(bench.call(tube.ack, who, 0)) == E1
    bench.pass_time(8)
    assert not tube.space.rows
    assert events == [
        ("put", "~"), ("delay", "r"), ("take", "t"), ("ttr", "r"), ("delete", "-"), ("ttl", "-"),
    ]  # fmt: skip
    calls = tube.statistics()["calls"]
    assert {calls[name] for name in ("delay", "ttr", "ttl", "delete")} == {1}
    assert tube.done == 1


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_ttl_runs_while_taken_and_while_buried(bench: Bench, driver: str) -> None:
    tube, who = bench.create("t", driver), bench.worker()
    for name in "ab":
        bench.call(tube.put, who, 0, b"x", {"ttl": 3, "utube": name})
    bench.call(tube.take, who, 0, 0)
    bench.call(tube.bury, who, 1)
    bench.pass_time(3)
    assert not tube.space.rows
    assert not tube.taken.rows


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_an_expired_task_is_never_delivered(bench: Bench, driver: str) -> None:
    """Even when no tick came between: a ttl of 0, or more deadlines than one tick handles."""
    tube, who = bench.create("t", driver), bench.worker()
    bench.call(tube.put, who, 0, b"x", {"ttl": 0})
    assert bench.call(tube.take, who, 0, 0) is EMPTY
    assert tube.statistics()["calls"]["ttl"] == 1
    for _ in range(3):
        bench.call(tube.put, who, 0, b"x", {"ttl": 1})
    bench.call(tube.put, who, 0, b"x", {"utube": "other"})
    bench.engine.now += 2 * SECOND
    assert bench.call(tube.take, who, 0, 0)[0] == 4
    assert len(tube.space.rows) == 1


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_no_sum_of_times_leaves_its_field(bench: Bench, driver: str) -> None:
    """A record that cannot be encoded would take the whole turn down with it."""
    tube, who = bench.create("t", driver), bench.worker()
    bench.call(tube.put, who, 0, b"x", {"pri": NEVER_US})
    for _ in range(3):
        bench.call(tube.take, who, 0, 0)
        for delta in (3_153_600_000, 1e300, float("inf")):
            row = bench.call(tube.touch, who, 0, delta)
            assert max(row[2:6]) <= NEVER_US
        bench.call(tube.release, who, 0, {"delay": 3_153_600_000})
        bench.call(tube.bury, who, 0)
        bench.call(tube.kick, who)
    assert encode_frame(bench.log, 1, bytes(16), 1, 0)


@pytest.mark.parametrize("driver", TTL_DRIVERS)
@pytest.mark.parametrize("option", ["ttl", "ttr", "delay"])
@pytest.mark.parametrize("value", [-1, float("inf"), float("nan"), "1", True, [1]])
def test_bad_times_change_nothing(bench: Bench, driver: str, option: str, value: Any) -> None:
    tube, who = bench.create("t", driver), bench.worker()
    assert option in text(bench.call(tube.put, who, 0, b"x", {option: value}))
    assert not tube.space.rows
    assert tube.statistics()["calls"]["put"] == 0
    bench.call(tube.put, who, 0, b"x", {"pri": None, "ttl": None, "delay": None})
    assert raw(tube)[2] == 3_153_600_000
