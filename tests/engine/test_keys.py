"""Idempotency keys: who gets which answer, for how long, and what a restart keeps of them."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine import admin, batches
from tandemq_server.engine.clients import NIL, PENDING
from tandemq_server.engine.keys import KeyIndex
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees, text

GONE = b"\xc0"


def bench_with(kind: str = "fifo", **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    return bench, bench.create("jobs", kind, **opts)


def put(bench: Bench, tube: EngineTube, data: bytes, **opts: Any) -> Any:
    return bench.call(tube.put, bench.worker(), 0, data, opts)


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_second_put_is_answered_with_the_first_task_as_it_is_now(kind: str) -> None:
    bench, tube = bench_with(kind)
    worker = bench.worker()
    assert put(bench, tube, b"one", key="k")[:2] == (0, "r")
    logged = len(bench.log)
    assert put(bench, tube, b"two", key="k") == (0, "r", True, b"one")
    bench.call(tube.take, worker, 0, 0)
    assert put(bench, tube, b"two", key="k") == (0, "t", True, b"one")
    bench.call(tube.bury, worker, 0)
    assert put(bench, tube, b"two", key="k") == (0, "!", True, b"one")
    bench.call(tube.delete, worker, 0)
    assert put(bench, tube, b"two", key="k") == (0, "-", True, GONE)
    assert len(bench.log) == logged + 3, "a put that came again changes nothing"
    assert tube.statistics()["calls"]["put"] == 1
    assert_replica_agrees(bench)


def test_the_key_and_its_task_are_one_record() -> None:
    bench, tube = bench_with()
    before = len(bench.log)
    put(bench, tube, b"one", key="k")
    assert len(bench.log) == before + 1
    assert len(bench.log[-1][3]) == 2


def test_the_window_counts_from_the_first_put_and_ends() -> None:
    bench, tube = bench_with()
    put(bench, tube, b"one", key="k", window=10)
    bench.pass_time(9.5)
    assert put(bench, tube, b"two", key="k", window=100)[:3] == (0, "r", True)
    bench.pass_time(0.5)
    assert put(bench, tube, b"two", key="k", window=10) == (1, "r", b"two")
    bench.pass_time(10)
    assert not bench.engine.keys.logged.rows
    assert bench.engine.next_due() is None
    assert_replica_agrees(bench)


def test_an_hour_unless_said_otherwise() -> None:
    bench, tube = bench_with()
    put(bench, tube, b"one", key="k")
    bench.pass_time(3599)
    assert put(bench, tube, b"two", key="k")[0] == 0
    bench.pass_time(1)
    assert put(bench, tube, b"two", key="k")[0] == 1


def test_many_keys_end_in_few_records() -> None:
    bench, tube = bench_with()
    items = [(b"x", {"key": f"k{n}", "window": 5}) for n in range(2500)]
    bench.call(batches.put_many, tube, bench.worker(), items)
    before = len(bench.log)
    bench.pass_time(5)
    assert not bench.engine.keys.logged.rows
    assert len(bench.log) - before == 3
    assert_replica_agrees(bench)


def test_keys_of_one_moment_are_one_op_and_end_together() -> None:
    bench, tube = bench_with()
    put(bench, tube, b"single", key="z", window=5)
    items = [(b"x", {"key": key, "window": 5}) for key in "cab"]
    bench.call(batches.put_many, tube, bench.worker(), items)
    assert len(bench.log[-1][3]) == 2, "tasks and keys"
    index = bench.engine.keys.logged.indexes[0]
    assert isinstance(index, KeyIndex)
    end = bench.engine.now + 5_000_000
    bench.pass_time(1)
    bench.call(batches.put_many, tube, bench.worker(), [(b"y", {"key": "a"}), (b"y", {"key": "d"})])
    assert index.due(end - 1) == []
    assert index.due(end) == [(tube.id, key) for key in "zcab"]
    assert index.due(end + 3_600_000_000)[4:] == [(tube.id, "d")]
    assert_replica_agrees(bench)
    bench.pass_time(4)
    assert [key for _, key in bench.engine.keys.logged.rows] == ["d"]
    # Ended, not cleaned yet, and put again in a batch with a new one.
    bench.engine.now += 3_600_000_000
    bench.call(batches.put_many, tube, bench.worker(), [(b"y", {"key": "d"}), (b"y", {"key": "e"})])
    assert [(row[1], row[2]) for row in bench.engine.keys.logged.rows.values()] == [
        ("d", 5),
        ("e", 6),
    ]
    assert_replica_agrees(bench)


def test_an_ended_key_nobody_has_cleaned_yet_is_none() -> None:
    bench, tube = bench_with()
    put(bench, tube, b"one", key="k", window=1)
    bench.engine.now += 2_000_000
    assert put(bench, tube, b"two", key="k", window=1) == (1, "r", b"two")
    assert_replica_agrees(bench)


def test_keys_of_two_tubes_are_two() -> None:
    bench, tube = bench_with()
    other = bench.create("other", "fifo")
    put(bench, tube, b"one", key="k")
    assert put(bench, other, b"two", key="k") == (0, "r", b"two")


def test_a_batch_has_keys_by_row() -> None:
    bench, tube = bench_with()
    put(bench, tube, b"one", key="a")
    worker = bench.worker()
    items = [(b"two", {"key": "a"}), (b"3", {"key": "b"}), (b"4", None), (b"5", {"key": "b"})]
    before = len(bench.log)
    assert bench.call(batches.put_many, tube, worker, items, {"window": 5}) == [0, 1, 2, 1]
    assert len(bench.log) == before + 1
    assert sorted(tube.space.rows) == [0, 1, 2]
    assert bench.call(batches.put_many, tube, worker, items) == [0, 1, 3, 1]
    common = bench.call(batches.put_many, tube, worker, items, {"key": "x"})
    assert text(common) == "Invalid option key: each task of a batch has a key of its own"
    assert_replica_agrees(bench)


def test_a_full_tube_answers_what_it_knows_and_who_waits_meets_the_key() -> None:
    bench, tube = bench_with("limfifottl", capacity=1)
    tube.normalize = lambda row: (row[0], row[1], row[-1])
    worker = bench.worker()
    put(bench, tube, b"one", key="k")
    assert put(bench, tube, b"two", key="k")[:3] == (0, "r", True)
    assert put(bench, tube, b"two", key="other") is NIL
    waiting = {"key": "w", "timeout": 5}
    assert bench.call(tube.put, worker, 1, b"first", waiting) is PENDING
    assert bench.call(tube.put, worker, 2, b"second", waiting) is PENDING
    bench.call(tube.delete, worker, 0)
    bench.call(tube.delete, worker, 1)
    assert worker.told == [(1, (1, "r", b"first")), (2, (1, "-", True, GONE))]
    items = [(b"x", {"key": "m"}), (b"x", {"key": "m"})]
    assert bench.call(batches.put_many, tube, worker, items) == [2, 2]
    more = [(b"x", {"key": "m"}), (b"x", {"key": "n"})]
    refused = bench.call(batches.put_many, tube, worker, more)
    assert text(refused) == "No room for 1 tasks (capacity 1)"
    assert_replica_agrees(bench)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_keeps_keys(snapshot: bool) -> None:
    bench, tube = bench_with()
    put(bench, tube, b"one", key="k", window=10)
    bench.call(tube.take, worker := bench.worker(), 0, 0)
    bench.call(tube.ack, worker, 0)
    other = assert_replica_agrees(bench)
    if snapshot:
        other = Bench(now=bench.engine.now, log=[])
        other.engine.store.apply(bench.engine.store.catalogue(), lenient=True)
        for space_id, rows in bench.engine.store.rows_for_snapshot(3):
            for row in rows:
                other.engine.store.spaces[space_id].put(row)
    other.start()
    tube = other.engine.tubes["jobs"]
    assert put(other, tube, b"two", key="k") == (0, "-", True, GONE)
    other.pass_time(10)
    assert not other.engine.keys.logged.rows
    assert put(other, tube, b"two", key="k") == (1, "r", b"two")


def test_keys_of_a_temporary_tube_go_with_its_tasks() -> None:
    bench, tube = bench_with(temporary=True)
    before = len(bench.log)
    put(bench, tube, b"one", key="k", window=5)
    assert put(bench, tube, b"two", key="k")[:3] == (0, "r", True)
    assert len(bench.log) == before
    other = assert_replica_agrees(bench)
    other.start()
    assert put(other, other.engine.tubes["jobs"], b"two", key="k") == (0, "r", b"two")
    bench.pass_time(5)
    assert not bench.engine.keys.local.rows


def test_truncate_and_drop_forget_the_tubes_keys() -> None:
    bench, tube = bench_with()
    other = bench.create("other", "fifo")
    for one in (tube, other):
        put(bench, one, b"one", key="k")
    bench.call(tube.truncate, bench.worker())
    assert put(bench, tube, b"two", key="k") == (0, "r", b"two")
    bench.call(admin.drop_tube, bench.engine, tube)
    assert [row[0] for row in bench.engine.keys.logged.rows.values()] == [other.id]
    again = bench.create("jobs", "fifo")
    assert put(bench, again, b"three", key="k") == (0, "r", b"three")
    assert_replica_agrees(bench)


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({"key": 5}, "Invalid value of key: expected a string, got number"),
        ({"key": ""}, "Invalid value of key: expected 1 to 255 bytes"),
        ({"key": "ü" * 128}, "Invalid value of key: expected 1 to 255 bytes"),
        ({"window": 5}, "Invalid option window: it needs a key"),
        ({"key": "k", "window": 0}, "Invalid value of window: 0 (expected seconds above 0)"),
        (
            {"key": "k", "window": -1},
            "Invalid value of window: -1 (expected seconds from 0 to 3153600000)",
        ),
        ({"key": "k", "windw": 1}, "Unknown option windw"),
    ],
)
def test_mistakes_are_named_and_change_nothing(opts: dict[str, Any], expected: str) -> None:
    bench, tube = bench_with()
    assert text(put(bench, tube, b"one", **opts)) == expected
    refused = bench.call(batches.put_many, tube, bench.worker(), [(b"a", None), (b"b", opts)])
    assert text(refused) == expected
    assert not tube.space.rows
    assert not bench.engine.keys.logged.rows


def test_null_is_no_key() -> None:
    bench, tube = bench_with()
    assert put(bench, tube, b"one", key=None) == (0, "r", b"one")
    assert put(bench, tube, b"one", key=None, window=None) == (1, "r", b"one")
    assert put(bench, tube, b"one", key=b"bin")[0] == 2
    assert put(bench, tube, b"one", key="bin")[0] == 2


def test_a_driver_that_fails_leaves_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tube = bench_with()
    put(bench, tube, b"one", key="old", window=1)
    bench.engine.now += 2_000_000

    def broken(_row: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(tube, "normalize", broken)
    assert isinstance(put(bench, tube, b"two", key="old"), QueueError)
    assert isinstance(put(bench, tube, b"two", key="new"), QueueError)
    monkeypatch.undo()
    bench.engine.store.check()
    assert [row[1] for row in bench.engine.keys.logged.rows.values()] == ["old"]
    assert put(bench, tube, b"two", key="new") == (1, "r", b"two")
