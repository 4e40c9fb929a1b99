"""`finish`: ack and puts in one record, or nothing at all."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.record import KIND_FINISH
from tandemq_server.engine import pause
from tandemq_server.engine.clients import PENDING
from tandemq_server.engine.finish import finish
from tandemq_server.engine.tube import EngineTube
from tests.engine.carried import restarted
from tests.engine.engine_bench import DRIVERS, Bench, Worker, assert_replica_agrees, text


def taken(kind: str = "fifo", **opts: Any) -> tuple[Bench, EngineTube, Worker]:
    """A tube with one task, taken."""
    bench = Bench()
    bench.start()
    tube = bench.create("jobs", kind, **opts)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"page")
    bench.call(tube.take, worker, 0, 0)
    return bench, tube, worker


@pytest.mark.parametrize("kind", DRIVERS)
def test_ack_and_puts_are_one_record(kind: str) -> None:
    bench, tube, worker = taken(kind)
    other = bench.create("next", "utubettl")
    before = len(bench.log)
    puts = [
        (other, b"link 1", {"utube": "host", "pri": 3}),
        (tube, b"again", None),
        (other, b"link 2", {"delay": 5}),
    ]
    assert bench.call(finish, tube, worker, 0, puts) == [0, 1, 1]
    assert len(bench.log) == before + 1
    assert bench.log[-1][1] == KIND_FINISH
    assert [(row[0], row[1]) for row in tube.space.rows.values()] == [(1, "r")]
    assert [(row[1], row[5], row[7]) for row in other.space.rows.values()] == [
        ("r", 3, "host"),
        ("~", 0, "nil"),
    ]
    assert not bench.engine.taken.rows
    assert tube.statistics()["calls"]["ack"] == 1
    assert tube.statistics()["tasks"]["done"] == 1
    assert other.statistics()["calls"]["put"] == 2
    last = restarted(bench, snapshot=False)
    assert last.engine.tubes["next"].space.rows == other.space.rows


def test_whoever_waits_is_served_and_callbacks_hear_of_it() -> None:
    bench, tube, worker = taken("limfifottl", capacity=1)
    other = bench.create("next", "fifo")
    waiting = bench.worker()
    heard: list[tuple[str, str]] = []
    tube.callback = lambda row, event: heard.append(("jobs", event))
    other.callback = lambda row, event: heard.append(("next", event))
    assert bench.call(tube.put, waiting, 1, b"in line", {"timeout": 5}) is PENDING
    assert bench.call(other.take, waiting, 2, 5) is PENDING
    bench.call(finish, tube, worker, 0, [(other, b"x", None)])
    assert sorted(ticket for ticket, _ in waiting.told) == [1, 2]
    assert heard[:2] == [("jobs", "delete"), ("next", "put")]
    assert_replica_agrees(bench)


def test_a_refusal_changes_nothing() -> None:
    bench, tube, worker = taken(max_attempts=3)
    full = bench.create("full", "fifo", capacity=1)
    held = bench.create("held", "fifo")
    bench.call(pause.change, held, worker, "puts", pause=True)
    strict = bench.create("strict", "fifottl")
    before = len(bench.log)

    def refused(puts: list[Any], task_id: Any = 0, token: Any = None, who: Any = worker) -> str:
        return text(bench.call(finish, tube, who, task_id, puts, token))

    ok = (strict, b"x", None)
    assert refused([ok], who=bench.worker()) == "Task was not taken"
    assert refused([ok], token=1) == "Task was not taken"
    assert refused([ok], task_id=5) == "Task was not taken"
    two = [ok, (full, b"1", None), (full, b"2", None)]
    assert refused(two) == "Tube full: No room for 2 tasks (capacity 1)"
    assert "are paused" in refused([ok, (held, b"x", None)])
    assert "Invalid value of ttl" in refused([ok, (strict, b"x", {"ttl": -1})])
    assert refused([ok, (strict, b"x", {"tll": 1})]) == "Unknown option tll"
    assert "Too many tasks" in refused([ok] * 10_001)
    assert len(bench.log) == before
    assert tube.space.rows[0][1] == "t"
    assert not strict.space.rows
    assert bench.call(finish, tube, worker, 0, [], bench.engine.last_delivery) == []
    assert not tube.space.rows
    assert_replica_agrees(bench)


def test_a_task_makes_room_for_what_follows_in_its_own_tube() -> None:
    bench, tube, worker = taken(capacity=1)
    assert bench.call(finish, tube, worker, 0, [(tube, b"next page", None)]) == [1]
    assert_replica_agrees(bench)


def test_keys_keep_a_repeated_step_from_putting_twice() -> None:
    bench, tube, worker = taken()
    other = bench.create("next", "fifo", capacity=1)
    bench.call(other.put, worker, 0, b"first", {"key": "step"})
    keyed = (other, b"second", {"key": "step"})
    assert bench.call(finish, tube, worker, 0, [keyed, keyed]) == [0, 0]
    assert len(other.space.rows) == 1
    assert not tube.space.rows
    assert_replica_agrees(bench)


def test_a_target_that_fails_takes_the_ack_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tube, worker = taken("utube")
    other = bench.create("next", "fifo")
    monkeypatch.setattr(other.driver, "put", lambda *_: 1 / 0)
    refused = bench.call(finish, tube, worker, 0, [(tube, b"x", None), (other, b"x", None)])
    assert "Internal error" in text(refused)
    monkeypatch.undo()
    assert [row[1] for row in tube.space.rows.values()] == ["t"]
    bench.engine.store.check()
    assert bench.call(tube.ack, worker, 0)[1] == "-"
    assert_replica_agrees(bench)
