"""Everything a node tells of a task: each failure, who holds it since when, when it is due."""

from __future__ import annotations

import pytest

from tandemq_server.engine import attempts
from tandemq_server.engine.notes import FAILURES_KEPT
from tests.engine.carried import restarted
from tests.engine.engine_bench import EPOCH, SECOND, Bench, assert_replica_agrees

NOW = EPOCH / SECOND


def known(bench: Bench, name: str, task_id: int) -> dict[str, object]:
    found = bench.call(attempts.info, bench.engine.tubes[name], task_id)
    assert isinstance(found, dict), found
    return found


@pytest.mark.parametrize("snapshot", [True, False])
def test_every_failure_is_told_with_its_time_and_goes_along_as_a_dead_letter(
    snapshot: bool,
) -> None:
    bench = Bench()
    bench.start()
    bench.create("dead", "fifo")
    tube = bench.create("jobs", "fifottl", max_attempts=3, dead_letter="dead")
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x", {"headers": {"trace": "1"}})
    for number in range(2):
        bench.call(tube.take, worker, 0, 0)
        bench.call(tube.release, worker, 0, {"reason": f"no {number}"})
        bench.pass_time(1)
    expected = [{"time": NOW, "reason": "no 0"}, {"time": NOW + 1, "reason": "no 1"}]
    found = known(bench, "jobs", 0)
    assert found["failures"] == expected
    assert found["headers"] == {"trace": "1"}
    assert (found["created"], found["age"]) == (NOW, 2.0)
    assert_replica_agrees(bench)
    again = restarted(bench, snapshot)
    tube = again.engine.tubes["jobs"]
    worker = again.worker()
    again.call(tube.take, worker, 0, 0)
    again.call(tube.release, worker, 0, {"reason": "no 2"})
    letter = known(again, "dead", 0)
    assert letter["failures"] == [*expected, {"time": NOW + 2, "reason": "no 2"}]
    assert (letter["from_tube"], letter["from_attempts"]) == ("jobs", 3)
    assert letter["headers"] == {"trace": "1"}


def test_failures_kept_are_bounded_and_a_kick_begins_anew() -> None:
    bench = Bench()
    bench.start()
    tube = bench.create("jobs", "fifo", max_attempts=FAILURES_KEPT + 5)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    for number in range(FAILURES_KEPT + 5):
        bench.call(tube.take, worker, 0, 0)
        bench.call(tube.release, worker, 0, {"reason": str(number)})
    failures = known(bench, "jobs", 0)["failures"]
    assert isinstance(failures, list)
    assert [one["reason"] for one in failures] == [str(n) for n in range(5, FAILURES_KEPT + 5)]
    bench.call(tube.kick, worker)
    assert "failures" not in known(bench, "jobs", 0)
    assert_replica_agrees(bench)


def test_a_note_of_an_older_version_is_read_and_goes_on() -> None:
    bench = Bench()
    bench.start()
    tube = bench.create("jobs", "fifo", max_attempts=9)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    bench.call(tube.take, worker, 0, 0)
    old = (tube.id, 0, 1, "old", EPOCH, "", 0, 0)
    tube.notebook.space.put(old)
    assert known(bench, "jobs", 0)["failures"] == [{"time": NOW, "reason": "old"}]
    bench.call(tube.release, worker, 0, {"reason": "new"})
    found = known(bench, "jobs", 0)
    assert found["failures"] == [{"time": NOW, "reason": r} for r in ("old", "new")]
    assert found["attempts"] == 2


def test_who_holds_it_and_when_it_is_due() -> None:
    bench = Bench()
    bench.start()
    tube = bench.create("jobs", "utubettl", ttr=30)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x", {"utube": "a", "pri": 2})
    bench.call(tube.put, worker, 0, b"x", {"utube": "b", "delay": 7, "ttl": 60})
    bench.call(tube.take, worker, 0, 0)
    bench.pass_time(4)
    taken = known(bench, "jobs", 0)
    assert worker.session is not None
    assert taken["holder"] == {
        "session": worker.session.hex()[:8],
        "connection": worker.id,
        "since": NOW,
        "held": 4.0,
    }
    assert (taken["due"], taken["due_in"]) == (NOW + 30, 26.0)
    assert taken["then"] == "given to another worker"
    assert (taken["ttr"], taken["pri"], taken["utube"]) == (30.0, 2, "a")
    assert "ttl" not in taken
    delayed = known(bench, "jobs", 1)
    assert (delayed["due_in"], delayed["then"], delayed["ttl"]) == (3.0, "ready", 67.0)
    assert "holder" not in delayed
