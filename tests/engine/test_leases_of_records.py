"""The same of xqueue's records and queue15's tasks: time nobody could use is given back."""

from __future__ import annotations

from tandemq_server.engine import leases
from tests.engine.engine_bench import SECOND, Bench, assert_replica_agrees
from tests.queue15 import queue15_bench
from tests.xqueue import xqueue_bench


def stand_still(bench: Bench, seconds: int) -> int:
    bench.engine.now += seconds * SECOND
    found: int = bench.call(leases.prolong, bench.engine, seconds * SECOND)
    return found


def test_a_record_keeps_what_was_left_of_its_ttr() -> None:
    calls = xqueue_bench.Calls({"id": "auto_increment", "delayed": True, "ttr": 5, "ttl": 100})
    key = calls.put()["id"]
    assert calls("take", 0)["id"] == key
    calls.bench.pass_time(2)
    assert stand_still(calls.bench, 60) == 1
    calls.bench.pass_time(2.9)
    assert calls.state(key) == "T"
    calls.bench.pass_time(0.2)
    assert calls.state(key) == "R"
    # Its life went on all the while.
    calls.bench.pass_time(35)
    assert calls.state(key) == "X"
    assert_replica_agrees(calls.bench)


def test_a_record_without_ttr_has_no_lease_to_prolong() -> None:
    calls = xqueue_bench.Calls()
    calls.put()
    calls("take", 0)
    assert stand_still(calls.bench, 60) == 0


def test_a_task_of_queue15_keeps_what_was_left_of_its_ttr() -> None:
    calls = queue15_bench.make()
    ident = calls.put("t", "x", ttr=5, ttl=100)
    assert calls("take", "t", 0)[0] == ident
    calls.bench.pass_time(2)
    assert stand_still(calls.bench, 60) == 1
    calls.bench.pass_time(2.9)
    assert calls.status(ident) == "taken"
    calls.bench.pass_time(0.2)
    assert calls.status(ident) == "ready"
    calls.bench.pass_time(35)
    assert not calls.bench.engine.tubes[next(iter(calls.bench.engine.tubes))].space.rows
    assert_replica_agrees(calls.bench)
