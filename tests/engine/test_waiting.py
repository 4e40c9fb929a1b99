"""Those who wait: consumers in order of arrival, puts of a full tube likewise, nobody forgotten."""

from __future__ import annotations

import pytest

from tandemq.model.errors import QueueError, failure
from tandemq_server.engine import batches
from tandemq_server.engine.clients import EMPTY, NIL, PENDING, Delivery
from tandemq_server.engine.tube import EngineTube
from tests.engine.engine_bench import TTL_DRIVERS, UTUBES, Bench, text


def test_consumers_are_served_in_order_of_arrival(bench: Bench, tube: EngineTube) -> None:
    """Whatever their timeouts and connections."""
    one, two = bench.worker(), bench.worker()
    for ticket, (who, timeout) in enumerate(((two, 60), (one, 5), (two, None), (one, 4000))):
        assert bench.call(tube.take, who, ticket, timeout) is PENDING
    order = []
    for name in "abcd":
        bench.call(tube.put, bench.worker(), 0, name.encode(), {"utube": name})
        told = one.told + two.told
        order += [ticket for ticket, _ in told if ticket not in order]
    assert order == [0, 1, 2, 3]
    assert [row[-1] for _, row in two.told] == [b"a", b"c"]
    assert not tube.waiters
    assert not one.waits


def test_one_ready_task_wakes_one_consumer(bench: Bench, tube: EngineTube) -> None:
    who = bench.worker()
    for ticket in range(3):
        bench.call(tube.take, who, ticket, 10)
    bench.call(tube.put, who, 9, b"x")
    assert [ticket for ticket, _ in who.told] == [0]
    assert bench.call(tube.take, who, 3, 0) is EMPTY


@pytest.mark.parametrize("timeout", [0.25, 5, 3_153_599_999])
def test_a_take_that_times_out(bench: Bench, tube: EngineTube, timeout: float) -> None:
    who = bench.worker()
    bench.call(tube.take, who, 7, timeout)
    bench.pass_time(timeout - 0.1)
    assert not who.told
    bench.pass_time(0.1)
    assert who.told == [(7, EMPTY)]
    assert bench.engine.next_due() is None


@pytest.mark.parametrize("timeout", [0, -1, 1e-7, -0.0])
def test_no_timeout_to_speak_of_does_not_wait(
    bench: Bench, tube: EngineTube, timeout: float
) -> None:
    assert bench.call(tube.take, bench.worker(), 0, timeout) is EMPTY


@pytest.mark.parametrize("timeout", ["1", True, [], float("nan")])
def test_a_bad_timeout_is_refused_even_if_a_task_is_ready(
    bench: Bench, tube: EngineTube, timeout: object
) -> None:
    who = bench.worker()
    bench.call(tube.put, who, 0, b"x")
    assert "timeout" in text(bench.call(tube.take, who, 0, timeout))
    assert tube.space.rows[0][1] == "r"


@pytest.mark.parametrize("how", ["release", "kick", "disconnect", "release_all", "release_many"])
def test_whatever_makes_a_task_ready_serves_who_waits(
    bench: Bench, tube: EngineTube, how: str
) -> None:
    owner, waiting = bench.worker(), bench.worker()
    bench.call(tube.put, owner, 0, b"x")
    bench.call(tube.take, owner, 0, 0)
    bench.call(tube.take, waiting, 5, None)
    if how == "release":
        bench.call(tube.release, owner, 0)
    elif how == "kick":
        bench.call(tube.bury, owner, 0)
        bench.call(tube.kick, owner)
    elif how == "disconnect":
        bench.disconnect(owner)
    elif how == "release_all":
        bench.call(tube.release_all, owner)
    else:
        bench.call(batches.release_many, tube, owner, [0])
    assert [(ticket, row[0], row[1]) for ticket, row in waiting.told] == [(5, 0, "t")]


