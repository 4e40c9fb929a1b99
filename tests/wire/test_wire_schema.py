"""Schema rows and SELECT as connectors send it at connect."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from tandemq.model.errors import QueueError
from tandemq_server.wire import schema
from tandemq_server.wire.replies import values_reply
from tandemq_server.wire.schema import ALL, EQ, GE, GT, LE, LT, REQ, SelectRequest

TUBE = schema.SpaceDescription(
    512,
    "q",
    [("task_id", "unsigned"), ("status", "string"), ("data", "any")],
    [
        schema.IndexDescription(0, "task_id", "tree", True, [(0, "unsigned")]),
        schema.IndexDescription(1, "status", "tree", True, [(1, "string"), (0, "unsigned")]),
    ],
    temporary=True,
)


def test_select_of_the_connectors() -> None:
    asynctnt = {0x10: 281, 0x12: 2**64 - 1, 0x14: 2, 0x20: []}
    assert schema.parse_select(asynctnt) == SelectRequest(281, 0, ALL, 2**64 - 1, 0, [])
    named = {0x10: 281, 0x11: 2, 0x12: 1, 0x13: 0, 0x14: 0, 0x20: ["q"]}
    assert schema.parse_select(named) == SelectRequest(281, 2, EQ, 1, 0, ["q"])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({0x10: None}, 69),
        ({0x12: None}, 69),
        ({0x20: None}, 69),
        ({0x10: "q"}, 20),
        ({0x11: -1}, 20),
        ({0x12: 1.0}, 20),
        ({0x13: True}, 20),
        ({0x20: {}}, 20),
        ({0x14: 12}, 1),
    ],
)
def test_select_refused(change: dict[int, Any], code: int) -> None:
    with pytest.raises(QueueError) as caught:
        schema.parse_select({0x10: 281, 0x12: 5, 0x20: [], **change})
    assert caught.value.code == code


def select(space: int, index: int = 0, iterator: int = ALL, *key: Any) -> list[Any]:
    request = SelectRequest(space, index, iterator, 2**64 - 1, 0, list(key))
    rows = schema.select_system(request, [TUBE])
    # They have to go over the wire as they are.
    reply = values_reply(1, rows)
    decoded: list[Any] = msgpack.unpackb(reply[28:], strict_map_key=False)[0x30]
    assert decoded == rows
    return decoded


def test_rows_describe_themselves_and_the_tubes() -> None:
    spaces = select(281)
    assert spaces == select(280)
    assert [row[:3] for row in spaces] == [
        [277, 1, "_vcollation"],
        [280, 1, "_space"],
        [281, 1, "_vspace"],
        [288, 1, "_index"],
        [289, 1, "_vindex"],
        [512, 1, "q"],
    ]
    assert spaces[-1][3:6] == ["memtx", 0, {"temporary": True}]
    assert spaces[-1][6][2] == {"name": "data", "type": "any"}
    indexes = select(289)
    assert indexes == select(288)
    assert {row[0] for row in indexes} <= {row[0] for row in spaces}
    status = [512, 1, "status", "tree", {"unique": True}, [[1, "string"], [0, "unsigned"]]]
    assert indexes[-1] == status
    assert [row[1] for row in select(277)] == ["none", "binary"]


def test_lookups_by_name() -> None:
    assert [row[0] for row in select(281, 2, EQ, "q")] == [512]
    assert select(281, 2, EQ, "nobody") == []
    assert [row[1] for row in select(289, 2, EQ, 512, "status")] == [1]
    assert [row[1] for row in select(289, 0, EQ, 512)] == [0, 1]


def test_system_select_refused() -> None:
    for space, index, code in ((300, 0, 36), (281, 7, 35)):
        with pytest.raises(QueueError) as caught:
            select(space, index)
        assert caught.value.code == code
    for index, key, code in ((0, ["x"], 18), (2, [5], 18), (0, [1, 2], 1)):
        with pytest.raises(QueueError) as caught:
            select(281, index, EQ, *key)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("iterator", "expected"),
    [
        (EQ, [3, 4]),
        (REQ, [4, 3]),
        (ALL, [3, 4, 5]),
        (GE, [3, 4, 5]),
        (GT, [5]),
        (LE, [4, 3, 2, 1]),
        (LT, [2, 1]),
    ],
)
def test_iterators(iterator: int, expected: list[int]) -> None:
    rows = [[5, "c"], [1, "a"], [4, "b"], [2, "a"], [3, "b"]]
    found = schema.filter_rows(rows, ["b"], iterator, 100, 0, [1, 0])
    assert [row[0] for row in found] == expected
    part = schema.filter_rows(rows, ["b"], iterator, 1, 1, [1, 0])
    assert [row[0] for row in part] == expected[1:2]
    assert schema.filter_rows([], ["b"], iterator, 1, 0, [1, 0]) == []
    everything = schema.filter_rows(rows, [], iterator, 100, 0, [0])
    assert len(everything) == 5
