"""Time in which nobody could acknowledge does not count against who holds a task or a session."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.terms import Term
from tandemq_server.engine import admin, leases, lifecycle
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import SECOND, Bench, Worker, assert_replica_agrees

TERM = Term(2, b"t" * 16, None, 1, "a", False)


def bench_with(kind: str, **options: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    bench.call(admin.cfg, bench.engine, {"ttr": 30, "in_replicaset": True})
    return bench, bench.create("t", kind, **options)


def taken(bench: Bench, tube: EngineTube, **options: Any) -> tuple[Worker, Any]:
    """A worker with a session others may claim, and a task in its hands."""
    who = bench.worker()
    bench.call(bench.engine.sessions.identify, who, None)
    bench.call(tube.put, who, 0, b"x", options or None)
    task = bench.call(tube.take, who, 0, 0)
    assert task[1] == "t", task
    return who, task[0]


def due(bench: Bench, tube: EngineTube, task_id: Any) -> float:
    """Seconds from now to the task's deadline."""
    return (tube.space.rows[task_id][2] - bench.engine.now) / SECOND


def lead(bench: Bench, away: float, frozen: float, commit: float = 0.0) -> None:
    """Another node leads `away` seconds later; `frozen` of them had no master; the wait for its
    first record is `commit` seconds long.
    """
    engine = bench.engine
    engine.stop()
    engine.now += round(away * SECOND)
    engine.frozen_us = round(frozen * SECOND)
    released = engine.promote(TERM, None, None)
    bench.collect()
    engine.now += round(commit * SECOND)
    lifecycle.serve(engine, released)
    bench.collect()


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl"])
@pytest.mark.parametrize(
    ("away", "frozen", "commit", "left"),
    [
        # Nobody led for all of it: five seconds are left, as before.
        (60, 60, 0, 5),
        # A master was there for three of them.
        (60, 57, 0, 2),
        # Nobody served before the first record of the term was committed.
        (1, 1, 4, 5),
    ],
)
def test_a_lease_has_after_a_promotion_what_it_had_before(
    kind: str, away: float, frozen: float, commit: float, left: float
) -> None:
    bench, tube = bench_with(kind)
    who, task_id = taken(bench, tube, ttr=5)
    lead(bench, away, frozen, commit)
    assert due(bench, tube, task_id) == left
    assert_replica_agrees(bench)
    other = bench.worker()
    bench.pass_time(left - 0.1)
    assert bench.call(tube.take, other, 0, 0) != (task_id, "t", b"x")
    session = who.session
    bench.call(bench.engine.sessions.identify, other, session)
    assert bench.call(tube.ack, other, task_id)[1] == "-"


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl"])
def test_a_further_term_before_anybody_was_served_is_no_sign_of_a_master(kind: str) -> None:
    """It waits for its first record, goes on alone, and ends or serves only then."""
    bench, tube = bench_with(kind)
    who, task_id = taken(bench, tube, ttr=5)
    engine = bench.engine
    engine.stop()
    engine.frozen_us = 0
    released = engine.promote(TERM, None, None)
    bench.collect()
    engine.now += 3 * SECOND
    engine.open_term(TERM._replace(number=3, id=b"u" * 16, solo=True), 3 * SECOND)
    bench.collect()
    assert due(bench, tube, task_id) == 5, "a start from this record counts from its time on"
    assert_replica_agrees(bench)
    engine.now += SECOND
    lifecycle.serve(engine, released)
    bench.collect()
    assert due(bench, tube, task_id) == 5
    other = bench.worker()
    bench.call(engine.sessions.identify, other, who.session)
    assert bench.call(tube.ack, other, task_id)[1] == "-"


def test_a_lease_that_nobody_renews_ends_all_the_same() -> None:
    bench, tube = bench_with("fifottl")
    _, task_id = taken(bench, tube, ttr=5)
    lead(bench, 60, 60)
    bench.pass_time(5)
    assert tube.space.rows[task_id][1] == "r"


