"""A process that stood still reads its sockets first, then gives leases the time back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EMPTY, EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.node.cluster.pauses import PAUSE_US, ProcessPauses
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import ClientBounds, Identity
from tandemq_server.node.loop.clock import LogClock

SECOND = 1_000_000
#: How often the rim looks here, in µs.
STEP = 100_000


class Nobody:
    def may(self, user: str, call: str) -> bool:
        return False

    def grantees(self, user: str) -> tuple[str, ...]:
        return ()

    def dialect(self, user: str) -> str | None:
        return None

    def authenticate(self, user: str, method: str, data: bytes, salt: bytes) -> bool:
        return False


class Worker(EngineClient):
    def deliver(self, ticket: Any, outcome: Any) -> None:
        raise AssertionError("nobody waits here")


class Machine:
    """A node's core, its log clock and its pauses, on a clock that tests move."""

    def __init__(self) -> None:
        self.mono_us = 0
        self.told: list[float] = []
        self.later: list[Callable[[], None]] = []
        self.engine = engine = Engine(BUILT_IN, self._uuid, print)
        self._uuids = 0
        self.clock = LogClock(0, lambda: 1_700_000_000 * SECOND, lambda: self.mono_us)
        engine.now = self.clock.now()
        engine.start()
        admin.cfg(engine, {"ttr": 30, "in_replicaset": True})
        self.tube: Any = admin.create_tube(engine, "t", "fifottl", {"ttr": 5})
        self.core = Core(engine, Identity("a", "", ""), ClientBounds(), Nobody())
        self.pauses = ProcessPauses(
            self.core, lambda: self.mono_us, self.clock.now, self.later.append, self.told.append
        )
        self.worker, self.other = Worker(1), Worker(2)

    def _uuid(self) -> bytes:
        self._uuids += 1
        return self._uuids.to_bytes(16)

    def live(self, seconds: float) -> None:
        """The loop runs, and looks often."""
        for _ in range(round(seconds * SECOND / STEP)):
            self.mono_us += STEP
            self.core.advance(self.clock.now())
            self.pauses.look()

    def stand_still(self, seconds: float) -> None:
        self.mono_us += round(seconds * SECOND)

    def sockets_are_read(self) -> None:
        later, self.later[:] = self.later[:], []
        for call in later:
            call()

    def take(self) -> int:
        self.tube.put(self.worker, 0, b"x")
        task_id: int = self.tube.take(self.worker, 0, 0)[0]
        self.engine.wake()
        return task_id

    def status(self, task_id: int) -> str:
        status: str = self.tube.space.rows[task_id][1]
        return status


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_lease_outlives_a_pause(machine: Machine) -> None:
    task_id = machine.take()
    machine.live(2)
    machine.stand_still(60)
    # The deadline's own timer, or bytes of a socket, come before anything else.
    machine.core.advance(machine.clock.now())
    assert machine.status(task_id) == "t"
    assert machine.tube.take(machine.other, 0, 0) is EMPTY
    machine.sockets_are_read()
    assert machine.status(task_id) == "t"
    assert machine.told == [pytest.approx(60, abs=0.2)]
    machine.live(2.9)
    assert machine.status(task_id) == "t"
    assert machine.tube.ack(machine.worker, task_id)[1] == "-"


def test_nothing_lasts_for_ever_by_a_pause(machine: Machine) -> None:
    task_id = machine.take()
    machine.live(2)
    machine.stand_still(60)
    machine.pauses.look()
    machine.sockets_are_read()
    machine.live(3.3)
    assert machine.status(task_id) == "r"


def test_an_ack_that_waited_in_a_socket_counts_however_little_was_left(machine: Machine) -> None:
    task_id = machine.take()
    machine.live(4.9)
    machine.stand_still(60)
    machine.core.advance(machine.clock.now())
    machine.core.advance(machine.clock.now())
    assert machine.tube.ack(machine.worker, task_id)[1] == "-"
    machine.sockets_are_read()
    assert not machine.engine.store.timers


def test_a_task_taken_after_the_pause_gets_nothing_of_it(machine: Machine) -> None:
    machine.live(1)
    machine.stand_still(60)
    task_id = machine.take()
    machine.pauses.look()
    machine.sockets_are_read()
    assert machine.tube.space.rows[task_id][2] == machine.clock.now() + 5 * SECOND


def test_a_task_taken_just_before_the_pause_gets_all_of_it(machine: Machine) -> None:
    machine.live(1)
    machine.mono_us += STEP // 2
    machine.core.advance(machine.clock.now())
    task_id = machine.take()
    machine.stand_still(60)
    machine.pauses.look()
    machine.sockets_are_read()
    left = machine.tube.space.rows[task_id][2] - machine.clock.now()
    assert left == pytest.approx(5 * SECOND, abs=STEP)


def test_two_pauses_in_a_row_are_added_up(machine: Machine) -> None:
    task_id = machine.take()
    machine.live(1)
    machine.stand_still(60)
    machine.pauses.look()
    machine.stand_still(30)
    machine.core.advance(machine.clock.now())
    machine.sockets_are_read()
    assert machine.pauses.count == 2
    assert machine.status(task_id) == "t"
    left = machine.tube.space.rows[task_id][2] - machine.clock.now()
    assert left == pytest.approx(4 * SECOND, abs=2 * STEP)


def test_an_everyday_turn_is_no_pause(machine: Machine) -> None:
    task_id = machine.take()
    machine.live(4.5)
    machine.stand_still(PAUSE_US / SECOND)
    machine.pauses.look()
    machine.live(0.2)
    assert machine.status(task_id) == "r"
    assert (machine.pauses.count, machine.told, machine.later) == (0, [], [])


def test_a_node_that_stopped_serving_meanwhile_writes_nothing(machine: Machine) -> None:
    machine.take()
    machine.live(1)
    machine.stand_still(60)
    machine.pauses.look()
    machine.engine.take_records()
    # What waited in the sockets said that another node leads.
    machine.engine.stop()
    machine.sockets_are_read()
    assert machine.engine.records == []
    assert not machine.pauses.reading


def test_what_a_ttl_promised_a_pause_does_not_move(machine: Machine) -> None:
    machine.tube.put(machine.worker, 0, b"x", {"ttl": 10})
    machine.live(1)
    machine.stand_still(60)
    machine.pauses.look()
    machine.sockets_are_read()
    assert machine.tube.space.rows == {}
