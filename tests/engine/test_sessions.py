"""Who owns a task: sessions shared by connections, kept for `ttr`, over restarts and roles."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from tandemq_server.engine import admin
from tandemq_server.engine.session_times import TIMER_SESSION
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import EPOCH, SECOND, Bench, Worker, assert_replica_agrees, text

NOT_TAKEN = "Task was not taken"


@pytest.fixture(params=[False, True], ids=["local", "replicaset"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """With ownership logged and not; `ttr` is 10 s."""
    one = Bench()
    one.start()
    one.call(admin.cfg, one.engine, {"ttr": 10, "in_replicaset": request.param})
    one.create("t", "fifo")
    yield one
    assert_replica_agrees(one)


def tube_of(bench: Bench) -> EngineTube:
    return bench.engine.tubes["t"]


def holding(bench: Bench, count: int = 1) -> Worker:
    who = bench.worker()
    for _ in range(count):
        bench.call(tube_of(bench).put, who, 0, b"x")
        assert bench.call(tube_of(bench).take, who, 0, 0)[1] == "t"
    return who


def identify(bench: Bench, who: Worker, uuid: bytes | None = None) -> object:
    return bench.call(bench.engine.sessions.identify, who, uuid)


def sessions(bench: Bench) -> list[tuple[bytes, int, bool]]:
    return sorted(bench.engine.sessions.space.rows.values())


def test_any_connection_of_the_session_owns_the_task(bench: Bench) -> None:
    tube, one, two = tube_of(bench), holding(bench, 3), bench.worker()
    assert text(bench.call(tube.ack, two, 0)) == NOT_TAKEN
    uuid = identify(bench, one)
    assert uuid == identify(bench, one, None) == one.session
    assert identify(bench, two, one.session) == uuid
    assert bench.call(tube.release, two, 0)[1] == "r"
    bench.disconnect(one)
    assert bench.call(tube.ack, two, 1)[1] == "-"
    assert sessions(bench) == [(uuid, 0, True, "guest")]


@pytest.mark.parametrize(
    "uuid", [b"", b"short", b"x" * 17, b"0f0e0d0c-0b0a-0908-0706-050403020100"]
)
def test_a_malformed_uuid(bench: Bench, uuid: bytes) -> None:
    assert text(identify(bench, bench.worker(), uuid)) == "Invalid UUID format."


def test_an_unknown_uuid(bench: Bench) -> None:
    who = holding(bench)
    refusal = text(identify(bench, who, bytes(range(16))))
    assert refusal == "The UUID 03020100-0504-0706-0809-0a0b0c0d0e0f is unknown."
    assert bench.call(tube_of(bench).ack, who, 0)[1] == "-"


def test_tasks_of_a_lost_connection_wait_for_ttr(bench: Bench) -> None:
    tube, who = tube_of(bench), holding(bench, 2)
    uuid = who.session
    bench.disconnect(who)
    assert sessions(bench) == [(uuid, bench.engine.now + 10 * SECOND, False, "guest")]
    bench.pass_time(9)
    again = bench.worker()
    assert identify(bench, again, uuid) == uuid
    assert bench.call(tube.ack, again, 0)[1] == "-"
    bench.disconnect(again)
    bench.pass_time(10)
    assert sessions(bench) == []
    assert tube.space.rows[1][1] == "r"
    assert tube.calls["release"] == 1
    assert "is unknown." in text(identify(bench, bench.worker(), uuid))


def test_without_ttr_tasks_come_back_at_once(bench: Bench) -> None:
    who = holding(bench, 2)
    bench.call(admin.cfg, bench.engine, {"ttr": 0})
    bench.disconnect(who)
    assert [row[1] for row in tube_of(bench).space.rows.values()] == ["r", "r"]
    assert sessions(bench) == []


def test_moving_to_another_session_leaves_the_first(bench: Bench) -> None:
    bench.call(admin.cfg, bench.engine, {"ttr": 0})
    one, two = holding(bench), holding(bench)
    assert identify(bench, one, two.session) == two.session
    assert tube_of(bench).space.rows[0][1] == "r"
    assert [row[0] for row in sessions(bench)] == [two.session]


def test_a_connection_that_owned_nothing_leaves_nothing(bench: Bench) -> None:
    """The original keeps an inactive session for each (its row 18)."""
    who = bench.worker()
    bench.call(tube_of(bench).put, who, 0, b"x")
    bench.call(tube_of(bench).peek, 0)
    bench.disconnect(who)
    who = holding(bench)
    bench.call(tube_of(bench).ack, who, 0)
    bench.disconnect(who)
    assert sessions(bench) == []


def test_a_session_somebody_asked_for_is_kept(bench: Bench) -> None:
    who = bench.worker()
    uuid = identify(bench, who)
    bench.disconnect(who)
    assert sessions(bench) == [(uuid, EPOCH + 10 * SECOND, False, "guest")]


def test_one_broken_release_does_not_keep_the_others(bench: Bench) -> None:
    tube, who = tube_of(bench), holding(bench, 3)
    bench.call(admin.cfg, bench.engine, {"ttr": 0})
    real = tube.driver.release

    def broken(task_id: int, *args: object) -> object:
        row = real(task_id, *args)
        if task_id == 1:
            raise RuntimeError("broken")
        return row

    tube.driver.release = broken
    bench.disconnect(who)
    assert [row[1] for row in tube.space.rows.values()] == ["r", "t", "r"]
    assert bench.reports == ["tube t: release of task 1 failed: RuntimeError: broken"]
    tube.driver.release = real
    bench.call(tube.release_all, None)
    assert tube.space.rows[1][1] == "r"


def test_a_restart(bench: Bench) -> None:
    """Logged owners keep their tasks for `ttr`; anybody else's come back."""
    who = holding(bench)
    other = bench.replica()
    tube = tube_of(other)
    kept = bench.engine.in_replicaset
    assert other.start() == (0 if kept else 1)
    assert tube.space.rows[0][1] == ("t" if kept else "r")
    if kept:
        again = other.worker()
        assert identify(other, again, who.session) == who.session
        assert other.call(tube.ack, again, 0)[1] == "-"
    else:
        assert tube.calls["release"] == 1
    assert_replica_agrees(other)


