"""utube: sub-queues by name; of each one at most one task is taken at a time, in strict order.

Fields: task_id, status, utube, data.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tandemq.model.record import SET
from tandemq_server.drivers.base import DriverMisuse, StatusDriver, sub_queue_name
from tandemq_server.spaces.space import IndexShape, Row, Space
from tandemq_server.spaces.status_index import CountingStatusIndex
from tandemq_server.spaces.subqueue_index import SubQueueIndex

FIELDS = (("task_id", "unsigned"), ("status", "string"), ("utube", "string"), ("data", "*"))
SHAPES = (
    IndexShape("task_id", [(0, "unsigned")]),
    IndexShape("status", [(1, "string"), (0, "unsigned")]),
    IndexShape("utube", [(1, "string"), (2, "string"), (0, "unsigned")]),
)


class Utube(StatusDriver):
    """Both storage modes of the original are accepted and run on the same structure."""

    name: ClassVar[str] = "utube"

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        super().__init__(space, opts)
        subs = space.indexes[1]
        assert isinstance(subs, SubQueueIndex)
        self.subs = subs

    @classmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        return Space(
            space_id,
            name,
            FIELDS,
            indexes=(CountingStatusIndex(), SubQueueIndex(2)),
            shapes=SHAPES,
            temporary=temporary,
            raw=3,
        )

    def check_put(self, opts: dict[str, Any] | None) -> None:
        sub_queue_name(opts)

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        space = self.space
        name = opts.get("utube") if opts else None
        if type(name) is not str:
            name = sub_queue_name(opts)
        row = (space.next_id, "r", name, data)
        space.insert(row)
        return row

    def take(self, now: int) -> Row | None:
        row = self.subs.first_ready()
        if row is None:
            return None
        task_id, _, name, data = row
        new = (task_id, "t", name, data)
        space = self.space
        space.update(task_id, row, new, (SET, space.id, task_id, 1, "t"))
        return new

    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        return self._move(self.space.rows[task_id], "r")

    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        raise DriverMisuse("utube queue does not support touch")
