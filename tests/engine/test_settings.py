"""cfg, tubes and statistics: checked as a whole before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.engine import admin
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import DRIVERS, Bench, text


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({"ttr": -1}, "Invalid value of ttr: -1"),
        ({"ttr": "1"}, "Invalid value of ttr: 1"),
        ({"ttr": float("inf")}, "Invalid value of ttr: inf"),
        ({"in_replicaset": 1}, "Invalid value of in_replicaset: 1"),
        ({"ttl": 1}, "Unknown option ttl"),
        ([1], "Invalid options of cfg: expected a map, got table"),
    ],
)
def test_cfg_is_all_or_nothing(bench: Bench, opts: Any, expected: str) -> None:
    mixed = {"in_replicaset": True, "ttr": 5, **opts} if type(opts) is dict else opts
    assert text(bench.call(admin.cfg, bench.engine, mixed)) == expected
    assert (bench.engine.in_replicaset, bench.engine.ttr_us) == (False, 0)
    assert not bench.engine.config.rows


def test_cfg_keeps_what_it_is_not_told(bench: Bench) -> None:
    for opts in (
        {"in_replicaset": True, "ttr": 5},
        {"ttr": 0.5},
        {"in_replicaset": None},
        {},
        None,
    ):
        bench.call(admin.cfg, bench.engine, opts)
    assert (bench.engine.in_replicaset, bench.engine.ttr_us) == (True, 500_000)
    refusal = bench.call(admin.create_tube, bench.engine, "t", "fifo", {"temporary": True})
    assert text(refusal) == "Cannot create temporary tube in replicaset mode"


def test_temporary_tubes_keep_ownership_unlogged(bench: Bench) -> None:
    for name in "ba":
        bench.create(name, "fifo", temporary=True)
    bench.call(admin.cfg, bench.engine, {"in_replicaset": True, "ttr": 1})
    assert (bench.engine.in_replicaset, bench.engine.ttr_us) == (False, 1_000_000)
    assert bench.reports == [
        "Queue: cannot set `in_replicaset = true`: temporary tube(s) exists: a, b"
    ]


def test_temporary_tubes_are_empty_elsewhere(bench: Bench) -> None:
    tube = bench.create("t", "utube", temporary=True)
    logged = len(bench.log)
    who = bench.worker()
    bench.call(tube.put, who, 0, b"x")
    bench.call(tube.take, who, 0, 0)
    assert len(bench.log) == logged
    bench.call(tube.bury, who, 0)
    assert tube.space.rows
    other = bench.replica()
    assert other.engine.tubes["t"].space.rows == {}


def test_statistics(bench: Bench, tube: EngineTube) -> None:
    """The last golden vector of the specification's section 11."""
    who = bench.worker()
    for name in "abcde":
        bench.call(tube.put, who, 0, b"x", {"utube": name})
    bench.call(tube.delete, who, 4)
    bench.call(tube.take, who, 0, 0)
    bench.call(tube.release, who, 0)
    bench.call(tube.take, who, 0, 0)
    bench.call(tube.ack, who, 0)
    bench.call(tube.bury, who, 1)
    bench.call(tube.bury, who, 2)
    bench.call(tube.bury, who, 2)
    bench.call(tube.kick, who, 1)
    bench.call(tube.take, who, 0, 0)
    found = bench.call(admin.statistics, bench.engine, "t")
    assert found["tasks"] == {
        "taken": 1, "buried": 1, "ready": 1, "done": 2, "delayed": 0, "total": 3,
    }  # fmt: skip
    assert {name: count for name, count in found["calls"].items() if count} == {
        "delete": 1, "ack": 1, "take": 3, "kick": 1, "bury": 2, "put": 5, "release": 1,
    }  # fmt: skip
    assert bench.call(admin.statistics, bench.engine) == {"t": found}
    refusal = text(bench.call(admin.statistics, bench.engine, "nosuch"))
    assert refusal.startswith("attempt to index a nil value")


@pytest.mark.parametrize("kind", DRIVERS)
def test_dropping_and_making_anew(bench: Bench, kind: str) -> None:
    tube, who = bench.create("t", kind), bench.worker()
    bench.call(tube.put, who, 0, b"x", {"ttl": 60, "utube": "a"})
    bench.call(admin.drop_tube, bench.engine, tube)
    assert not bench.engine.store.timers
    again = bench.create("t", kind)
    assert again.space.id == tube.space.id + 1
    assert bench.call(again.put, who, 0, b"x")[0] == 0


