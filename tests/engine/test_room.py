"""Capacity by tasks and bytes: who is refused, who waits, what is counted after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.engine import admin, batches
from tandemq_server.engine.clients import NIL, PENDING
from tandemq_server.engine.tube import EngineTube
from tests.engine.carried import restarted
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees, text


def jobs(kind: str = "fifo", **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    return bench, bench.create("jobs", kind, **opts)


@pytest.mark.parametrize("kind", [kind for kind in DRIVERS if kind != "limfifottl"])
def test_a_full_tube_says_so(kind: str) -> None:
    bench, tube = jobs(kind, capacity=2)
    worker = bench.worker()
    for data in (b"a", b"b"):
        bench.call(tube.put, worker, 0, data)
    expected = "Tube jobs is full: 2 tasks (capacity 2)"
    assert text(bench.call(tube.put, worker, 0, b"c")) == expected
    assert text(bench.call(tube.put, worker, 0, b"c", {"timeout": 5})) == expected
    assert text(bench.call(tube.put, worker, 0, b"c", {"key": "k"})) == expected
    refused = bench.call(batches.put_many, tube, worker, [(b"c", None)])
    assert text(refused) == "No room for 1 tasks (capacity 2)"
    bench.call(tube.delete, worker, 0)
    assert bench.call(tube.put, worker, 0, b"c")[0] == 2
    assert_replica_agrees(bench)


@pytest.mark.parametrize("kind", DRIVERS)
def test_bytes_are_counted_and_whoever_waits_is_served(kind: str) -> None:
    bench, tube = jobs(kind, capacity_bytes=10, overflow="wait")
    worker = bench.worker()
    assert bench.call(batches.put_many, tube, worker, [(b"1234", None), (b"12345", None)]) == [0, 1]
    assert bench.call(tube.put, worker, 0, b"1")[0] == 2
    assert bench.call(tube.put, worker, 0, b"12") is NIL
    assert bench.call(tube.put, worker, 1, b"12", {"timeout": 5}) is PENDING
    assert bench.call(tube.put, worker, 2, b"123456", {"timeout": 5}) is PENDING
    never = bench.call(tube.put, worker, 3, b"12345678901", {"timeout": 5})
    assert text(never) == "A task of 11 bytes never fits tube jobs (capacity_bytes 10)"
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.ack, worker, 0)
    assert [ticket for ticket, _ in worker.told] == [1], "the second in line needs more room"
    bench.call(tube.delete, worker, 1)
    assert [(ticket, task[0]) for ticket, task in worker.told] == [(1, 3), (2, 4)]
    bench.call(tube.truncate, worker)
    assert bench.call(tube.put, worker, 0, b"1234567890")[0] == 0
    assert_replica_agrees(bench)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_counts_the_same(snapshot: bool) -> None:
    bench, tube = jobs("utubettl", capacity=5, capacity_bytes=10)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"1234567")
    bench.call(tube.take, worker, 0, 0)
    other = restarted(bench, snapshot)
    tube = other.engine.tubes["jobs"]
    refused = other.call(tube.put, other.worker(), 0, b"1234")
    assert text(refused) == "Tube jobs is full: 1 tasks of 7 bytes (capacity 5, capacity_bytes 10)"
    many = other.call(batches.put_many, tube, other.worker(), [(b"12", None), (b"12", None)])
    assert text(many) == "No room for 2 tasks of 4 bytes (capacity 5, capacity_bytes 10)"
    assert other.call(tube.put, other.worker(), 0, b"123")[0] == 1
    assert_replica_agrees(other)


def test_limfifottl_may_reject_too() -> None:
    bench, tube = jobs("limfifottl", capacity=1, overflow="reject")
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a")
    assert text(bench.call(tube.put, worker, 0, b"b", {"timeout": 5})).startswith("Tube jobs is")


def test_dead_letters_always_find_room() -> None:
    bench = Bench()
    bench.start()
    dead = bench.create("dead", "fifo", capacity=1)
    tube = bench.create(
        "jobs", "fifo", max_attempts=1, dead_letter="dead", capacity=2, overflow="wait"
    )
    worker = bench.worker()
    bench.call(dead.put, worker, 0, b"full")
    for data in (b"a", b"b"):
        bench.call(tube.put, worker, 0, data)
    assert bench.call(tube.put, worker, 9, b"c", {"timeout": 5}) is PENDING
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.release, worker, 0)
    assert len(dead.space.rows) == 2
    assert worker.told[0][1][0] == 2, "the task that left made room"
    assert_replica_agrees(bench)


def test_a_failed_put_leaves_the_count_right(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tube = jobs(capacity_bytes=4)
    monkeypatch.setattr(tube, "normalize", lambda _row: 1 / 0)
    bench.call(tube.put, bench.worker(), 0, b"1234")
    monkeypatch.undo()
    bench.engine.store.check()
    assert bench.call(tube.put, bench.worker(), 0, b"1234")[0] == 0


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({"capacity": -1}, "Invalid value of capacity: -1 (expected 0 to"),
        ({"capacity": "5"}, "Invalid value of capacity: 5 (expected 0 to"),
        ({"capacity_bytes": 0.5}, "Invalid value of capacity_bytes: 0.5"),
        ({"capacity": 1, "overflow": "drop"}, "overflow: drop (expected reject or wait)"),
        ({"overflow": "wait"}, "Invalid option overflow: it needs capacity or capacity_bytes"),
    ],
)
def test_bad_options_are_named(opts: dict[str, Any], expected: str) -> None:
    bench = Bench()
    bench.start()
    assert expected in text(bench.call(admin.create_tube, bench.engine, "jobs", "fifo", opts))


def test_a_capacity_from_before_that_says_nothing_limits_nothing() -> None:
    """Once any value was accepted, and ignored, by types that had no capacity."""
    bench, _ = jobs()
    engine = bench.engine
    row = engine.catalogue.rows["jobs"]
    engine.catalogue.set("jobs", 4, {**row[4], "capacity": "many"})
    engine.commit(17, None)
    bench.collect()
    other = restarted(bench, snapshot=False)
    assert other.call(other.engine.tubes["jobs"].put, other.worker(), 0, b"x")[0] == 0