@pytest.mark.parametrize("driver", UTUBES)
@pytest.mark.parametrize("how", ["ack", "delete", "bury", "release", "ack_many"])
def test_a_freed_sub_queue_serves_who_waits(bench: Bench, driver: str, how: str) -> None:
    tube, owner, waiting = bench.create("t", driver), bench.worker(), bench.worker()
    for data in (b"0", b"1"):
        bench.call(tube.put, owner, 0, data, {"utube": "a"})
    bench.call(tube.take, owner, 0, 0)
    assert bench.call(tube.take, waiting, 5, 10) is PENDING
    if how == "ack_many":
        bench.call(batches.ack_many, tube, owner, [0])
    else:
        bench.call(getattr(tube, how), owner, 0)
    assert [row[-1] for _, row in waiting.told] == [b"0" if how == "release" else b"1"]


@pytest.mark.parametrize("driver", TTL_DRIVERS)
def test_a_task_ready_before_the_wait_ended_is_in_time(bench: Bench, driver: str) -> None:
    """Though the clock is looked at only after both moments."""
    tube, who = bench.create("t", driver), bench.worker()
    bench.call(tube.put, who, 0, b"x", {"delay": 1})
    bench.call(tube.take, who, 1, 2)
    bench.pass_time(5)
    assert [row[0] for _, row in who.told] == [0]


def test_a_connection_that_goes_takes_nothing(bench: Bench, tube: EngineTube) -> None:
    gone, there = bench.worker(), bench.worker()
    bench.call(tube.take, gone, 0, None)
    bench.call(tube.take, gone, 1, 5)
    bench.call(tube.take, there, 2, None)
    bench.disconnect(gone)
    bench.call(tube.put, there, 0, b"x")
    assert not gone.told
    assert [ticket for ticket, _ in there.told] == [2]
    assert bench.engine.next_due() is None


def test_everybody_is_answered_when_the_role_changes(bench: Bench, tube: EngineTube) -> None:
    who = bench.worker()
    bench.call(tube.take, who, 0, None)
    bench.call(tube.take, who, 1, 5)
    readonly = failure("read-only")
    bench.engine.stop()
    bench.call(bench.engine.wake_all, readonly)
    assert who.told == [(0, readonly), (1, readonly)]
    assert not tube.waiters
    assert bench.engine.next_due() is None


def test_a_tube_somebody_waits_for_is_not_dropped(bench: Bench, tube: EngineTube) -> None:
    from tandemq_server.engine import admin

    who = bench.worker()
    bench.call(tube.take, who, 0, 5)
    refusal = bench.call(admin.drop_tube, bench.engine, tube)
    assert text(refusal) == "There are consumers connected the tube"
    bench.pass_time(5)
    bench.call(tube.put, who, 0, b"x")
    bench.call(tube.take, who, 0, 0)
    refusal = bench.call(admin.drop_tube, bench.engine, tube)
    assert text(refusal) == "There are taken tasks in the tube"
    bench.call(tube.ack, who, 0)
    assert bench.call(admin.drop_tube, bench.engine, tube) is True
    assert "t" not in bench.engine.tubes
    assert bench.create("t", "fifo").statistics()["calls"]["put"] == 0


# -- limfifottl: puts that wait for room -----------------------------------------------------------


def full(bench: Bench) -> EngineTube:
    tube = bench.create("t", "limfifottl", capacity=2)
    for _ in range(2):
        bench.call(tube.put, bench.worker(), 0, b"x")
    return tube


def test_a_full_tube_refuses_who_does_not_wait(bench: Bench) -> None:
    tube, who = full(bench), bench.worker()
    assert bench.call(tube.put, who, 0, b"y") is NIL
    assert bench.call(tube.put, who, 0, b"y", {"timeout": -1}) is NIL
    assert "ttl" in text(bench.call(tube.put, who, 0, b"y", {"ttl": -1}))
    assert "timeout" in text(bench.call(tube.put, who, 0, b"y", {"timeout": "x"}))
    refusal = bench.call(batches.put_many, tube, who, [(b"y", None)])
    assert text(refusal) == "No room for 1 tasks (capacity 2)"
    assert len(tube.space.rows) == 2
    assert tube.calls["put"] == 2


