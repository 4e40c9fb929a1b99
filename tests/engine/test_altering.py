"""Options of a tube that is there: changed, refused, told apart from what is wanted."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine import admin, altering, attempts
from tandemq_server.engine.clients import PENDING
from tandemq_server.engine.tube import EngineTube
from tests.engine.carried import restarted
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees, text


def jobs(kind: str = "fifottl", **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    return bench, bench.create("jobs", kind, **opts)


def alter(bench: Bench, **opts: Any) -> Any:
    return bench.call(altering.alter_tube, bench.engine, "jobs", opts)


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_tube_gets_attempts_and_a_dead_letter_tube_later(kind: str) -> None:
    bench, tube = jobs(kind)
    bench.create("dead", "fifo")
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a")
    assert alter(bench, max_attempts=1, dead_letter="dead") is tube
    bench.call(tube.take, worker, 0, 0)
    assert bench.call(tube.release, worker, 0)[1] == "-"
    assert len(bench.engine.tubes["dead"].space.rows) == 1
    assert_replica_agrees(bench)


@pytest.mark.parametrize("snapshot", [True, False])
def test_what_was_altered_outlives_a_restart(snapshot: bool) -> None:
    bench, tube = jobs(capacity=1)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"1234")
    alter(bench, capacity=None, capacity_bytes=10, overflow="wait", ttl=60, key_window=5)
    again = restarted(bench, snapshot)
    tube = again.engine.tubes["jobs"]
    assert tube.opts["ttl"] == 60
    assert tube.room is not None
    assert tube.room.used is not None
    assert tube.room.used.total == 4
    worker = again.worker()
    assert again.call(tube.put, worker, 0, b"123456")[0] == 1
    assert again.call(tube.put, worker, 1, b"1", {"timeout": 5}) is PENDING
    tube.space.check()


def test_who_waits_for_room_is_served_when_there_is_more() -> None:
    bench, tube = jobs("fifo", capacity=1, overflow="wait")
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a")
    assert bench.call(tube.put, worker, 7, b"b", {"timeout": 5}) is PENDING
    alter(bench, capacity=2)
    assert [told[0] for told in worker.told] == [7]
    assert_replica_agrees(bench)


def test_who_waits_for_a_task_goes_on_waiting() -> None:
    bench, tube = jobs()
    worker = bench.worker()
    assert bench.call(tube.take, worker, 7, 60) is PENDING
    alter(bench, ttr=5)
    bench.call(tube.put, worker, 0, b"a")
    assert worker.told[0][0] == 7
    bench.pass_time(6)
    assert bench.call(tube.peek, 0)[1] == "r"


def test_a_window_of_keys_is_the_tubes() -> None:
    bench, tube = jobs(key_window=5)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"a", {"key": "k"})
    bench.pass_time(4)
    assert bench.call(tube.put, worker, 0, b"a", {"key": "k"})[0] == 0
    bench.pass_time(2)
    assert bench.call(tube.put, worker, 0, b"a", {"key": "k"})[0] == 1
    alter(bench, key_window=60)
    bench.call(tube.put, worker, 0, b"a", {"key": "l"})
    bench.pass_time(50)
    assert bench.call(tube.put, worker, 0, b"a", {"key": "l"})[0] == 2


@pytest.mark.parametrize(
    ("opts", "expected"),
    [
        ({"temporary": True}, "Option temporary of a tube cannot be altered"),
        ({"storage_mode": "default"}, "Option storage_mode of a tube cannot be altered"),
        ({"nonsense": 1}, "Option nonsense of a tube cannot be altered"),
        ({"max_attempts": -1}, "Invalid value of max_attempts: -1 (expected 0 to 1000000)"),
        ({"dead_letter": "dead"}, "Invalid option dead_letter: it needs max_attempts"),
        ({"ttl": -1}, "ttl"),
        ({"key_window": 0}, "Invalid value of key_window: 0 (expected"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(opts: dict[str, Any], expected: str) -> None:
    bench, tube = jobs(ttl=60)
    before, records = dict(tube.opts), len(bench.log)
    assert expected in text(alter(bench, **opts))
    assert (tube.opts, len(bench.log)) == (before, records)
    assert "'nowhere' does not exist" in text(
        bench.call(altering.alter_tube, bench.engine, "nowhere", {"ttl": 1})
    )


def test_dead_letters_never_go_round() -> None:
    bench, _ = jobs()
    bench.create("b", "fifo", max_attempts=1, dead_letter="jobs")
    bench.create("c", "fifo", max_attempts=1, dead_letter="b")
    refused = alter(bench, max_attempts=1, dead_letter="c")
    assert "would go in a circle: jobs -> c -> b -> jobs" in text(refused)


def test_the_same_once_more_makes_no_record() -> None:
    bench, _ = jobs(max_attempts=3)
    records = len(bench.log)
    alter(bench, max_attempts=3)
    assert len(bench.log) == records


def test_a_tube_that_is_there_must_be_the_one_wanted() -> None:
    bench, tube = jobs(max_attempts=3, ttl=60)

    def create(kind: str, **opts: Any) -> Any:
        opts["if_not_exists"] = True
        return bench.call(admin.create_tube, bench.engine, "jobs", kind, opts)

    assert create("fifottl") is tube
    assert create("fifottl", max_attempts=3.0, ttl=60) is tube
    other = create("fifottl", max_attempts=5, capacity=7)
    assert text(other) == (
        "Tube jobs exists and differs: capacity is not set, not 7, max_attempts is 3, not 5"
        "; queue.alter_tube('jobs', ...) changes it"
    )
    assert text(create("utube")) == "Tube jobs exists and differs: its type is fifottl, not utube"
    assert "temporary is False, not True" in text(create("fifottl", temporary=True))
    alter(bench, max_attempts=5, capacity=7)
    assert create("fifottl", max_attempts=5, capacity=7) is tube


def test_a_driver_that_cannot_serve_so_keeps_what_it_had() -> None:
    from tandemq_server.drivers import BUILT_IN
    from tandemq_server.drivers.fifo import Fifo

    class Picky(Fifo):
        name = "picky"

        def __init__(self, space: Any, opts: dict[str, Any]) -> None:
            super().__init__(space, opts)
            if opts.get("capacity") == 13:
                raise RuntimeError("unlucky")

    bench = Bench({**BUILT_IN, "picky": Picky})
    bench.start()
    bench.create("jobs", "picky")
    refused = alter(bench, capacity=13)
    assert isinstance(refused, QueueError)
    assert "unlucky" in refused.text
    tube = bench.engine.tubes["jobs"]
    assert "capacity" not in tube.opts
    assert bench.call(tube.put, bench.worker(), 0, b"a")[0] == 0
    assert attempts.info(tube, 0)["state"] == "r"
    assert_replica_agrees(bench)
