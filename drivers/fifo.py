"""fifo: tasks in order of their ids, nothing else.

Fields: task_id, status, data.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tandemq_server.drivers.base import DriverMisuse, StatusDriver
from tandemq_server.spaces.space import IndexShape, Row, Space
from tandemq_server.spaces.status_index import StatusIndex

FIELDS = (("task_id", "unsigned"), ("status", "string"), ("data", "*"))
SHAPES = (
    IndexShape("task_id", [(0, "unsigned")]),
    IndexShape("status", [(1, "string"), (0, "unsigned")]),
)


class Fifo(StatusDriver):
    name: ClassVar[str] = "fifo"

    @classmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        return Space(
            space_id,
            name,
            FIELDS,
            indexes=(StatusIndex(),),
            shapes=SHAPES,
            temporary=temporary,
            raw=2,
        )

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        space = self.space
        row = (space.next_id, "r", data)
        space.insert(row)
        return row

    def take(self, now: int) -> Row | None:
        return self.status.take_first()

    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        return self._move(self.space.rows[task_id], "r")

    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        raise DriverMisuse("fifo queue does not support touch")

    def put_many(self, items: list[tuple[bytes, dict[str, Any] | None]], now: int) -> list[Row]:
        first = self.space.next_id
        rows: list[Row] = [(first + n, "r", item[0]) for n, item in enumerate(items)]
        if rows:
            self.space.insert_many(rows)
        return rows

    def take_many(self, count: int, now: int) -> list[Row]:
        old = self.status.take_ready(count)
        new: list[Row] = [(row[0], "t", row[2]) for row in old]
        if old:
            self.space.update_many(old, new, self.status, 1, "t")
        return new

    def delete_many(self, ids: list[int], now: int) -> list[Row]:
        return self.space.delete_many(ids) if ids else []
