"""utubettl: sub-queues with priority, time to live, time to run and delay.

Fields: task_id, status, next_event, ttl, ttr, pri, created, utube, data. Times in µs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from drivers.base import sub_queue_name
from drivers.deadlines import NEXT_EVENT, PRI, due
from drivers.fifottl import TtlDriver
from spaces.index import DeadlineIndex
from spaces.space import IndexShape, Row, Space
from spaces.status_index import CountingStatusIndex
from spaces.subqueue_index import SubQueueIndex

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

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        space = self.space
        if opts:
            status, next_event, ttl, ttr, pri = self._plan(opts, now)
            name = opts.get("utube")
            if type(name) is not str:
                name = sub_queue_name(opts)
        else:
            status, ttl, ttr, pri, name = "r", self.ttl_us, self.ttr_us, self.pri, "nil"
            next_event = now + ttl
        row = (space.next_id, status, next_event, ttl, ttr, pri, now, name, data)
        space.insert(row)
        return row

    def _first_ready(self) -> Row | None:
        return self.subs.first_ready()