@pytest.mark.parametrize("kind", ["fifottl", "utubettl"])
def test_ttl_and_delay_go_on(kind: str) -> None:
    bench, tube = bench_with(kind)
    _, held = taken(bench, tube, ttl=20, ttr=5)
    who = bench.worker()
    bench.call(tube.put, who, 0, b"y", {"ttl": 50})
    bench.call(tube.put, who, 0, b"z", {"delay": 40})
    lead(bench, 18, 18)
    # Two seconds of its life are left: the lease ends with it.
    assert due(bench, tube, held) == 2
    assert due(bench, tube, held + 1) == 32
    assert due(bench, tube, held + 2) == 22


def test_a_touched_lease_keeps_what_the_touch_gave() -> None:
    bench, tube = bench_with("fifottl")
    who, task_id = taken(bench, tube, ttr=5)
    bench.call(tube.touch, who, task_id, 10)
    lead(bench, 60, 60)
    assert due(bench, tube, task_id) == 15


@pytest.mark.parametrize("kind", ["fifottl", "limfifottl", "utubettl"])
def test_a_pause_gives_its_time_to_leases_given_before_it(kind: str) -> None:
    bench, tube = bench_with(kind)
    _, before = taken(bench, tube, ttr=5)
    since = bench.engine.now
    bench.engine.now += 4 * SECOND
    _, after = taken(bench, tube, ttr=5, **({"utube": "b"} if kind == "utubettl" else {}))
    made = len(bench.log)
    assert leases.prolong(bench.engine, 4 * SECOND, since) == 1
    bench.collect()
    assert len(bench.log) == made + 1
    assert due(bench, tube, before) == due(bench, tube, after) == 5
    assert_replica_agrees(bench)


def test_a_session_that_waits_for_its_owner_gets_the_time_of_a_pause_too() -> None:
    bench, tube = bench_with("fifo")
    who, _ = taken(bench, tube)
    session = who.session
    bench.disconnect(who)
    bench.engine.now += 25 * SECOND
    assert leases.prolong(bench.engine, 25 * SECOND) == 0
    bench.collect()
    assert bench.engine.sessions.expires_us(session) == bench.engine.now + 30 * SECOND
    assert_replica_agrees(bench)


def test_where_nothing_is_held_nothing_is_written() -> None:
    bench, tube = bench_with("fifottl")
    who = bench.worker()
    for _ in range(100):
        bench.call(tube.put, who, 0, b"x", {"ttr": 5})
    before = len(bench.log)
    assert leases.prolong(bench.engine, SECOND) == 0
    bench.collect()
    assert len(bench.log) == before


def test_its_cost_depends_on_taken_tasks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tube = bench_with("fifottl")
    who, _ = taken(bench, tube, ttr=5)
    for _ in range(1_000):
        bench.call(tube.put, who, 0, b"x", {"ttr": 5})
    asked = []
    prolong = tube.driver.prolong
    monkeypatch.setattr(
        tube.driver, "prolong", lambda *args: (asked.append(args[0]), prolong(*args))[1]
    )
    monkeypatch.setattr(tube.driver, "tasks_by_state", None)
    assert leases.prolong(bench.engine, SECOND) == 1
    assert len(asked) == 1
    bench.collect()


def test_a_driver_that_fails_keeps_no_other_lease_from_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, tube = bench_with("fifottl")
    other = bench.create("other", "fifottl")
    _, broken = taken(bench, tube, ttr=5)
    _, whole = taken(bench, other, ttr=5)

    def fail(*_args: object) -> None:
        tube.space.set(broken, 2, 0)
        raise ValueError("no")

    monkeypatch.setattr(tube.driver, "prolong", fail)
    bench.engine.now += SECOND
    assert leases.prolong(bench.engine, SECOND) == 1
    bench.collect()
    assert due(bench, tube, broken) == 4
    assert due(bench, other, whole) == 5
    assert bench.reports == [f"tube t: prolong of task {broken} failed: ValueError: no"]
    assert_replica_agrees(bench)
