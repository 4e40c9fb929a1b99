"""One suite for all five drivers: what a task may do from each state, and what callers are told.

Sections 2 and 4.2 of the behavioural specification; texts and codes of its tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engine_bench import EPOCH, SECOND, TTL_DRIVERS, UTUBES, Bench, Worker, text

from engine.clients import EMPTY
from engine.tube import Tube
from model.errors import QueueError
from model.record import encode_frame
from model.task import NEVER_US

STATES = ("r", "t", "!", "~", "missing")
E1, E2 = "Task was not taken", "Task 0 not found"


def task_in(bench: Bench, tube: Tube, state: str, owner: Worker) -> None:
    """Task 0 in a state; taken ones belong to `owner`."""
    if state == "missing":
        return
    if state == "~":
        bench.call(tube.put, owner, 0, b"x", {"delay": 9})
        return
    bench.call(tube.put, owner, 0, b"x")
    if state == "t":
        assert bench.call(tube.take, owner, 0, 0) == (0, "t", *tube.space.rows[0][2:])
    elif state == "!":
        bench.call(tube.bury, owner, 0)


def state_of(tube: Tube) -> str:
    row = tube.space.rows.get(0)
    return "missing" if row is None else row[1]


CALLS: dict[str, Callable[[Tube, Worker], tuple[Any, ...]]] = {
    "take": lambda tube, who: (tube.take, who, 0, 0),
    "ack": lambda tube, who: (tube.ack, who, 0),
    "release": lambda tube, who: (tube.release, who, 0),
    "touch": lambda tube, who: (tube.touch, who, 0, 1),
    "bury": lambda tube, who: (tube.bury, who, 0),
    "delete": lambda tube, who: (tube.delete, who, 0),
    "kick": lambda tube, who: (tube.kick, who),
}
#: call -> what becomes of each of STATES: the new state, or the error's text.
BY_OWNER = {
    "take": ("t", "t", "!", "~", "missing"),
    "ack": (E1, "missing", E1, E1, E1),
    "release": (E1, "r", E1, E1, E1),
    "touch": (E1, "t", E1, E1, E1),
    "bury": ("!", "!", "!", "!", E2),
    "delete": ("missing", "missing", "missing", "missing", E2),
    "kick": ("r", "t", "r", "~", "missing"),
}
BY_STRANGER = {
    **BY_OWNER,
    "ack": (E1,) * 5,
    "release": (E1,) * 5,
    "touch": (E1,) * 5,
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("table", [BY_OWNER, BY_STRANGER], ids=["owner", "stranger"])
def test_transitions(
    bench: Bench, tube: Tube, table: dict[str, tuple[str, ...]], call: str, state: str
) -> None:
    owner, stranger = bench.worker(), bench.worker()
    ttl = tube.type in TTL_DRIVERS
    task_in(bench, tube, state, owner)
    if state == "~" and not ttl:
        state = "r"  # a delay means nothing there
    who = owner if table is BY_OWNER else stranger
    expected = table[call][STATES.index(state)]
    outcome = bench.call(*CALLS[call](tube, who))
    if call == "touch" and state == "t" and who is owner and not ttl:
        assert text(outcome) == f"{tube.type} queue does not support touch"
        assert tube.calls["touch"] == 0
    elif expected in (E1, E2):
        assert text(outcome) == expected
        assert outcome.code == 32
        assert state_of(tube) == state
    else:
        assert not isinstance(outcome, QueueError), outcome
        assert state_of(tube) == expected
        held = (tube.id, 0) in tube.taken.rows
        assert held == (expected == "t")


def test_a_gone_task_is_shown_done(bench: Bench, tube: Tube) -> None:
    who = bench.worker()
    for method in ("ack", "delete"):
        bench.call(tube.put, who, 0, b"x")
        taken = bench.call(tube.take, who, 0, 0)
        row = bench.call(getattr(tube, method), who, taken[0])
        assert (row[0], row[1], row[-1]) == (taken[0], "-", b"x")


def test_ids_never_repeat_but_after_truncate(bench: Bench, tube: Tube) -> None:
    """Deviation from the original (its row 29): an emptied tube does not start at 0 again."""
    who = bench.worker()
    for expected in range(3):
        assert bench.call(tube.put, who, 0, b"x")[0] == expected
        bench.call(tube.take, who, 0, 0)
        bench.call(tube.ack, who, expected)
    again = Bench(log=bench.log)
    again.start()
    assert again.call(again.engine.tubes["t"].put, who, 0, b"x")[0] == 3
    bench.call(tube.truncate, who)
    assert bench.call(tube.put, who, 0, b"x")[0] == 0


@pytest.mark.parametrize("how", ["release", "kick", "disconnect"])
def test_a_task_that_comes_back_keeps_its_place(bench: Bench, tube: Tube, how: str) -> None:
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


def test_kick_takes_buried_tasks_in_order(bench: Bench, tube: Tube) -> None:
    who = bench.worker()
    for pri in (2, 0, 1):
        bench.call(tube.put, who, 0, b"x", {"pri": pri, "utube": pri})
    for task_id in (2, 0, 1):
        bench.call(tube.bury, who, task_id)
    first = 1 if tube.type in TTL_DRIVERS else 0
    assert bench.call(tube.kick, who, 1) == 1
    assert [row[0] for row in tube.driver.tasks_by_state("r")] == [first]
    assert bench.call(tube.kick, who, 10) == 2
    assert [bench.call(tube.kick, who, count) for count in (0, -3, 1.5)] == [0, 0, 0]


def test_release_all_frees_everybodys_tasks(bench: Bench, tube: Tube) -> None:
    one, two = bench.worker(), bench.worker()
    for name in "abc":
        bench.call(tube.put, one, 0, b"x", {"utube": name})
    bench.call(tube.take, one, 0, 0)
    bench.call(tube.take, two, 0, 0)
    assert bench.call(tube.release_all, one) is EMPTY
    assert tube.calls["release"] == 2
    assert not tube.taken.rows
    assert text(bench.call(tube.ack, one, 0)) == E1


def test_truncate_clears_owners(bench: Bench, tube: Tube) -> None:
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


def raw(tube: Tube, task_id: int = 0) -> tuple[Any, ...]:
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
