"""Tuples of a 1.5 space as rows here: ids, states and deadlines are kept."""

from __future__ import annotations

from typing import Any

from tandemq.model.errors import failure
from tandemq.model.task import NEVER_US
from tandemq_server.facades.queue15 import tasks as q
from tandemq_server.spaces.lane_index import MIDDLE
from tandemq_server.spaces.space import Row

#: Fields of a 1.5 row before its data: id, tube, status, event, ipri, pri, cid, created, ttl, ttr,
#: cbury, ctaken.
FIXED = 12
_STATUS_15 = {"r": "r", "d": "~", "t": "r", "b": "!", "*": "*"}


def _bad(fields: list[Any], what: str) -> Exception:
    return failure(f"Task {fields[0]} is not of the tube's layout: {what}")


def _number(fields: list[Any], at: int) -> int:
    """A number as 1.5 stored it: an integer, or the bytes of one, little-endian."""
    value = fields[at]
    if type(value) is str:
        value = value.encode("utf-8", "surrogateescape")
    if type(value) is bytes and len(value) in (1, 4, 8):
        value = int.from_bytes(value, "little")
    if type(value) is not int or not 0 <= value <= NEVER_US:
        raise _bad(fields, f"field {at} is not a number")
    return value


class Layout15:
    """Rows of a 1.5 space; everything behind the fixed fields is the payload, as an array."""

    fixed = FIXED
    text_keys = False

    def __init__(self, tasks: q.Tasks) -> None:
        self.tasks = tasks

    def row(self, fields: list[Any], payload: bytes, _now: int) -> tuple[Row, str]:
        ident, lane, status = fields[:3]
        if type(ident) is not str or type(lane) is not str or status not in _STATUS_15:
            raise _bad(fields, "expected id, tube and a status of r d t b *")
        if self.tasks.find(ident) is not None:
            raise _bad(fields, "its id is there already")
        event, ipri, pri, _, created, ttl, ttr, cbury, ctaken = (
            _number(fields, at) for at in range(3, FIXED)
        )
        if ipri > 255 or pri > 255:
            raise _bad(fields, "a priority is above 255")
        life = min(ttl, q.LONGEST_US)
        if status != "d":
            event = created + life
        task_id = self.tasks.space.next_id
        rank = MIDDLE + ipri - q.IPRI
        turn = task_id if rank > MIDDLE else 0
        row = (
            task_id, _STATUS_15[status], lane, ident, min(event, NEVER_US), rank, pri, turn,
            created, life, ttr, cbury, ctaken, payload,
        )  # fmt: skip
        return row, ident
