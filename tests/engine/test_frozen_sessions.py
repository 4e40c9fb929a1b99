"""The time in which nobody leads does not count against a session that waits for its owner."""

from __future__ import annotations

import os

import pytest

from tandemq.model.terms import Term
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import admin, leases, lifecycle
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine

SECOND = 1_000_000
TERM = Term(1, b"t" * 16, None, 1, "a", False)


class Worker(EngineClient):
    def deliver(self, ticket: object, outcome: object) -> None:
        raise AssertionError("nobody waits here")


def engine_with_a_lost_worker(ttr: int) -> tuple[Engine, bytes]:
    engine = Engine(BUILT_IN, lambda: os.urandom(16), print)
    engine.now = 100 * SECOND
    engine.start()
    admin.cfg(engine, {"ttr": ttr, "in_replicaset": True})
    worker = Worker(1)
    session = engine.sessions.identify(worker, None)
    engine.disconnect(worker)
    engine.stop()
    return engine, session


@pytest.mark.parametrize(
    ("away", "frozen", "expires"),
    [
        # Known to be dead for all of its absence: nothing of the 10 seconds has passed.
        (60, 60, 170),
        # It led for 4 more seconds: 6 are left.
        (60, 56, 166),
        # Nobody knows: what is over is over.
        (60, 0, 110),
        # Never more than a whole ttr from now on.
        (60, 500, 170),
    ],
)
def test_a_session_keeps_what_was_left_of_its_time(away: int, frozen: int, expires: int) -> None:
    engine, session = engine_with_a_lost_worker(10)
    assert engine.sessions.expires_us(session) == 110 * SECOND
    engine.now += away * SECOND
    engine.frozen_us = frozen * SECOND
    engine.promote(TERM, None, None)
    assert engine.sessions.expires_us(session) == expires * SECOND


def test_a_promotion_and_a_pause_cost_one_row_however_many_sessions_wait() -> None:
    engine, first = engine_with_a_lost_worker(10)
    for number in range(1_000):
        engine.sessions.space.insert((number.to_bytes(16, "big"), 105 * SECOND, False))
    engine.commit(0, None)
    engine.take_records()
    engine.now += 60 * SECOND
    engine.frozen_us = 60 * SECOND
    released = engine.promote(TERM, None, None)
    engine.now += SECOND
    lifecycle.serve(engine, released)
    engine.now += 3 * SECOND
    leases.prolong(engine, 3 * SECOND, engine.now - 3 * SECOND)
    records = engine.take_records()
    assert [len(record[3]) for record in records] == [2, 1, 1]
    assert engine.sessions.expires_us(first) == 174 * SECOND
    engine.store.check()
    while (due := engine.next_due()) is not None:
        engine.now = due
        engine.tick()
        if due == 169 * SECOND:
            assert len(engine.sessions.space.rows) in {0, 1}
    assert due is None
    assert engine.now == 174 * SECOND
    assert not engine.sessions.space.rows


def test_who_left_within_a_pause_gets_no_more_than_its_time() -> None:
    engine, before = engine_with_a_lost_worker(10)
    engine.promote(TERM, None, None)
    lifecycle.serve(engine, [])
    since = engine.now
    engine.now += 4 * SECOND
    worker = Worker(2)
    meanwhile = engine.sessions.identify(worker, None)
    engine.disconnect(worker)
    leases.prolong(engine, 4 * SECOND, since)
    assert engine.sessions.expires_us(before) == engine.sessions.expires_us(meanwhile)
    assert engine.sessions.expires_us(meanwhile) == engine.now + 10 * SECOND


def test_where_nobody_waits_any_more_the_clocks_are_one_again() -> None:
    engine, session = engine_with_a_lost_worker(10)
    engine.now += 60 * SECOND
    engine.frozen_us = 60 * SECOND
    lifecycle.serve(engine, engine.promote(TERM, None, None))
    worker = Worker(2)
    engine.sessions.identify(worker, session)
    engine.disconnect(worker)
    assert engine.sessions.space.rows[session][1] == engine.now + 10 * SECOND
    engine.store.check()


def test_a_promotion_that_fails_takes_the_time_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, session = engine_with_a_lost_worker(10)
    engine.now += 5 * SECOND
    engine.frozen_us = 5 * SECOND

    def fail(*_args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(leases, "prolong_tasks", fail)
    with pytest.raises(MemoryError):
        engine.promote(TERM, None, None)
    assert engine.sessions.expires_us(session) == 110 * SECOND
    engine.store.check()
