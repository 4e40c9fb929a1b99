"""utubettl: sub-queues with priority, time to live, time to run and delay.

Fields: task_id, status, next_event, ttl, ttr, pri, created, utube, data. Times in µs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tandemq.model.record import SET
from tandemq_server.drivers.base import sub_queue_name
from tandemq_server.drivers.deadlines import NEXT_EVENT, PRI, due
from tandemq_server.drivers.fifottl import TtlDriver
from tandemq_server.spaces.index import DeadlineIndex
from tandemq_server.spaces.space import IndexShape, Row, Space
from tandemq_server.spaces.status_index import CountingStatusIndex
from tandemq_server.spaces.subqueue_index import SubQueueIndex

UTUBE = 7
FIELDS = (
    ("task_id", "unsigned"),
    ("status", "string"),
    ("next_event", "unsigned"),
    ("ttl", "unsigned"),
    ("ttr", "unsigned"),
    ("pri", "unsigned"),
    ("created", "unsigned"),
    ("utube", "string"),
    ("data", "*"),
)
SHAPES = (
    IndexShape("task_id", [(0, "unsigned")]),
    IndexShape("status", [(1, "string"), (5, "unsigned"), (0, "unsigned")]),
    IndexShape("watch", [(1, "string"), (2, "unsigned")], unique=False),
    IndexShape("utube", [(1, "string"), (7, "string"), (0, "unsigned")]),
    IndexShape("utube_pri", [(1, "string"), (7, "string"), (5, "unsigned"), (0, "unsigned")]),
)


class UtubeTtl(TtlDriver):
    name: ClassVar[str] = "utubettl"

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
            indexes=(
                CountingStatusIndex(PRI),
                SubQueueIndex(UTUBE, PRI),
                DeadlineIndex(NEXT_EVENT, due),
            ),
            shapes=SHAPES,
            temporary=temporary,
            raw=8,
        )

    def check_put(self, opts: dict[str, Any] | None) -> None:
        super().check_put(opts)
        sub_queue_name(opts)

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        space = self.space
        status, ttl, ttr, pri, name = "r", self.ttl_us, self.ttr_us, self.pri, "nil"
        next_event = now + ttl
        if opts:
            wanted = opts.get("utube")
            name = wanted if type(wanted) is str else sub_queue_name(opts)
            if len(opts) > 1 or "utube" not in opts:
                status, next_event, ttl, ttr, pri = self._plan(opts, now)
        row = (space.next_id, status, next_event, ttl, ttr, pri, now, name, data)
        space.insert(row)
        return row

    def take(self, now: int) -> Row | None:
        row = self.subs.first_ready()
        if row is None:
            return None
        task_id, _, _, ttl, ttr, pri, created, name, data = row
        ends = created + ttl
        if ends <= now:
            return row
        next_event = now + ttr
        if ends < next_event:
            next_event = ends
        new = (task_id, "t", next_event, ttl, ttr, pri, created, name, data)
        space = self.space
        space.update(task_id, row, new, (SET, space.id, task_id, 1, "t", NEXT_EVENT, next_event))
        return new
