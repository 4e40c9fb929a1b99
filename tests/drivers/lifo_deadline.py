"""An example driver: the last task put is the first one taken, and each may have a deadline.

Whatever state a task is in when its deadline comes, it is removed. Everything here is the public
contract: drivers.base, a space, two indexes. Described step by step in docs/custom-drivers.md.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tandemq.model.task import NEVER_US
from tandemq_server.drivers.base import DriverMisuse, Event, StatusDriver
from tandemq_server.drivers.deadlines import duration_us
from tandemq_server.spaces.index import DeadlineIndex
from tandemq_server.spaces.space import IndexShape, Row, Space
from tandemq_server.spaces.status_index import StatusIndex

#: Fields of a row. ORDER falls as ids rise, so the index by (order, id) serves the newest first.
STATUS, ORDER, DEADLINE, DATA = 1, 2, 3, 4
FIELDS = (
    ("task_id", "unsigned"),
    ("status", "string"),
    ("order", "unsigned"),
    ("deadline", "unsigned"),
    ("data", "*"),
)
SHAPES = (
    IndexShape("task_id", [(0, "unsigned")]),
    IndexShape("status", [(1, "string"), (2, "unsigned")]),
)
#: What the deadline field holds when there is none.
NONE = 0


def due(row: Row) -> int | None:
    return row[DEADLINE] or None


class LifoDeadline(StatusDriver):
    """`deadline` (s): of a put, how long the task may live; of the tube, what a put is given."""

    name: ClassVar[str] = "lifo"
    tube_options: ClassVar[frozenset[str]] = frozenset({"deadline"})
    task_options: ClassVar[frozenset[str]] = frozenset({"deadline"})

    @classmethod
    def check_options(cls, opts: dict[str, Any]) -> dict[str, Any]:
        if opts.get("deadline") is not None:
            duration_us("deadline", opts["deadline"])
        return opts

    @classmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        return Space(
            space_id,
            name,
            FIELDS,
            indexes=(StatusIndex(ORDER), DeadlineIndex(DEADLINE, due)),
            shapes=SHAPES,
            temporary=temporary,
            raw=DATA,
        )

    def check_put(self, opts: dict[str, Any] | None) -> None:
        self._deadline(opts, 0)

    def _deadline(self, opts: dict[str, Any] | None, now: int) -> int:
        value = opts.get("deadline") if opts else None
        if value is None:
            value = self.opts.get("deadline")
        return NONE if value is None else now + duration_us("deadline", value)

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        task_id = self.space.next_id
        row = (task_id, "r", NEVER_US - task_id, self._deadline(opts, now), data)
        self.space.insert(row)
        return row

    def take(self, now: int) -> Row | None:
        row = self.status.first_ready()
        if row is None or 0 < row[DEADLINE] <= now:
            return row  # too late for this one: the engine calls expire and asks again
        return self.space.set(row[0], STATUS, "t")

    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        return self.space.set(task_id, STATUS, "r")

    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        deadline = self.space.rows[task_id][DEADLINE]
        if deadline == NONE:
            raise DriverMisuse(f"Task {task_id} has no deadline to move")
        return self.space.set(task_id, DEADLINE, min(deadline + delta_us, NEVER_US))

    def expire(self, task_id: int, now: int) -> list[Event]:
        done = self.delete(task_id, now)
        return [("delete", done), ("ttl", done)]
