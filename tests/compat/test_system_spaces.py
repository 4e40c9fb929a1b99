"""The spaces connectors and operators read: names, fields, indexes and rows as in the original."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.compat_client import Raw, call, new_tube, refusal
from tests.compat.compat_server import Server

VSPACE, VINDEX = 281, 289
# Space -> fields, and indexes as (name, unique, fields).
SPACES: dict[str, tuple[str, list[tuple[str, bool, tuple[int, ...]]]]] = {
    "_queue": (
        "tube_name:string tube_id:unsigned space_name:string tube_type:string opts:*",
        [("tube", True, (0,)), ("tube_id", True, (1,))],
    ),
    "_queue_consumers": (
        "connection_id:unsigned fiber_id:unsigned tube_id:unsigned event_time:unsigned "
        "fiber_time:unsigned",
        [("pk", True, (0, 1)), ("consumer", False, (2, 3))],
    ),
    "_queue_taken_2": (
        "tube_id:unsigned task_id:unsigned connection_id:unsigned session_uuid:string "
        "taken_time:unsigned",
        [("task", True, (0, 1)), ("uuid", False, (3,))],
    ),
    "_queue_session_ids": (
        "connection_id:unsigned session_uuid:string",
        [("conn_id", True, (0,)), ("uuid", False, (1,))],
    ),
    "_queue_shared_sessions": (
        "uuid:string exp_time:unsigned active:boolean user:string",
        [("uuid", True, (0,)), ("active", True, (2, 0))],
    ),
}
TTL_FIELDS = "task_id status next_event ttl ttr pri created"
TUBE_SPACES = {
    "fifo": "task_id status data",
    "fifottl": f"{TTL_FIELDS} data",
    "limfifottl": f"{TTL_FIELDS} data",
    "utube": "task_id status utube data",
    "utubettl": f"{TTL_FIELDS} utube data",
}


def definition(raw: Raw, name: str) -> tuple[list[dict[str, str]], list[Any]]:
    """(fields, index rows) of a space, from the spaces a connector fetches."""
    ((number, _owner, _name, _engine, _count, _flags, fields),) = raw.select(VSPACE, 2, [name])
    return fields, raw.select(VINDEX, 0, [number])


@pytest.mark.parametrize("name", SPACES)
def test_definition(raw: Raw, name: str) -> None:
    fields, indexes = definition(raw, name)
    wanted, wanted_indexes = SPACES[name]
    told = [f"{field['name']}:{field['type']}" for field in fields]
    assert [text.replace(":any", ":*") for text in told] == wanted.split()
    found = [(row[2], row[4]["unique"], tuple(part[0] for part in row[5])) for row in indexes]
    assert found == wanted_indexes


@pytest.mark.parametrize("driver", TUBE_SPACES)
def test_tube_definition(raw: Raw, driver: str) -> None:
    tube = new_tube(raw, driver)
    fields, indexes = definition(raw, tube.name)
    assert [field["name"] for field in fields] == TUBE_SPACES[driver].split()
    assert [row[2] for row in indexes][:2] == ["task_id", "status"]
    tube("put", {"deep": [1]})
    ((task_id, status, *_, data),) = raw.rows(tube.name)
    assert (task_id, status, data) == (0, "r", {"deep": [1]})


def test_queue_row(raw: Raw) -> None:
    tube = new_tube(raw, "fifottl")
    (found,) = raw.select(raw.space_id("_queue"), 0, [tube.name])
    name, number, space, kind, options = found
    assert (name, space, kind) == (tube.name, tube.name, "fifottl")
    assert options == {"ttl": 3153600000, "ttr": 3153600000, "pri": 0, "if_not_exists": False}
    assert raw.select(raw.space_id("_queue"), 1, [number]) == [found]


def test_taken_and_session_rows(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    tube("put", "x")
    tube("take", 0)
    (number,) = (row[1] for row in raw.rows("_queue") if row[0] == tube.name)
    (connection,) = raw.call("box.session.id")
    uuid = raw.identify()
    (taken,) = raw.select(raw.space_id("_queue_taken_2"), 0, [number, 0])
    assert taken[:4] == [number, 0, connection, uuid]
    assert abs(taken[4] / 1_000_000 - time.time()) < 60
    assert [connection, uuid] in raw.rows("_queue_session_ids")
    assert [uuid, 0, True, "guest"] in raw.rows("_queue_shared_sessions")
    tube("ack", 0)
    assert raw.select(raw.space_id("_queue_taken_2"), 0, [number, 0]) == []


def test_consumer_rows(raw: Raw) -> None:
    tube = new_tube(raw, "fifo")
    (number,) = (row[1] for row in raw.rows("_queue") if row[0] == tube.name)
    waiting = tube.start("take", 60)
    (connection,) = raw.call("box.session.id")
    (row,) = (row for row in raw.rows("_queue_consumers") if row[2] == number)
    assert row[0] == connection
    assert 30 < row[3] / 1_000_000 - time.time() < 90
    tube("put", "x")
    raw.answer(waiting)
    assert all(row[2] != number for row in raw.rows("_queue_consumers"))


def test_unknown_space_and_index(raw: Raw) -> None:
    assert refusal(lambda: raw.select(99_999)).code == 36
    assert refusal(lambda: raw.select(raw.space_id("_queue"), 9)).code == 35


def test_temporary_tubes_end_with_the_node(
    launch: Callable[..., Server], connect: Callable[..., Any]
) -> None:
    node = launch()
    conn = connect(node)
    for name, temporary in (("brief", True), ("kept", False)):
        call(conn, "queue.create_tube", name, "fifo", {"temporary": temporary})
        call(conn, f"queue.tube.{name}:put", "x")
    node.restart()
    conn = connect(node)
    assert call(conn, "queue.tube.kept:take", 0) == [[0, "t", "x"]]
    (statistics,) = call(conn, "queue.statistics")
    assert statistics["brief"]["tasks"]["total"] == 0
