"""Paused tubes: what is refused, what goes on, who is woken, what a restart keeps."""

from __future__ import annotations

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine import admin, batches, grants, pause
from tandemq_server.engine.clients import EMPTY, PENDING
from tandemq_server.engine.tube import EngineTube
from tests.engine.carried import restarted
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees, text

REFUSED = "Puts into tube jobs are paused until queue.tube.jobs:resume('puts')"


def jobs(kind: str = "fifo", **opts: object) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    return bench, bench.create("jobs", kind, **opts)


@pytest.mark.parametrize("kind", DRIVERS)
def test_puts_are_refused_and_the_rest_goes_on(kind: str) -> None:
    bench, tube = jobs(kind)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a", {"key": "k"})
    state = bench.call(pause.change, tube, worker, "puts", pause=True)
    assert state == {"puts": True, "takes": False}
    assert tube.statistics()["paused"] == state
    assert text(bench.call(tube.put, worker, 0, b"b")) == REFUSED
    assert text(bench.call(tube.put, worker, 0, b"b", {"utube": "x"})) == REFUSED
    assert text(bench.call(batches.put_many, tube, worker, [(b"b", None)])) == REFUSED
    assert bench.call(tube.put, worker, 0, b"b", {"key": "k"})[2] is True
    assert bench.call(tube.take, worker, 0, 0)[1] == "t"
    assert bench.call(tube.release, worker, 0)[1] == "r"
    assert list(tube.space.rows) == [0]
    bench.call(pause.change, tube, worker, "puts", pause=False)
    assert "paused" not in tube.statistics()
    assert bench.call(tube.put, worker, 0, b"b")[0] == 1
    assert_replica_agrees(bench)


@pytest.mark.parametrize("kind", DRIVERS)
def test_paused_takes_find_nothing_and_go_on_when_resumed(kind: str) -> None:
    bench, tube = jobs(kind)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a")
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.put, worker, 0, b"b")
    bench.call(pause.change, tube, worker, "takes", pause=True)
    other = bench.worker()
    assert bench.call(tube.take, other, 0, 0) is EMPTY
    assert bench.call(batches.take_many, tube, other, 0, 5) == []
    assert bench.call(tube.take, other, 1, 5) is PENDING
    assert bench.call(tube.take, other, 2, 100) is PENDING
    assert bench.call(tube.ack, worker, 0)[1] == "-", "what is taken can be finished"
    bench.call(tube.put, worker, 0, b"c")
    bench.pass_time(5)
    assert other.told == [(1, EMPTY)]
    bench.call(pause.change, tube, worker, None, pause=False)
    assert [(ticket, task[0]) for ticket, task in other.told[1:]] == [(2, 1)]
    assert_replica_agrees(bench)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_keeps_it(snapshot: bool) -> None:
    bench, tube = jobs()
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a")
    bench.call(pause.change, tube, worker, None, pause=True)
    other = restarted(bench, snapshot)
    tube = other.engine.tubes["jobs"]
    assert text(other.call(tube.put, other.worker(), 0, b"b")) == REFUSED
    assert other.call(tube.take, other.worker(), 0, 0) is EMPTY
    assert other.call(pause.change, tube, worker, "takes", pause=False) == {
        "puts": True,
        "takes": False,
    }
    last = restarted(other, snapshot)
    tube = last.engine.tubes["jobs"]
    assert last.call(tube.take, last.worker(), 0, 0)[0] == 0
    assert text(last.call(tube.put, last.worker(), 0, b"b")) == REFUSED
    last.call(pause.change, tube, worker, None, pause=False)
    assert tube.driver is tube.inner
    assert not last.engine.pauses.space.rows


def test_saying_it_twice_changes_and_logs_nothing() -> None:
    bench, tube = jobs()
    worker = bench.worker()
    bench.call(pause.change, tube, worker, None, pause=False)
    bench.call(pause.change, tube, worker, "puts", pause=True)
    before = len(bench.log)
    bench.call(pause.change, tube, worker, "puts", pause=True)
    assert len(bench.log) == before
    refused = bench.call(pause.change, tube, worker, "gets", pause=True)
    assert text(refused) == "Invalid argument: gets (expected 'puts', 'takes' or nothing for both)"


def test_a_put_that_waits_for_room_is_told() -> None:
    bench, tube = jobs("limfifottl", capacity=1)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a")
    assert bench.call(tube.put, worker, 1, b"b", {"timeout": 9}) is PENDING
    bench.call(pause.change, tube, worker, "puts", pause=True)
    ((ticket, refusal),) = worker.told
    assert (ticket, text(refusal)) == (1, REFUSED)
    assert bench.engine.next_due() is None
    assert text(bench.call(tube.put, worker, 1, b"b", {"timeout": 9})) == REFUSED


def test_dead_letters_enter_a_paused_tube_and_a_new_tube_is_not_paused() -> None:
    bench = Bench()
    bench.start()
    dead = bench.create("dead", "fifo")
    tube = bench.create("jobs", "fifo", max_attempts=1, dead_letter="dead")
    worker = bench.worker()
    bench.call(pause.change, dead, worker, None, pause=True)
    bench.call(tube.put, worker, 0, b"a")
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.release, worker, 0)
    assert list(dead.space.rows) == [0]
    bench.call(admin.drop_tube, bench.engine, tube)
    bench.call(admin.drop_tube, bench.engine, dead)
    assert not bench.engine.pauses.space.rows
    again = bench.create("dead", "fifo")
    assert bench.call(again.put, worker, 0, b"a")[0] == 0
    assert_replica_agrees(bench)


def test_a_failed_call_takes_the_pause_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tube = jobs()

    def broken(*_args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(bench.engine, "commit", broken)
    assert isinstance(bench.call(pause.change, tube, bench.worker(), None, pause=True), QueueError)
    monkeypatch.undo()
    assert tube.driver is tube.inner
    assert bench.call(tube.put, bench.worker(), 0, b"a")[0] == 0


def test_the_right_to_manage_is_not_the_right_to_put() -> None:
    bench, tube = jobs()
    bench.call(grants.grant, bench.engine, tube, "ops", {"manage": True})
    calls = {call for user, call in bench.engine.grants.rows if user == "ops"}
    managed = {
        f"queue.tube.jobs:{m}" for m in ("pause", "resume", "redrive", "bulk", "list", "info")
    }
    assert managed < calls
    assert not calls & {"queue.tube.jobs:put", "queue.tube.jobs:take", "queue.tube.jobs:truncate"}
    bench.call(grants.grant, bench.engine, tube, "worker", {"call": True})
    calls = {call for user, call in bench.engine.grants.rows if user == "worker"}
    assert calls & managed == {"queue.tube.jobs:list", "queue.tube.jobs:info"}
    assert "queue.tube.jobs:finish" in calls