def test_ids_of_dropped_spaces_stay_spent_over_a_snapshot(bench: Bench) -> None:
    bench.create("a", "fifo")
    bench.call(admin.drop_tube, bench.engine, bench.create("b", "fifo"))
    other = Bench()
    other.engine.store.apply(bench.engine.store.catalogue(), lenient=True)
    for space_id, rows in bench.engine.store.rows_for_snapshot(100):
        for row in rows:
            other.engine.store.spaces[space_id].put(row)
    other.start()
    assert other.create("c", "fifo").space.id == bench.create("c", "fifo").space.id


def test_a_catalogue_ahead_of_the_frames_after_it(bench: Bench) -> None:
    """A snapshot begun while a turn's records were not written yet holds them twice."""
    first = bench.create("t", "fifo")
    catalogue_before = len(bench.log)
    bench.call(admin.drop_tube, bench.engine, first)
    for _ in range(2):
        tube = bench.create("t", "utube")
        bench.call(tube.put, bench.worker(), 0, b"x")
        bench.call(admin.drop_tube, bench.engine, tube)
    tube = bench.create("t", "fifottl")
    bench.call(tube.put, bench.worker(), 0, b"x", {"ttl": 60})
    other = Bench()
    other.engine.store.apply(bench.engine.store.catalogue(), lenient=True)
    for space_id, rows in bench.engine.store.rows_for_snapshot(1):
        for row in rows:
            other.engine.store.spaces[space_id].put(row)
    for record in bench.log[catalogue_before:]:
        other.engine.store.apply(record[3], lenient=True)
    assert other.engine.store.by_name["t"].rows == tube.space.rows
    assert other.engine.store.timers == bench.engine.store.timers
    other.engine.store.check()
    other.start()
    assert other.call(other.engine.tubes["t"].take, other.worker(), 0, 0)[0] == 0


def test_batches_are_all_or_nothing(bench: Bench, tube: EngineTube) -> None:
    from tandemq_server.engine import batches

    who, other = bench.worker(), bench.worker()
    items = [(b"x", {"utube": name}) for name in "abc"]
    bench.call(batches.put_many, tube, who, items)
    bench.call(batches.take_many, tube, who, 0, 2)
    bench.call(tube.take, other, 0, 0)
    before, counters = dict(tube.space.rows), dict(tube.calls)
    token = tube.taken.rows[(tube.id, 1)][4]
    for ids, expected in (
        ([0, 2], "Task was not taken"),
        ([0, 7], "Task was not taken"),
        ([0, 1, 0], "A task is in the list twice"),
        ([0, [1, token - 1]], "Task was not taken"),
        ([0, [1]], "Invalid list of tasks: expected ids or [id, token] pairs"),
        ([0, "1"], "Supplied key type of part 1 does not match index part type: expected unsigned"),
        ("01", "Invalid list of tasks: expected an array, got string"),
        ([0] * 10_001, "Too many tasks in one batch: 10001 (at most 10000)"),
    ):
        for call in (batches.ack_many, batches.release_many):
            assert text(bench.call(call, tube, who, ids)) == expected
    bad = [(b"x", None), (b"x", {"pri": -1, "utube": {}})]
    if tube.type not in ("fifo",):
        assert text(bench.call(batches.put_many, tube, who, bad))
    assert text(bench.call(batches.put_many, tube, who, [(b"x", {"prio": 1})]))
    assert (tube.space.rows, tube.calls) == (before, counters)
    assert bench.call(batches.ack_many, tube, who, [0, [1, token]]) == 2
    assert bench.call(batches.ack_many, tube, who, []) == 0


def test_one_record_for_each_call(bench: Bench, tube: EngineTube) -> None:
    from tandemq_server.engine import batches

    bench.call(admin.cfg, bench.engine, {"in_replicaset": True})
    who = bench.worker()
    items = [(b"x", {"utube": name}) for name in "abc"]
    for call in (
        (batches.put_many, tube, who, items),
        (batches.take_many, tube, who, 0, 2),
        (batches.release_many, tube, who, [0, 1]),
        (batches.take_many, tube, who, 0, 3),
        (batches.ack_many, tube, who, [0, 1]),
        (tube.bury, who, 2),
        (tube.kick, who),
        (tube.truncate, who),
    ):
        logged = len(bench.log)
        bench.call(*call)
        assert len(bench.log) == logged + 1