def test_a_restart_without_ttr_releases_everything(bench: Bench) -> None:
    holding(bench)
    bench.call(admin.cfg, bench.engine, {"ttr": 0})
    other = bench.replica()
    assert other.start() == 1
    assert sessions(other) == []
    assert not other.engine.taken.rows


def test_what_was_kept_over_a_restart_expires(bench: Bench) -> None:
    holding(bench)
    other = bench.replica()
    other.start()
    other.pass_time(10)
    assert sessions(other) == []
    assert tube_of(other).space.rows[0][1] == "r"
    assert not other.engine.store.timers
    assert_replica_agrees(other)


def test_connections_that_stay_keep_their_tasks_over_a_change_of_roles(bench: Bench) -> None:
    tube, stays, goes = tube_of(bench), holding(bench), holding(bench)
    bench.engine.stop()
    bench.disconnect(goes)
    assert bench.start() == (0 if bench.engine.in_replicaset else 1)
    bench.pass_time(20)
    assert tube.space.rows[1][1] == "r"
    assert bench.call(tube.ack, stays, 0)[1] == "-"
    assert sessions(bench) == [(stays.session, 0, True, "guest")]


def test_sessions_another_master_retired_come_back_with_their_connections() -> None:
    """A to B and back to A, over which a worker of A never went away."""
    one = Bench()
    one.start()
    one.call(admin.cfg, one.engine, {"ttr": 10, "in_replicaset": True})
    one.create("t", "fifo")
    worker = holding(one)
    one.engine.stop()
    two = one.replica()
    two.start()
    for record in two.log[len(one.log) :]:
        one.engine.store.apply(record[3])
    one.log = list(two.log)
    assert sessions(one)[0][2] is False
    one.start()
    one.pass_time(60)
    assert one.call(tube_of(one).ack, worker, 0)[1] == "-"
    assert_replica_agrees(one)


@pytest.mark.parametrize("logged", [True, False])
def test_conversion(logged: bool) -> None:
    """Rows stay where they are; elsewhere they appear, or vanish with their timers."""
    bench = Bench()
    bench.start()
    bench.call(admin.cfg, bench.engine, {"ttr": 10, "in_replicaset": not logged})
    bench.create("t", "fifo")
    stays, goes = holding(bench), holding(bench)
    bench.disconnect(goes)
    before = (dict(bench.engine.taken.rows), sessions(bench))
    # A former master holds rows of its own, which must not survive.
    other = bench.replica()
    other.engine.taken.put((9, 9, 9, b"stale" * 3 + b"!", 9))
    bench.call(admin.cfg, bench.engine, {"in_replicaset": logged})
    assert (bench.engine.taken.rows, sessions(bench)) == before
    for record in bench.log[len(other.log) :]:
        other.engine.store.apply(record[3])
    expected = before if logged else ({}, [])
    assert (other.engine.taken.rows, sessions(other)) == expected
    timers = [entry for entry in other.engine.store.timers if entry[1] == TIMER_SESSION]
    assert len(timers) == logged
    assert bench.call(tube_of(bench).ack, stays, 0)[1] == "-"
    assert_replica_agrees(bench)


def test_a_timer_of_a_session_that_is_gone_is_not_due_for_ever() -> None:
    bench = Bench()
    bench.start()
    bench.engine.store.timers.add((EPOCH, TIMER_SESSION, b"nobody's"))
    bench.pass_time(1)
    assert bench.engine.next_due() is None


def test_tokens_fence_off_a_worker_of_the_same_session(bench: Bench) -> None:
    tube, who = tube_of(bench), bench.worker()
    bench.call(tube.put, who, 0, b"x")
    first = bench.call(tube.take, who, 0, 0, True)
    bench.call(tube.release, who, 0, None, first[2])
    second = bench.call(tube.take, who, 0, 0, True)
    assert second[2] > first[2]
    for method, args in (("ack", ()), ("release", (None,)), ("touch", (1,))):
        refusal = bench.call(getattr(tube, method), who, 0, *args, first[2])
        assert text(refusal) == NOT_TAKEN
    assert bench.call(tube.ack, who, 0, second[2])[1] == "-"


def test_a_session_is_its_users(bench: Bench) -> None:
    ann, bob, late = bench.worker(), bench.worker(), bench.worker()
    ann.user, bob.user, late.user = "ann", "bob", "ann"
    uuid = identify(bench, ann)
    assert isinstance(uuid, bytes)
    refused = text(identify(bench, bob, uuid))
    assert refused == f"The UUID {UUID(bytes_le=uuid)} is unknown.", "as if there were none"
    assert bob.session is None
    assert identify(bench, late, uuid) == uuid
    bench.engine.sessions.shared = True
    assert identify(bench, bob, uuid) == uuid