@pytest.mark.parametrize("how", ["ack", "delete", "truncate", "ttl", "ack_many"])
def test_blocked_puts_are_served_in_order(bench: Bench, how: str) -> None:
    tube = bench.create("t", "limfifottl", capacity=2)
    owner, one, two = bench.worker(), bench.worker(), bench.worker()
    for _ in range(2):
        bench.call(tube.put, owner, 0, b"x", {"ttl": 5 if how == "ttl" else None})
    bench.call(tube.take, owner, 0, 0)
    for ticket, who in enumerate((two, one, two)):
        timeout = 60 - ticket
        assert bench.call(tube.put, who, ticket, b"%d" % ticket, {"timeout": timeout}) is PENDING
    assert bench.call(tube.put, one, 9, b"late") is NIL
    if how == "ttl":
        bench.pass_time(5)
    elif how == "truncate":
        bench.call(tube.truncate, owner)
    elif how == "ack_many":
        bench.call(batches.ack_many, tube, owner, [0])
    else:
        bench.call(getattr(tube, how), owner, 0)
    room = 2 if how in ("ttl", "truncate") else 1
    told = sorted((ticket, row[1], row[-1]) for ticket, row in one.told + two.told)
    assert told == [(0, "r", b"0"), (1, "r", b"1")][:room]
    assert len(tube.blocked) == 3 - room
    bench.pass_time(60)
    assert [outcome for _, outcome in one.told + two.told].count(NIL) == 3 - room
    assert not tube.blocked


def test_a_blocked_put_counts_every_state_and_goes_with_its_connection(bench: Bench) -> None:
    tube, owner, gone = bench.create("t", "limfifottl", capacity=2), bench.worker(), bench.worker()
    bench.call(tube.put, owner, 0, b"x", {"delay": 100})
    bench.call(tube.put, owner, 0, b"x")
    bench.call(tube.bury, owner, 1)
    assert bench.call(tube.put, gone, 0, b"y", {"timeout": 5}) is PENDING
    bench.disconnect(gone)
    bench.call(tube.delete, owner, 0)
    assert len(tube.space.rows) == 1
    assert not gone.told


def test_a_put_served_late_serves_a_take_in_turn(bench: Bench) -> None:
    tube, one, two = bench.create("t", "limfifottl", capacity=1), bench.worker(), bench.worker()
    bench.call(tube.put, one, 0, b"0")
    bench.call(tube.bury, one, 0)
    bench.call(tube.put, one, 1, b"1", {"timeout": 9})
    bench.call(tube.take, two, 2, 9)
    bench.call(tube.delete, two, 0)
    assert [row[1] for _, row in one.told] == ["r"]
    assert [row[1] for _, row in two.told] == ["t"]


# -- batches that wait -----------------------------------------------------------------------------


def test_a_batch_waits_for_the_first_task_and_takes_what_there_is(
    bench: Bench, tube: EngineTube
) -> None:
    who = bench.worker()
    assert batches.take_many(tube, who, 0, 3, 0) == []
    assert bench.call(batches.take_many, tube, who, 1, 3, 5) is PENDING
    items = [(name.encode(), {"utube": name}) for name in "abcd"]
    assert bench.call(batches.put_many, tube, who, items) == [0, 1, 2, 3]
    ((ticket, rows),) = who.told
    assert (ticket, [row[0] for row in rows]) == (1, [0, 1, 2])
    assert bench.call(batches.take_many, tube, who, 2, 3, 5, True)[0][0] == 3
    assert bench.call(batches.take_many, tube, who, 3, 3, 5, True) is PENDING
    bench.call(tube.release, who, 3)
    ticket, (row,) = who.told[1]
    assert (ticket, type(row), row[0]) == (3, Delivery, 3)
    assert bench.call(tube.ack, who, 3, row[2])[1] == "-"


def test_a_waiting_batch_times_out_like_a_take(bench: Bench, tube: EngineTube) -> None:
    who = bench.worker()
    bench.call(batches.take_many, tube, who, 1, 3, 5)
    bench.pass_time(5)
    assert who.told == [(1, EMPTY)]
    assert not isinstance(who.told[0][1], QueueError)
