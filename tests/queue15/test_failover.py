"""Tasks of queue15 over a change of masters, dialects by user, and a node that does not serve."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tandemq.model.errors import ER_READONLY, QueueError, failure
from tandemq_server.config import Settings
from tandemq_server.config.load import ConfigError
from tandemq_server.engine import admin, pause
from tandemq_server.facades.registered import FACADES, KNOWN
from tandemq_server.node.core.connection import Connection
from tandemq_server.node.core.core import Core
from tandemq_server.node.core.identity import ClientBounds, Identity
from tandemq_server.node.core.users import Users
from tests.engine.engine_bench import Bench, assert_replica_agrees
from tests.node.harness import node
from tests.queue15.queue15_bench import Calls, make, seen

GRACE = 10


def flip(calls: Calls) -> Calls:
    """Another node is promoted over what this one logged."""
    return make(calls.bench.replica(KNOWN))


def shared(calls: Calls) -> tuple[str, bytes]:
    """A task taken by a session that is logged; its id and the session."""
    calls.bench.call(calls.bench.engine.configure, GRACE, True)
    session = calls.bench.call(calls.bench.engine.sessions.identify, calls.me, None)
    ident = calls.put("t", "x")
    assert calls("take", "t", 0)[0] == ident
    return ident, session


def test_taken_tasks_are_ready_on_the_new_master(calls: Calls) -> None:
    idents = [calls.put("t", number, pri=number) for number in range(3)]
    for _ in idents:
        calls("take", "t", 0)
    new = flip(calls)
    assert new.counters() == {
        "ready_by_restart": 3, "tasks.total": 3, "tasks.ready": 3, "tasks.delayed": 0,
        "tasks.taken": 0, "tasks.buried": 0, "tasks.done": 0,
    }  # fmt: skip
    assert [new("meta", ident)[11] for ident in idents] == [1, 1, 1], "ctaken is kept"
    assert new.drain() == [2, 1, 0]
    assert_replica_agrees(new.bench)


def test_a_shared_session_acks_on_the_new_master_within_ttr(calls: Calls) -> None:
    ident, session = shared(calls)
    new = flip(calls)
    assert new.status(ident) == "taken"
    assert new("ack", ident) == "! Only consumer that took the task can it ack"
    new.bench.pass_time(GRACE - 1)
    new.bench.call(new.bench.engine.sessions.identify, new.me, session)
    new.bench.pass_time(2)
    assert new("ack", ident)[2] == "taken"
    assert_replica_agrees(new.bench)


def test_tasks_of_a_session_that_does_not_come_back_are_ready(calls: Calls) -> None:
    ident, _ = shared(calls)
    new = flip(calls)
    waiter = new.bench.worker()
    new("take", "t", by=waiter)
    new.bench.pass_time(GRACE)
    assert seen(waiter.told[0][1])[0] == ident
    assert new.counters()["ready_by_disconnect"] == 1


def test_waiting_takes_are_answered_at_a_change_of_roles(calls: Calls) -> None:
    waiters = [calls.bench.worker() for _ in range(2)]
    for waiter in waiters:
        calls("take", "t", by=waiter)
    calls.bench.engine.wake_all(failure("the role changed"))
    for waiter in waiters:
        assert isinstance(waiter.told[0][1], QueueError)
        assert not waiter.waits
    late = calls.bench.worker()
    calls("take", "t", by=late)
    calls.put("t", "x")
    assert seen(late.told[0][1])[3] == "x", "those who were answered take nothing"
    assert not any(waiter.told[1:] for waiter in waiters)


def test_paused_tubes(calls: Calls) -> None:
    engine, waiter = calls.bench.engine, calls.bench.worker()
    calls.put("t", "x")
    calls.bench.call(pause.change, calls.tube, calls.me, None, True)
    assert calls("put", "t", 0, 0, 0, 0).startswith("! Puts into tube space0 are paused")
    assert calls("take", "t", 0) is None
    calls("take", "t", by=waiter)
    assert calls.counters()["tasks.ready"] == 1
    calls.bench.call(pause.change, calls.tube, calls.me, None, False)
    assert seen(waiter.told[0][1])[3] == "x"
    assert not engine.woken


def test_a_node_that_does_not_serve_reads_only() -> None:
    async def run() -> None:
        async with node() as bench:
            core = bench.core
            core.engine.drivers.update(KNOWN)
            admin.create_tube(core.engine, "space0", "queue15", {})
            wire = await bench.dial()
            task = (await wire.call("queue15.put", 0, "t", 0, 0, 0, 0, "x"))[0]
            core.engine.stop()
            core.set_state("WAITING")
            ident = task[0]
            assert (await wire.call("queue15.peek", 0, ident))[0] == task
            assert (await wire.call("queue15.meta", 0, ident))[0][0] == ident
            assert (await wire.call("queue15.statistics", 0, "t"))[0][0].startswith("space0.t.")
            calls: list[tuple[str, Any]] = [
                ("put", ("t", 0, 0, 0, 0)), ("take", ("t", 0)), ("delete", (ident,)),
                ("kick", ("t",)), ("truncate", ("t",)), ("create_space", ()),
            ]  # fmt: skip
            for name, args in calls:
                code, text = await wire.call(f"queue15.{name}", 0, *args)
                assert code == ER_READONLY
                assert "queue is in WAITING state" in text

    asyncio.run(run())


def users(**more: Any) -> Settings:
    hashes = {"chap_sha1": "00" * 20}
    people = [
        {"name": "old", "password_hash": hashes, "grants": ["queue15.*"], "dialect": "queue15"},
        {"name": "new", "password_hash": hashes, "grants": ["queue.*"]},
    ]
    return Settings(users=people, **more)


def test_the_dialect_of_a_user_goes_before_that_of_the_listener() -> None:
    engine = Bench(KNOWN).engine
    core = Core(engine, Identity("a", "", ""), ClientBounds(), Users(users()), facades=FACADES)
    engine.start()

    def found(user: str, listener: str, call: str) -> str:
        connection = Connection(core, 1, bytes(32), "test", False)
        connection.dialect = listener
        core.log_in(connection, user)
        try:
            core.find(connection, call.encode())
        except QueueError as error:
            return error.text
        return "served"

    assert found("old", "tube", "queue.put") == "served"
    assert found("old", "tube", "queue15.take") == "served"
    assert "call queue15.put, or set dialect" in found("new", "tube", "queue.put")
    assert "'queue15.put' is denied" in found("new", "queue15", "queue.put"), "rights name it fully"
    assert found("new", "tube", "queue.statistics") == "served"
    assert "'queue15.statistics' is denied" in found("new", "queue15", "queue.statistics")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"dialect": "lua"}, "dialect"),
        ({"listen": "127.0.0.1:4", "listen_queue15": "127.0.0.1:4"}, "already the address of"),
        ({"listen_queue15": "0.0.0.0:4", "guest": "all"}, "all is refused on 0.0.0.0:4"),
        ({"admin": "127.0.0.1:4", "listen_queue15": "127.0.0.1:4"}, "address of listen_queue15"),
    ],
)
def test_bad_configurations(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Settings.load(None, flags, {})
