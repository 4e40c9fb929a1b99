"""The time in which nobody reigns does not count against a session that waits for its owner."""

from __future__ import annotations

import os

import pytest

from drivers import BUILT_IN
from engine import admin
from engine.clients import Client
from engine.queue import Engine

SECOND = 1_000_000
TERM = (1, b"t" * 16, None, 1, "a", False)


class Worker(Client):
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
        # It reigned for 4 more seconds: 6 are left.
        (60, 56, 166),
        # Nobody knows: what is over is over.
        (60, 0, 110),
        # Never more than a whole ttr from now on.
        (60, 500, 170),
    ],
)
def test_a_session_keeps_what_was_left_of_its_time(away: int, frozen: int, expires: int) -> None:
    engine, session = engine_with_a_lost_worker(10)
    assert engine.sessions.space.rows[session][1] == 110 * SECOND
    engine.now += away * SECOND
    engine.frozen_us = frozen * SECOND
    engine.promote(TERM, None, None)
    assert engine.sessions.space.rows[session][1] == expires * SECOND
