"""Attempts, retries and dead letters: what counts, where a task ends up, what survives."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq.model.errors import QueueError
from tandemq_server.engine import admin, attempts, batches
from tandemq_server.engine.tube import EngineTube
from tests.engine.carried import restarted
from tests.engine.engine_bench import (
    DRIVERS,
    SECOND,
    TTL_DRIVERS,
    Bench,
    assert_replica_agrees,
    text,
)

ABOUT = {
    "id",
    "state",
    "attempts",
    "max_attempts",
    "reason",
    "time",
    "from_tube",
    "from_id",
    "from_attempts",
    "headers",
}


def jobs(kind: str = "fifo", **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    return bench, bench.create("jobs", kind, **opts)


def dead_and_jobs(
    kind: str = "fifo", dead: str = "fifo", **opts: Any
) -> tuple[Bench, EngineTube, EngineTube]:
    bench = Bench()
    bench.start()
    letters = bench.create("dead", dead)
    return bench, bench.create("jobs", kind, **{"dead_letter": "dead"} | opts), letters


def anybody(_name: str) -> None:
    """Everybody may put everywhere."""


def fail(bench: Bench, tube: EngineTube, times: int = 1, **opts: Any) -> Any:
    """Take and release, so many times; the last outcome."""
    worker = bench.worker()
    for _ in range(times):
        task = bench.call(tube.take, worker, 0, 0)
        outcome = bench.call(tube.release, worker, task[0], opts)
    return outcome


def info(bench: Bench, tube: EngineTube, task_id: int) -> Any:
    """What attempts.py tells; the failures and all else stand in test_facts.py."""
    found = bench.call(attempts.info, tube, task_id)
    return {name: value for name, value in found.items() if name in ABOUT}


def places(bench: Bench) -> list[tuple[str, int, str]]:
    """Every task there is."""
    tubes = bench.engine.tubes.values()
    return [(tube.name, row[0], row[1]) for tube in tubes for row in tube.space.rows.values()]


@pytest.mark.parametrize("kind", DRIVERS)
def test_a_task_that_failed_too_often_becomes_a_dead_letter_in_one_record(kind: str) -> None:
    bench, tube, dead = dead_and_jobs(kind, kind, max_attempts=3)
    bench.call(tube.put, bench.worker(), 0, b"poison")
    assert fail(bench, tube, 2)[1] == "r"
    before = len(bench.log)
    assert fail(bench, tube, reason="bad input")[1] == "-"
    assert len(bench.log) == before + 2, "a take and a release"
    assert places(bench) == [("dead", 0, "r")]
    assert info(bench, dead, 0) == {
        "id": 0,
        "state": "r",
        "reason": "bad input",
        "time": bench.engine.now / SECOND,
        "from_tube": "jobs",
        "from_id": 0,
        "from_attempts": 3,
    }
    worker = bench.worker()
    assert bench.call(dead.take, worker, 0, 0)[-1] == b"poison"
    bench.call(dead.ack, worker, 0)
    assert not bench.engine.notes[0].space.rows
    counted = tube.statistics()
    assert (counted["calls"]["release"], counted["calls"]["delete"]) == (3, 1)
    assert counted["tasks"]["done"] == 1
    assert_replica_agrees(bench)


@pytest.mark.parametrize("kind", DRIVERS)
def test_without_a_dead_letter_tube_it_is_buried_and_a_kick_begins_anew(kind: str) -> None:
    bench, tube = jobs(kind, max_attempts=2)
    bench.call(tube.put, bench.worker(), 0, b"poison")
    assert fail(bench, tube, 2)[1] == "!"
    assert tube.statistics()["calls"]["bury"] == 1
    assert info(bench, tube, 0)["attempts"] == 2
    assert bench.call(tube.kick, bench.worker()) == 1
    assert info(bench, tube, 0) == {"id": 0, "state": "r", "attempts": 0, "max_attempts": 2}
    assert fail(bench, tube)[1] == "r"
    assert fail(bench, tube)[1] == "!"
    assert_replica_agrees(bench)


@pytest.mark.parametrize("kind", TTL_DRIVERS)
def test_ttr_counts_as_an_attempt(kind: str) -> None:
    bench, tube, dead = dead_and_jobs(kind, max_attempts=2, ttr=1)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"slow")
    for _ in range(2):
        assert bench.call(tube.take, worker, 0, 0)[0] == 0
        bench.pass_time(1)
    assert places(bench) == [("dead", 0, "r")]
    assert info(bench, dead, 0)["reason"] == "ttr expired"
    assert not bench.engine.taken.rows
    assert tube.statistics()["calls"]["ttr"] == 2
    assert_replica_agrees(bench)


def test_a_lost_session_counts_as_an_attempt() -> None:
    bench, tube, dead = dead_and_jobs(max_attempts=1)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"killer")
    bench.call(tube.take, worker, 0, 0)
    bench.disconnect(worker)
    assert places(bench) == [("dead", 0, "r")]
    assert info(bench, dead, 0)["reason"] == "session lost"
    assert_replica_agrees(bench)


def test_so_does_a_restart_of_the_node() -> None:
    bench, tube, _ = dead_and_jobs(max_attempts=2)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    for expected in ("jobs", "dead"):
        bench.call(bench.engine.tubes["jobs"].take, bench.worker(), 0, 0)
        bench = restarted(bench, snapshot=False)
        assert [place[0] for place in places(bench)] == [expected]
    assert "stopped serving" in info(bench, bench.engine.tubes["dead"], 0)["reason"]


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_keeps_the_count_and_the_reason(snapshot: bool) -> None:
    bench, tube, _ = dead_and_jobs(max_attempts=3)
    for data in (b"a", b"b"):
        bench.call(tube.put, bench.worker(), 0, data)
    fail(bench, tube, 2, reason="tired")
    other = restarted(bench, snapshot)
    tube, dead = other.engine.tubes["jobs"], other.engine.tubes["dead"]
    assert info(other, tube, 0)["attempts"] == 2
    fail(other, tube, reason="dead tired")
    last = restarted(other, snapshot)
    dead = last.engine.tubes["dead"]
    assert places(last) == [("dead", 0, "r"), ("jobs", 1, "r")]
    assert info(last, dead, 0)["reason"] == "dead tired"
    assert last.call(attempts.redrive, dead, last.worker(), None, None, anybody) == 1
    assert places(last) == [("jobs", 1, "r"), ("jobs", 2, "r")]
    assert info(last, last.engine.tubes["jobs"], 2)["attempts"] == 0
    assert_replica_agrees(last)


def test_a_delivery_can_tell_its_attempt() -> None:
    bench, tube = jobs("fifottl", max_attempts=0)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    first = bench.call(tube.take, worker, 0, 0, "info")
    assert first[:2] == (0, "t")
    assert first[2] == {"token": bench.engine.last_delivery, "attempts": 1}
    assert first[3] == b"x"  # for ever: no ttr is told
    bench.call(tube.release, worker, 0, {"reason": "once more"}, first[2]["token"])
    (second,) = bench.call(batches.take_many, tube, worker, 0, 1, 0, "info")
    assert second[2]["attempts"] == 2
    assert second[2]["reason"] == "once more"
    assert bench.call(tube.ack, worker, 0)[1] == "-"
    assert not tube.notes
    plain = bench.create("plain", "fifo")
    bench.call(plain.put, worker, 0, b"x")
    assert set(bench.call(plain.take, worker, 0, 0, "info")[2]) == {"token"}
    assert_replica_agrees(bench)


def test_a_delivery_tells_what_its_tube_will_do() -> None:
    bench, tube = jobs("utubettl", max_attempts=3, retry_delay=1, ttr=90)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    told = bench.call(tube.take, worker, 0, 0, "info")[2]
    expected = {"attempts": 1, "max_attempts": 3, "retry": True, "retry_within": 1.0, "ttr": 90.0}
    assert told == {"token": bench.engine.last_delivery, **expected}
    bench.call(tube.touch, worker, 0, 10)
    bench.call(tube.release, worker, 0, {"delay": 0})
    again = bench.call(tube.take, worker, 0, 0, "info")[2]
    assert (again["ttr"], again["attempts"]) == (100.0, 2), "a touch makes the ttr itself longer"


def test_a_bury_with_a_token_is_for_the_owner_alone() -> None:
    bench, tube = jobs(max_attempts=9)
    worker, other = bench.worker(), bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    token = bench.call(tube.take, worker, 0, 0, True)[2]
    for who, given in ((worker, token - 1), (other, token)):
        assert text(bench.call(tube.bury, who, 0, None, given)) == "Task was not taken"
    assert info(bench, tube, 0) == {"id": 0, "state": "t", "attempts": 1, "max_attempts": 9}
    assert bench.call(tube.bury, worker, 0, {"reason": "odd"}, token)[1] == "!"
    assert text(bench.call(tube.bury, worker, 0, None, token)) == "Task was not taken"
    assert bench.call(tube.bury, other, 0)[1] == "!", "without a token it is anybody's"
    assert_replica_agrees(bench)


def test_a_first_success_leaves_no_note() -> None:
    bench, tube = jobs(max_attempts=5)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.ack, worker, 0)
    assert not any(
        op[1] == bench.engine.notes[0].space.id for _, _, _, ops in bench.log for op in ops
    )


def test_batches_count_and_forget() -> None:
    bench, tube, _ = dead_and_jobs(max_attempts=2)
    worker = bench.worker()
    bench.call(batches.put_many, tube, worker, [(b"x", None)] * 4)
    bench.call(batches.take_many, tube, worker, 0, 4)
    assert bench.call(batches.release_many, tube, worker, [0, 1, 2], {"reason": "all"}) == 3
    assert {note[3] for note in tube.notes.values()} == {"all"}
    bench.call(batches.take_many, tube, worker, 0, 4)
    assert bench.call(batches.ack_many, tube, worker, [0, 3]) == 2
    assert bench.call(batches.release_many, tube, worker, [1, 2]) == 2
    assert places(bench) == [("dead", 0, "r"), ("dead", 1, "r")]
    assert not tube.notes
    assert_replica_agrees(bench)


def test_whoever_waits_at_the_dead_letter_tube_is_served() -> None:
    bench, tube, dead = dead_and_jobs(max_attempts=1)
    worker = bench.worker()
    bench.call(dead.take, worker, 7, 60)
    seen: list[tuple[int, str]] = []
    dead.callback = lambda row, event: seen.append((row[0], event))
    bench.call(tube.put, worker, 0, b"x")
    fail(bench, tube)
    assert worker.told == [(7, (0, "t", b"x"))]
    assert seen == [(0, "put"), (0, "take")]
    assert_replica_agrees(bench)


@pytest.mark.parametrize("kind", TTL_DRIVERS)
def test_retries_wait_longer_each_time_up_to_the_cap(kind: str) -> None:
    bench, tube = jobs(
        kind, retry_delay=1, retry_factor=3, retry_delay_max=10, retry_jitter=0, max_attempts=0
    )
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    for expected in (1, 3, 9, 10, 10):
        assert fail(bench, tube)[1] == "~"
        bench.pass_time(expected - 0.01)
        assert tube.space.rows[0][1] == "~"
        bench.pass_time(0.01)
        assert tube.space.rows[0][1] == "r"
    assert fail(bench, tube, delay=0)[1] == "r", "the worker's own word goes first"
    assert fail(bench, tube, delay=2)[1] == "~"
    assert_replica_agrees(bench)


@pytest.mark.parametrize("kind", TTL_DRIVERS)
def test_what_chance_said_is_in_the_log(kind: str) -> None:
    bench, tube = jobs(kind, retry_delay=10, retry_jitter=0.5, ttr=1)
    asked: list[float] = []
    bench.engine.chance = lambda: asked.append(1) or 0.5  # type: ignore[func-returns-value]
    bench.call(tube.put, bench.worker(), 0, b"x")
    fail(bench, tube)
    assert tube.space.rows[0][2] - bench.engine.now == 7.5 * SECOND
    other = assert_replica_agrees(bench)
    other.start()
    assert other.engine.tubes["jobs"].space.rows == tube.space.rows
    bench.pass_time(7.5)
    bench.call(tube.take, bench.worker(), 0, 0)
    bench.pass_time(1)
    assert tube.space.rows[0][1] == "~", "a ttr that comes waits as well"
    assert len(asked) == 2
    assert_replica_agrees(bench)


def test_redrive_by_count_to_another_tube_and_what_it_leaves_alone() -> None:
    bench, tube, dead = dead_and_jobs("utubettl", "utubettl", max_attempts=1)
    other = bench.create("other", "fifo")
    worker = bench.worker()
    for n in range(4):
        bench.call(tube.put, worker, 0, b"%d" % n, {"utube": f"u{n}", "pri": 9 - n})
    fail(bench, tube, 4)
    bench.call(dead.put, worker, 0, b"not a letter")
    bench.call(dead.take, worker, 0, 0)
    assert [row[1] for row in dead.space.rows.values()].count("t") == 1
    before = len(bench.log)
    assert bench.call(attempts.redrive, dead, worker, 1, None, anybody) == 1
    assert len(bench.log) == before + 1
    (row,) = tube.space.rows.values()
    assert (row[5], row[7]) == (6, "u3")
    assert bench.call(attempts.redrive, dead, worker, None, "other", anybody) == 3
    assert len(other.space.rows) == 3
    assert {row[-1] for row in dead.space.rows.values()} >= {b"not a letter"}
    assert bench.call(attempts.redrive, dead, worker, None, None, anybody) == 0
    assert_replica_agrees(bench)


def test_redrive_refuses_by_name() -> None:
    bench, tube, dead = dead_and_jobs(max_attempts=1)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    fail(bench, tube)

    def nobody(name: str) -> None:
        raise QueueError(42, f"Execute access to function '{name}' is denied")

    assert "denied" in text(bench.call(attempts.redrive, dead, worker, None, None, nobody))
    refused = bench.call(attempts.redrive, dead, worker, 10_001, None, anybody)
    assert text(refused) == "Invalid number of tasks to redrive: 10001 (expected 0 to 10000)"
    assert "Tube none, where" in text(
        bench.call(attempts.redrive, dead, worker, None, "none", anybody)
    )
    assert "is in tube dead already" in text(
        bench.call(attempts.redrive, dead, worker, None, "dead", anybody)
    )
    bench.call(admin.drop_tube, bench.engine, tube)
    assert "Tube jobs, where task 0 is to go, does not exist" in text(
        bench.call(attempts.redrive, dead, worker, None, None, anybody)
    )
    assert places(bench) == [("dead", 0, "r")]


def test_a_dead_letter_tube_stays_while_tubes_need_it() -> None:
    bench, tube, dead = dead_and_jobs(max_attempts=1)
    refused = bench.call(admin.drop_tube, bench.engine, dead)
    assert text(refused) == "The tube takes the dead letters of jobs"
    bench.call(admin.drop_tube, bench.engine, tube)
    assert bench.call(admin.drop_tube, bench.engine, dead) is True


@pytest.mark.parametrize("how", ["delete", "truncate", "ttl", "drop"])
def test_notes_go_with_their_tasks(how: str) -> None:
    bench, tube = jobs("fifottl", max_attempts=3, ttl=5)
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    fail(bench, tube)
    assert len(bench.engine.notes[0].space.rows) == 1
    if how == "delete":
        bench.call(tube.delete, worker, 0)
    elif how == "truncate":
        bench.call(tube.truncate, worker)
    elif how == "ttl":
        bench.pass_time(5)
    else:
        bench.call(admin.drop_tube, bench.engine, tube)
    assert not bench.engine.notes[0].space.rows
    assert_replica_agrees(bench)


def test_a_temporary_tube_keeps_its_notes_here() -> None:
    bench, tube = jobs("fifo", max_attempts=2, temporary=True)
    before = len(bench.log)
    bench.call(tube.put, bench.worker(), 0, b"x")
    assert fail(bench, tube, 2)[1] == "!"
    ops = [op for record in bench.log[before:] for op in record[3]]
    assert not any(op[1] in (521, tube.space.id) for op in ops)
    other = restarted(bench, snapshot=False)
    assert not other.engine.notes[1].space.rows


@pytest.mark.parametrize(
    ("kind", "opts", "expected"),
    [
        ("fifo", {"max_attempts": -1}, "Invalid value of max_attempts: -1 (expected 0 to 1000000)"),
        ("fifo", {"max_attempts": 1.5}, "Invalid value of max_attempts: 1.5"),
        ("fifo", {"max_attempts": True}, "Invalid value of max_attempts: True"),
        ("fifo", {"dead_letter": "dead"}, "Invalid option dead_letter: it needs max_attempts"),
        ("fifo", {"max_attempts": 1, "dead_letter": "jobs"}, "expected the name of another tube"),
        ("fifo", {"max_attempts": 1, "dead_letter": 5}, "expected the name of another tube"),
        ("fifo", {"max_attempts": 1, "dead_letter": "no"}, "a tube that exists: create it first"),
        ("fifo", {"max_attempts": 1, "dead_letter": "temp"}, "a tube that is not temporary"),
        ("fifo", {"retry_delay": 1}, "retry_delay: fifo queue does not support delays"),
        ("utube", {"retry_jitter": 1}, "retry_jitter: utube queue does not support delays"),
        ("fifottl", {"retry_jitter": 1}, "Invalid option retry_jitter: it needs retry_delay"),
        ("fifottl", {"retry_delay": "1"}, "Invalid value of retry_delay: 1 (expected 0 to"),
        ("fifottl", {"retry_delay": 1, "retry_factor": 0.5}, "retry_factor: 0.5 (expected 1 to"),
        ("fifottl", {"retry_delay": 1, "retry_jitter": 2}, "retry_jitter: 2 (expected 0 to 1)"),
        ("fifottl", {"retry_delay": float("inf")}, "Invalid value of retry_delay: inf"),
    ],
)
def test_bad_options_are_named(kind: str, opts: dict[str, Any], expected: str) -> None:
    bench = Bench()
    bench.start()
    bench.create("dead", "fifo")
    bench.create("temp", "fifo", temporary=True)
    before = len(bench.log)
    assert expected in text(bench.call(admin.create_tube, bench.engine, "jobs", kind, opts))
    assert len(bench.log) == before
    assert "jobs" not in bench.engine.store.by_name


def test_a_reason_needs_a_tube_that_keeps_it() -> None:
    bench, tube = jobs()
    worker = bench.worker()
    bench.call(tube.put, worker, 0, b"x")
    bench.call(tube.take, worker, 0, 0)
    expected = "Invalid option reason: the tube counts no attempts (see max_attempts)"
    assert text(bench.call(tube.release, worker, 0, {"reason": "r"})) == expected
    assert text(bench.call(tube.bury, worker, 0, {"reason": "r"})) == expected
    counted = bench.create("counted", "fifo", max_attempts=2)
    bench.call(counted.put, worker, 0, b"x")
    bench.call(counted.take, worker, 0, 0)
    assert "expected a string" in text(bench.call(counted.release, worker, 0, {"reason": 1}))
    assert "at most 1000" in text(bench.call(counted.bury, worker, 0, {"reason": "x" * 1001}))
    assert bench.call(counted.bury, worker, 0, {"reason": "broken"})[1] == "!"
    assert info(bench, counted, 0)["reason"] == "broken"
    assert info(bench, counted, 0)["attempts"] == 1


def test_delays_never_overflow() -> None:
    _bench, tube = jobs("fifottl", retry_delay=1, retry_factor=100, retry_jitter=0)
    assert tube.policy is not None
    assert tube.policy.retry is not None
    assert tube.policy.retry.delay(1_000_000, 0.0) == 3600 * SECOND
