"""Every operation of every driver, by a real engine: what each documented column says of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from benchmarks.logmaker import LogMaker
from tandemq.model.record import KIND_TERM, SET, TERM
from tandemq.spark.columns import BY_NAME
from tandemq.spark.decode import Decoder
from tandemq.spark.logs import LogQuery, plan
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import attempts, finish
from tandemq_server.facades.queue15.spaces import Space15

SECOND = 1_000_000
Row = dict[str, Any]


def read(path: Path, **how: Any) -> list[Row]:
    """The rows, which the compiled walk and plain Python must agree on."""
    found: list[list[Row]] = []
    for walk in (True, False):
        rows: list[Row] = []
        for part in plan([str(path)], LogQuery()):
            for batch in Decoder(part, tuple(BY_NAME), compiled=walk, **how).batches():
                batch.validate(full=True)
                rows += pa.Table.from_batches([batch]).to_pylist()
        found.append(rows)
    walked, plain = (
        sorted(rows, key=lambda row: (row["lsn"], str(row["tube"]), row["task_id"] or 0))
        for rows in found
    )
    assert walked == plain
    return walked


def about(rows: list[Row], tube: str, task: int | None, *columns: str) -> list[tuple[Any, ...]]:
    """(operation, state before, state after, columns...) of a task."""
    names = ("operation", "state_from", "state_to", *columns)
    return [
        tuple(row[name] for name in names)
        for row in rows
        if row["tube"] == tube and row["task_id"] == task
    ]


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_every_operation_of_a_tube(maker: LogMaker, kind: str) -> None:
    timed, sub = kind.endswith("ttl"), kind.startswith("utube")
    opts = {"capacity": 100} if kind == "limfifottl" else {}
    tube = maker.tube("q", kind, **opts)
    worker, other = maker.clients[1], maker.clients[2]
    put: dict[str, Any] = {"ttl": 90, "ttr": 9, "pri": 4} if timed else {}
    for number in range(7):
        maker.put(tube, {"n": number}, **put, **({"utube": f"u{number}"} if sub else {}))
    maker.turn()
    steps: list[Callable[[], Any]] = [
        lambda: tube.ack(worker, 0),
        lambda: tube.release(worker, 1, {"delay": 3} if timed else None),
        lambda: tube.bury(worker, 2),
        lambda: tube.kick(worker, 1),
        lambda: tube.delete(worker, 3),
        lambda: finish.finish(tube, worker, 4, [(tube, msgpack.packb("next"), put)]),
        lambda: tube.release_all(None),
    ]
    for _ in range(6):
        maker.take(tube)
        maker.turn(1)
    for step in steps:
        step()
        maker.turn(1)
    if timed:
        maker.put(tube, "short", ttl=1, pri=9)
        maker.put(tube, "late", delay=2, pri=9)
        maker.turn(4 * SECOND)
        assert maker.take(tube, 2) is not None
        maker.turn()
        tube.touch(other, 1, 5)
        maker.turn()
        maker.turn(16 * SECOND)
    tube.truncate(worker)
    maker.turn()
    maker.close()
    rows = read(maker.directory)
    first = ("put", None, "r")
    taken = ("take", "r", "t")
    assert about(rows, "q", 0) == [first, taken, ("ack", "t", "-")]
    assert about(rows, "q", 2) == [first, taken, ("bury", None, "!"), ("kick", "!", "r")]
    assert about(rows, "q", 3) == [first, taken, ("delete", None, "-")]
    assert about(rows, "q", 4) == [first, taken, ("finish", None, "-")]
    assert about(rows, "q", 5) == [first, taken, ("release", "t", "r")]
    assert about(rows, "q", 6) == [first]
    assert about(rows, "q", 7) == [first]
    told = [row for row in rows if row["tube"] == "q"]
    ends = [told[0]["operation"], told[-1]["operation"]]
    assert ends == ["create_tube", "truncate"]
    puts = [row for row in told if row["operation"] == "put"][:7]
    assert [json.loads(row["payload_json"]) for row in puts] == [{"n": n} for n in range(7)]
    assert [msgpack.unpackb(row["payload"]) for row in puts] == [{"n": n} for n in range(7)]
    assert {row["attempts"] for row in puts} == {0}
    assert [row["utube"] for row in puts] == [f"u{n}" if sub else None for n in range(7)]
    wanted = (90 * SECOND, 9 * SECOND, 4) if timed else (None, None, None)
    assert {(row["ttl"], row["ttr"], row["priority"]) for row in puts} == {wanted}
    assert {row["tube_type"] for row in told} == {kind}
    assert {row["term"] for row in rows} == {1}
    sessions = {row["session"] for row in told if row["operation"] in ("take", "ack", "bury")}
    if not timed:
        assert about(rows, "q", 1) == [first, taken, ("release", "t", "r")]
        assert len(sessions) == 1
        return
    assert about(rows, "q", 1, "delay") == [
        (*first, None),
        (*taken, None),
        ("release", "t", "~", 3 * SECOND),
        ("delay", "~", "r", None),
        (*taken, None),
        ("touch", "t", None, None),
        ("ttr", "t", "r", None),
    ]
    assert about(rows, "q", 8) == [first, ("ttl", None, "-")]
    (late, *_) = about(rows, "q", 9, "delay", "ttl")
    assert late[:4] == ("put", None, "~", 2 * SECOND)
    assert len(sessions) == 2


def test_attempts_stand_where_a_tube_counts_them(maker: LogMaker) -> None:
    dead = maker.tube("dead", "fifo")
    plain = maker.tube("plain", "fifo")
    tube = maker.tube("q", "fifottl", max_attempts=3, dead_letter="dead", ttr=9)
    worker = maker.clients[1]
    for number in range(3):
        maker.put(tube, number)
    maker.put(plain, 0)
    maker.turn()
    for _ in range(3):
        maker.take(tube)
    maker.take(plain)
    maker.turn()
    tube.release(worker, 0)
    tube.bury(worker, 1)
    plain.release(worker, 0)
    maker.turn(9 * SECOND)
    maker.turn()
    tube.kick(worker, 1)
    maker.turn()
    for _ in range(2):
        maker.take(tube)
        maker.turn()
        tube.release(worker, 0, {"reason": "no"})
        maker.turn()
    attempts.redrive(dead, worker, None, None, lambda name: None)
    for _ in range(3):
        maker.take(tube)
    maker.turn()
    tube.release_all(None)
    maker.turn()
    maker.close()
    rows = read(maker.directory)
    first, taken = ("put", None, "r", 0), ("take", "r", "t", None)
    assert about(rows, "q", 0, "attempts") == [
        first,
        taken,
        ("release", "t", "r", 1),
        taken,
        ("release", "t", "r", 2),
        taken,
        ("dead", None, "-", 3),
    ]
    assert about(rows, "q", 1, "attempts")[:4] == [
        first, taken, ("bury", None, "!", 1), ("kick", "!", "r", None),
    ]  # fmt: skip
    assert about(rows, "q", 2, "attempts")[:3] == [first, taken, ("ttr", "t", "r", 1)]
    assert about(rows, "dead", 0, "attempts") == [first, ("move", None, "-", None)]
    assert about(rows, "plain", 0, "attempts") == [first, taken, ("release", "t", "r", None)]
    # All of them at once, in one record, each with its own count.
    last = [row for row in rows if row["kind"] == "release_all"]
    assert {row["task_id"]: row["attempts"] for row in last} == {1: 1, 2: 2, 3: 1}
    assert len({row["lsn"] for row in last}) == 1


def test_every_operation_of_a_queue15_space(maker: LogMaker) -> None:
    tube = maker.tube("space0", "queue15")
    space = Space15(maker.engine, maker.clients[1], 0)

    def turn(call: Callable[..., Any], *args: Any, seconds: int = 0) -> None:
        call(*args)
        maker.turn(seconds * SECOND + 1)

    def put(delay: int, ttl: int) -> str:
        turn(space.put, ["mail", delay, ttl, 9, 5], msgpack.packb(["body", 1]))
        return str(list(tube.space.rows.values())[-1][3])

    one = put(0, 100)
    take = (space.take, "ticket", "mail", 0)
    turn(*take)
    turn(space.release, one, 2, seconds=2)
    turn(*take)
    turn(space.bury, one)
    turn(space.dig, one)
    turn(*take)
    turn(space.touch, one)
    turn(space.requeue, one)
    turn(*take, seconds=9)
    turn(*take)
    turn(space.done, one, msgpack.packb(["over"]))
    turn(space.delete, one)
    two = put(0, 100)
    turn(*take)
    turn(space.ack, two)
    put(0, 1)
    maker.turn(2 * SECOND)
    put(5, 100)
    turn(space.truncate, "mail")
    maker.close()
    rows = read(maker.directory)
    first, taken = ("put", None, "r", 0), ("take", "r", "t")
    assert about(rows, "space0", 0, "attempts", "delay") == [
        (*first, None),
        (*taken, 1, None),
        ("release", "t", "~", None, 2 * SECOND),
        ("delay", "~", "r", None, None),
        (*taken, 2, None),
        ("bury", None, "!", None, None),
        ("kick", "!", "r", None, None),
        (*taken, 3, None),
        ("touch", "t", "t", None, None),
        ("release", "t", "r", None, None),
        (*taken, 4, None),
        ("ttr", "t", "r", None, None),
        (*taken, 5, None),
        ("other", None, "*", None, None),
        ("delete", None, "-", None, None),
    ]
    assert about(rows, "space0", 1, "attempts")[1:] == [(*taken, 1), ("ack", "t", "-", None)]
    assert about(rows, "space0", 2) == [first[:3], ("ttl", None, "-")]
    assert about(rows, "space0", 3, "delay") == [
        ("put", None, "~", 5 * SECOND), ("truncate", None, "-", None),
    ]  # fmt: skip
    put_row = next(row for row in rows if row["operation"] == "put")
    assert (put_row["ttl"], put_row["ttr"]) == (100 * SECOND, 9 * SECOND)
    assert (put_row["utube"], put_row["tube_type"]) == ("mail", "queue15")
    assert put_row["payload_json"] == '["body", 1]'
    # As it is stored, so that the smaller one is served first.
    assert put_row["priority"] == 255 - (127 + 5)


RECORD = [["id", "unsigned"], ["status", "string"], ["runat", "number"], ["priority", "number"]]


@pytest.mark.parametrize("key", ["unsigned", "string"])
def test_every_operation_of_an_xqueue_tube(maker: LogMaker, key: str) -> None:
    form = [["id", key], *RECORD[1:], ["note", "any"]]
    tube: Any = maker.tube(
        "q",
        "xqueue",
        format=[{"name": name, "type": kind} for name, kind in form],
        fields={name: name for name in ("status", "runat", "priority")},
        features={"id": "required", "delayed": True, "buried": True, "ttl": True, "ttr": True},
    )
    worker = maker.clients[1]
    ids: list[Any] = [1, 2, 3] if key == "unsigned" else ["a", "b", "c"]

    def turn(call: Callable[..., Any], *args: Any, seconds: int = 0) -> None:
        call(*args)
        maker.turn(seconds * SECOND + 1)

    one, two, three = ids
    take = (tube.take_record, worker, "ticket", 0, {"ttr": 9})
    turn(tube.put_record, worker, "ticket", {"id": one, "priority": 1, "note": {"x": b"\xff"}})
    turn(*take)
    turn(tube.release_record, worker, one, {"delay": 2}, seconds=2)
    turn(*take)
    turn(tube.touch_record, worker, one, {"increment": 3})
    turn(tube.bury_record, worker, one)
    turn(tube.dig, worker, one)
    turn(*take, seconds=12)
    turn(*take)
    turn(tube.ack_record, worker, one)
    turn(tube.put_record, worker, "ticket", {"id": two, "priority": 1}, {"ttl": 1}, seconds=2)
    turn(tube.put_record, worker, "ticket", {"id": three, "priority": 1}, {"delay": 5})
    turn(tube.kill, worker, three)
    maker.close()
    rows = [row for row in read(maker.directory) if row["tube"] == "q"][1:]
    keys = [json.loads(row["detail"])["key"] for row in rows] if key == "string" else None
    assert {row["task_id"] for row in rows} == ({None} if keys else {1, 2, 3})
    told = [
        (row["operation"], row["state_from"], row["state_to"], row["delay"])
        for row, name in zip(rows, keys or [row["task_id"] for row in rows], strict=True)
        if name == one
    ]
    taken = ("take", "r", "t", None)
    assert told == [
        ("put", None, "r", None),
        taken,
        ("release", "t", "~", 2 * SECOND),
        ("delay", "~", "r", None),
        taken,
        ("touch", "t", "t", None),
        ("bury", None, "!", None),
        ("kick", "!", "r", None),
        taken,
        ("ttr", "t", "r", None),
        taken,
        ("ack", "t", "-", None),
    ]
    ends = [(row["operation"], row["delay"]) for row in rows[len(told) :]]
    assert ends == [("put", None), ("ttl", None), ("put", 5 * SECOND), ("delete", None)]
    # The record's own fields, in the order of its format without key, status and runat.
    assert json.loads(rows[0]["payload_json"]) == [1, {"x": "\\xff"}]


def test_a_term_that_releases_tasks_is_a_row_of_its_own(maker: LogMaker) -> None:
    tube = maker.tube("q", "fifo")
    for number in range(2):
        maker.put(tube, number)
    maker.take(tube)
    maker.turn()
    sid = tube.space.id
    parent = maker.term.id
    lsn = maker.log.last_lsn + 1
    term = (TERM, 2**11, b"f" * 16, parent, lsn, "b", True)
    maker.write([(maker.engine.now, KIND_TERM, None, [term, (SET, sid, 0, 1, "r")])])
    # Not as a node writes it: what the compiled walk leaves to plain Python.
    maker.write([(maker.engine.now, KIND_TERM, None, [(SET, sid, 0, 1, "r"), term])])
    maker.close()
    rows = read(maker.directory)[-4:]
    assert [(row["operation"], row["tube"], row["task_id"], row["lsn"]) for row in rows] == [
        ("term", None, None, lsn),
        ("release", "q", 0, lsn),
        ("term", None, None, lsn + 1),
        ("release", "q", 0, lsn + 1),
    ]
    assert {row["kind"] for row in rows} == {"term"}
    assert json.loads(rows[0]["detail"]) == {
        "number": 2**11, "id": "66" * 16, "parent": parent.hex(), "start_lsn": lsn, "node": "b",
        "solo": True,
    }  # fmt: skip
    only = read(maker.directory, operations=frozenset({"term"}))
    assert [row["operation"] for row in only] == ["term"] * 3
    none = read(maker.directory, operations=frozenset({"release"}), tubes=frozenset({"q"}))
    assert [row["operation"] for row in none] == ["release"] * 2
