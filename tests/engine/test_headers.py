"""Headers of a task: what is accepted, where they are told, how long they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.engine import admin, attempts, batches, finish, listing
from tandemq_server.engine.clients import NIL, PENDING
from tandemq_server.engine.tube import EngineTube
from tests.engine.carried import restarted
from tests.engine.engine_bench import DRIVERS, Bench, assert_replica_agrees, text

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}


def bench_with(kind: str = "fifo", **opts: Any) -> tuple[Bench, EngineTube]:
    bench = Bench()
    bench.start()
    return bench, bench.create("jobs", kind, **opts)


def put(bench: Bench, tube: EngineTube, data: bytes = b"x", **opts: Any) -> Any:
    return bench.call(tube.put, bench.worker(), 0, data, opts)


def told(bench: Bench, tube: EngineTube, task_id: int = 0) -> Any:
    return bench.call(attempts.info, tube, task_id).get("headers")


def anybody(name: str) -> None:
    """May put anywhere."""


@pytest.mark.parametrize("kind", DRIVERS)
def test_the_taker_who_asks_gets_them_and_nobody_else_sees_them(kind: str) -> None:
    bench, tube = bench_with(kind)
    worker = bench.worker()
    before = len(bench.log)
    assert put(bench, tube, headers=TRACE)[:2] == (0, "r")
    assert len(bench.log) == before + 1, "the task and its headers are one record"
    assert told(bench, tube) == TRACE
    plain = bench.call(tube.take, worker, 0, 0)
    assert plain[-1] == b"x"
    assert "headers" not in str(plain)
    bench.call(tube.release, worker, 0)
    taken = bench.call(tube.take, worker, 0, 0, "info")
    assert taken[2]["headers"] == TRACE
    assert "reason" not in taken[2]
    assert_replica_agrees(bench)
    bench.call(tube.ack, worker, 0)
    assert not tube.notes
    assert_replica_agrees(bench)


def test_a_task_without_headers_has_no_note_and_none_are_told() -> None:
    bench, tube = bench_with()
    for nothing in ({}, [], None):
        put(bench, tube, headers=nothing)
    assert not tube.notes
    assert "headers" not in bench.call(tube.take, bench.worker(), 0, 0, "info")[2]


@pytest.mark.parametrize("how", ["delete", "truncate", "ttl", "drop", "ack_many", "finish"])
def test_headers_go_with_their_task(how: str) -> None:
    bench, tube = bench_with("fifottl", ttl=5)
    worker = bench.worker()
    put(bench, tube, headers=TRACE)
    bench.call(tube.take, worker, 0, 0)
    if how == "delete":
        bench.call(tube.delete, worker, 0)
    elif how == "truncate":
        bench.call(tube.truncate, worker)
    elif how == "ttl":
        bench.pass_time(5)
    elif how == "ack_many":
        bench.call(batches.ack_many, tube, worker, [0])
    elif how == "finish":
        bench.call(finish.finish, tube, worker, 0, [(tube, b"y", {"headers": TRACE})])
        assert told(bench, tube, 1) == TRACE
        bench.call(tube.delete, worker, 1)
    else:
        bench.call(tube.release, worker, 0)
        bench.call(admin.drop_tube, bench.engine, tube)
    assert not bench.engine.notes[0].space.rows
    assert_replica_agrees(bench)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_restart_keeps_headers(snapshot: bool) -> None:
    bench, tube = bench_with("fifo", max_attempts=9)
    worker = bench.worker()
    put(bench, tube, headers=TRACE)
    put(bench, tube, headers={"traceparent": PARENT})
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.release, worker, 0, {"reason": "no"})
    other = restarted(bench, snapshot=snapshot)
    again = other.engine.tubes["jobs"]
    found = other.call(attempts.info, again, 0)
    assert (found["headers"], found["reason"], found["attempts"]) == (TRACE, "no", 1)
    assert told(other, again, 1) == {"traceparent": PARENT}


def test_dead_letters_redriven_kicked_and_moved_tasks_keep_them() -> None:
    bench = Bench()
    bench.start()
    dead = bench.create("dead", "fifo")
    tube = bench.create("jobs", "fifo", max_attempts=1, dead_letter="dead")
    other = bench.create("other", "utubettl")
    worker = bench.worker()
    put(bench, tube, headers=TRACE)
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.release, worker, 0)
    letter = bench.call(attempts.info, dead, 0)
    assert letter["headers"] == TRACE
    assert (letter["from_tube"], letter["from_attempts"]) == ("jobs", 1)
    assert_replica_agrees(bench)
    bench.call(tube.bury, worker, 0)
    assert bench.call(attempts.redrive, dead, worker, None, None, anybody) == 1
    assert told(bench, tube, 1) == TRACE
    bench.call(tube.bury, worker, 1)
    bench.call(tube.kick, worker, 1)
    assert told(bench, tube, 1) == TRACE
    wanted = {"to": "other"}
    assert bench.call(listing.bulk, tube, worker, "move", wanted, anybody)["count"] == 1
    assert told(bench, other) == TRACE
    assert {note[0] for note in bench.engine.notes[0].space.rows.values()} == {other.id}
    assert_replica_agrees(bench)


def test_a_kick_forgets_attempts_and_not_headers() -> None:
    bench, tube = bench_with("fifo", max_attempts=1)
    worker = bench.worker()
    put(bench, tube, headers=TRACE)
    bench.call(tube.take, worker, 0, 0)
    bench.call(tube.release, worker, 0)
    assert bench.call(attempts.info, tube, 0)["attempts"] == 1
    bench.call(tube.kick, worker, 1)
    found = bench.call(attempts.info, tube, 0)
    assert (found["attempts"], found["headers"]) == (0, TRACE)
    assert "reason" not in found
    assert_replica_agrees(bench)


def test_with_a_key_the_first_puts_headers_stay() -> None:
    bench, tube = bench_with()
    put(bench, tube, key="k", headers=TRACE)
    assert put(bench, tube, key="k", headers={"traceparent": PARENT})[:3] == (0, "r", True)
    assert told(bench, tube) == TRACE
    assert_replica_agrees(bench)


def test_batches_and_puts_that_wait_for_room() -> None:
    bench, tube = bench_with("limfifottl", capacity=2)
    worker = bench.worker()
    items = [(b"1", {"headers": {"tenant": "a"}}), (b"2", None)]
    assert bench.call(batches.put_many, tube, worker, items, {"headers": TRACE}) == [0, 1]
    assert [told(bench, tube, n) for n in (0, 1)] == [{"tenant": "a"}, TRACE]
    assert put(bench, tube, headers=TRACE) is NIL
    waiting = {"headers": TRACE, "timeout": 5}
    assert bench.call(tube.put, worker, 1, b"3", waiting) is PENDING
    bench.call(tube.delete, worker, 0)
    assert worker.told[0][1][0] == 2
    assert told(bench, tube, 2) == TRACE
    assert_replica_agrees(bench)


def test_a_temporary_tube_keeps_its_headers_here() -> None:
    bench, tube = bench_with("fifo", temporary=True)
    before = len(bench.log)
    put(bench, tube, headers=TRACE)
    assert told(bench, tube) == TRACE
    assert not [op for record in bench.log[before:] for op in record[3]]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x", "Invalid value of headers: expected a map, got string"),
        ([1], "Invalid value of headers: expected a map, got table"),
        ({f"h{n}": "" for n in range(17)}, "Invalid value of headers: 17 of them (at most 16)"),
        ({"a": "x" * 4096}, "Invalid value of headers: 4097 bytes (at most 4096)"),
        ({"": "x"}, "Invalid name of a header: ''"),
        ({"Traceparent": PARENT}, "Invalid name of a header: 'Traceparent'"),
        ({7: "x"}, "Invalid name of a header: 7"),
        ({"a" * 65: "x"}, "Invalid name of a header"),
        ({"a": 7}, "Invalid header a: expected a string, got number"),
        ({"a": "line\nbreak"}, "Invalid header a: expected printable ASCII"),
        ({"a": "é"}, "Invalid header a: expected printable ASCII"),
        ({"tracestate": "a=b"}, "Invalid header tracestate: it needs a traceparent"),
        ({**TRACE, "tracestate": "a=" + "b" * 511}, "Invalid header tracestate: 513 bytes"),
        (
            {**TRACE, "tracestate": ",".join(f"k{n}=v" for n in range(33))},
            "Invalid header tracestate: 33 members (at most 32)",
        ),
        ({**TRACE, "tracestate": "a=b,nonsense"}, "Invalid header tracestate: 'nonsense'"),
    ],
)
def test_what_is_refused(value: Any, said: str) -> None:
    bench, tube = bench_with()
    before = len(bench.log)
    assert text(put(bench, tube, headers=value)).startswith(said)
    items = [(b"fine", None), (b"x", {"headers": value})]
    refused = bench.call(batches.put_many, tube, bench.worker(), items)
    assert text(refused).startswith(said)
    assert not tube.space.rows
    assert not tube.notes
    assert len(bench.log) == before


@pytest.mark.parametrize(
    "parent",
    [
        "",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-more",
        "ff" + PARENT[2:],
        "00-" + "0" * 32 + PARENT[35:],
        PARENT[:36] + "0" * 16 + PARENT[52:],
        PARENT.replace("-", "_"),
        PARENT + "\n",
    ],
)
def test_a_traceparent_that_is_none_is_refused(parent: str) -> None:
    bench, tube = bench_with()
    answer = text(put(bench, tube, headers={"traceparent": parent}))
    assert answer.startswith("Invalid header traceparent: ")
    assert not tube.space.rows


def test_what_the_recommendation_allows_and_binary_strings() -> None:
    bench, tube = bench_with()
    later = "cc" + PARENT[2:] + "-what-comes-later"
    state = "a=b, t1@sys=x y , ,k*/-_=1"
    given = {b"traceparent": later.encode(), "tracestate": state, "baggage": "user=7;p=1,x=%20"}
    put(bench, tube, headers=given)
    wanted = {"traceparent": later, "tracestate": state, "baggage": "user=7;p=1,x=%20"}
    assert told(bench, tube) == wanted
    put(bench, tube, headers={"traceparent": PARENT, "tracestate": "a=" + "b" * 256})
    assert told(bench, tube, 1)["traceparent"] == PARENT
    assert_replica_agrees(bench)
