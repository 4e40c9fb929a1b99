"""A lease is one worker's, by one token; what fails leaves nothing behind, wherever it fails."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.terms import Term
from tandemq_server.engine import admin, attempts, batches
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import SECOND, Bench, Worker, assert_replica_agrees, text
from tests.engine.test_failing_drivers import break_method

TERM = Term(2, b"t" * 16, None, 1, "a", False)


def serving(kind: str = "fifo", **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    bench.call(admin.cfg, bench.engine, {"ttr": 30, "in_replicaset": True})
    return bench, bench.create("t", kind, **opts)


def puts(bench: Bench, tube: EngineTube, count: int) -> Worker:
    who = bench.worker()
    for _ in range(count):
        bench.call(tube.put, who, 0, b"x")
    return who


# -- whose -----------------------------------------------------------------------------------------


def test_no_token_comes_twice_in_one_moment_or_over_a_promotion() -> None:
    """Many leases begin within a microsecond; their tokens run ahead of the clock."""
    bench, tube = serving()
    who = puts(bench, tube, 9)
    bench.call(bench.engine.sessions.identify, who, None)
    seen = [bench.call(tube.take, who, 0, 0, True)[2] for _ in range(2)]
    seen += [row[2] for row in bench.call(batches.take_many, tube, who, 0, 3, 0, True)]
    seen += [row[2] for row in bench.call(batches.take_many, tube, who, 0, 2, 0, True)]
    other = bench.replica()
    other.engine.promote(TERM, None, None)
    other.engine.start()
    other.collect()
    tube = other.engine.tubes["t"]
    assert len(tube.taken.rows) == 7, "their owner may still come back"
    seen.append(other.call(tube.take, other.worker(), 0, 0, True)[2])
    seen += [row[2] for row in other.call(batches.take_many, tube, other.worker(), 0, 1, 0, True)]
    assert len(set(seen)) == 9
    assert sorted(seen) == seen


@pytest.mark.parametrize("call", [batches.ack_many, batches.release_many])
def test_a_batch_touches_nothing_of_others_and_nothing_by_an_old_token(call: Any) -> None:
    bench, tube = serving()
    who, other = puts(bench, tube, 3), bench.worker()
    mine = bench.call(tube.take, who, 0, 0, True)
    again = bench.call(tube.take, who, 0, 0, True)
    theirs = bench.call(tube.take, other, 0, 0, True)
    bench.call(tube.release, who, again[0])
    now = bench.call(tube.take, who, 0, 0, True)
    assert (now[0], now[2] != again[2]) == (again[0], True)
    before = dict(tube.space.rows)
    for ids in (
        [mine[0], theirs[0]],
        [[mine[0], mine[2]], theirs[0]],
        [[mine[0], mine[2]], [theirs[0], theirs[2]]],
        [mine[0], [again[0], again[2]]],
    ):
        assert "not taken" in text(bench.call(call, tube, who, ids))
        assert dict(tube.space.rows) == before
    assert bench.call(call, tube, who, [mine[0], [now[0], now[2]]]) == 2
    assert_replica_agrees(bench)


def test_a_dead_letter_that_somebody_works_on_stays_where_it_is() -> None:
    bench = Bench()
    bench.start()
    dead = bench.create("dead", "fifo")
    tube = bench.create("t", "fifo", dead_letter="dead", max_attempts=1)
    who = puts(bench, tube, 2)
    for _ in range(2):
        bench.call(tube.release, who, bench.call(tube.take, who, 0, 0)[0])
    held = bench.call(dead.take, who, 0, 0)[0]

    def anybody(_name: str) -> None: ...

    assert bench.call(attempts.redrive, dead, bench.worker(), None, None, anybody) == 1
    assert [(row[0], row[1]) for row in dead.space.rows.values()] == [(held, "t")]
    assert bench.call(dead.ack, who, held)[1] == "-"
    assert len(tube.space.rows) == 1


# -- whole -----------------------------------------------------------------------------------------


def test_a_deadline_that_breaks_off_changes_nothing() -> None:
    bench, tube = serving("fifottl")
    who = bench.worker()
    bench.call(tube.put, who, 0, b"x", {"ttl": 5})
    before, logged = dict(tube.space.rows), len(bench.log)
    break_method(tube, "expire")
    bench.engine.now += 5 * SECOND
    bench.call(bench.engine.tick)
    assert dict(tube.space.rows) == before
    assert len(bench.log) == logged
    assert any("dropped" in line for line in bench.reports)


def test_a_promotion_that_breaks_off_leaves_no_term(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, _ = serving()
    engine = bench.engine
    engine.stop()
    before = list(engine.store.lineage)

    def broken(_ttr: int) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(engine.sessions, "restart", broken)
    with pytest.raises(RuntimeError):
        engine.promote(TERM, 60, None)
    assert engine.store.lineage == before
    assert (engine.store.ops, engine.store.undo, engine.records) == ([], [], [])
    assert engine.ttr_s == 30


def test_nothing_of_a_state_that_was_replaced_is_written_behind_the_new_one() -> None:
    bench, tube = serving()
    tube.put(bench.worker(), 0, b"of the turn at hand")
    bench.engine.stop()
    bench.engine.reset()
    assert bench.engine.take_records() == []
    assert bench.engine.lsn == 0
