"""fifottl and limfifottl: priority, time to live, time to run, delay; the latter with a capacity.

Fields: task_id, status, next_event, ttl, ttr, pri, created, data. Times in µs.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tandemq.model.record import SET
from tandemq.model.task import INFINITY_S, NEVER_US
from tandemq_server.drivers.base import DriverMisuse, Event, StatusDriver
from tandemq_server.drivers.deadlines import (
    CREATED,
    LONGEST_US,
    NEXT_EVENT,
    PRI,
    TTL,
    TTR,
    due,
    duration_us,
    priority,
)
from tandemq_server.spaces.index import DeadlineIndex
from tandemq_server.spaces.space import IndexShape, Row, Space
from tandemq_server.spaces.status_index import StatusIndex

FIELDS = (
    ("task_id", "unsigned"),
    ("status", "string"),
    ("next_event", "unsigned"),
    ("ttl", "unsigned"),
    ("ttr", "unsigned"),
    ("pri", "unsigned"),
    ("created", "unsigned"),
    ("data", "*"),
)
SHAPES = (
    IndexShape("task_id", [(0, "unsigned")]),
    IndexShape("status", [(1, "string"), (5, "unsigned"), (0, "unsigned")]),
    IndexShape("watch", [(1, "string"), (2, "unsigned")], unique=False),
)


class TtlDriver(StatusDriver):
    """Deadlines, for rows that share the fields up to `created`."""

    delays: ClassVar[bool] = True

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        super().__init__(space, opts)
        self.ttl_us = duration_us("ttl", opts["ttl"])
        self.ttr_us = duration_us("ttr", opts["ttr"])
        self.pri = priority(opts["pri"])

    @classmethod
    def check_options(cls, opts: dict[str, Any]) -> dict[str, Any]:
        """ttl: 100 years unless given; ttr: the ttl; pri: 0. Seconds, kept as they were given."""
        ttl = opts.get("ttl")
        ttr = opts.get("ttr")
        pri = opts.get("pri")
        full = dict(opts)
        full["ttl"] = INFINITY_S if ttl is None else ttl
        full["ttr"] = full["ttl"] if ttr is None else ttr
        full["pri"] = 0 if pri is None else priority(pri)
        duration_us("ttl", full["ttl"])
        duration_us("ttr", full["ttr"])
        return full

    def _plan(self, opts: dict[str, Any], now: int) -> tuple[str, int, int, int, int]:
        """(status, next_event, ttl, ttr, pri) of a new task with options."""
        get = opts.get
        value = get("ttl")
        ttl = self.ttl_us if value is None else duration_us("ttl", value)
        value = get("ttr")
        ttr = self.ttr_us if value is None else duration_us("ttr", value)
        value = get("pri")
        pri = self.pri if value is None else priority(value)
        value = get("delay")
        delay = 0 if value is None else duration_us("delay", value)
        if delay:
            return "~", now + delay, ttl + delay, ttr, pri
        return "r", now + ttl, ttl, ttr, pri

    def check_put(self, opts: dict[str, Any] | None) -> None:
        if opts:
            self._plan(opts, 0)

    def _move_with(self, row: Row, status: str, next_event: int) -> Row:
        task_id = row[0]
        new = (task_id, status, next_event, *row[3:])
        space = self.space
        op = (SET, space.id, task_id, 1, status, NEXT_EVENT, next_event)
        space.update(task_id, row, new, op)
        return new

    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        row = self.space.rows[task_id]
        value = opts.get("delay") if opts else None
        delay = 0 if value is None else duration_us("delay", value)
        if not delay:
            return self._move_with(row, "r", row[CREATED] + row[TTL])
        return self.space.set(
            task_id, 1, "~", NEXT_EVENT, now + delay, TTL, min(row[TTL] + delay, LONGEST_US)
        )

    def bury(self, task_id: int, now: int) -> Row:
        row = self.space.rows[task_id]
        return self._move_with(row, "!", row[CREATED] + row[TTL])

    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        row = self.space.rows[task_id]
        next_event = min(row[NEXT_EVENT] + delta_us, NEVER_US)
        ttl = min(row[TTL] + delta_us, LONGEST_US)
        ttr = min(row[TTR] + delta_us, LONGEST_US)
        return self.space.set(task_id, NEXT_EVENT, next_event, TTL, ttl, TTR, ttr)

    def prolong(self, task_id: int, by_us: int, now: int) -> Row | None:
        row = self.space.rows[task_id]
        later = min(row[NEXT_EVENT] + by_us, row[CREATED] + row[TTL])
        return self.space.set(task_id, NEXT_EVENT, later) if later > row[NEXT_EVENT] else None

    def expire(self, task_id: int, now: int) -> list[Event]:
        """ttl removes a task that is ready or buried, ttr and delay make it ready again."""
        row = self.space.rows[task_id]
        status = row[1]
        if status in "r!":
            done = self.delete(task_id, now)
            return [("delete", done), ("ttl", done)]
        ready = self._move_with(row, "r", row[CREATED] + row[TTL])
        return [("ttr" if status == "t" else "delay", ready)]


class FifoTtl(TtlDriver):
    name: ClassVar[str] = "fifottl"

    @classmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        return Space(
            space_id,
            name,
            FIELDS,
            indexes=(StatusIndex(PRI), DeadlineIndex(NEXT_EVENT, due)),
            shapes=SHAPES,
            temporary=temporary,
            raw=7,
        )

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        space = self.space
        if opts:
            status, next_event, ttl, ttr, pri = self._plan(opts, now)
            row = (space.next_id, status, next_event, ttl, ttr, pri, now, data)
        else:
            ttl = self.ttl_us
            row = (space.next_id, "r", now + ttl, ttl, self.ttr_us, self.pri, now, data)
        space.insert(row)
        return row

    def take(self, now: int) -> Row | None:
        row = self.status.first_ready()
        if row is None:
            return None
        task_id, _, _, ttl, ttr, pri, created, data = row
        next_event = now + ttr
        if created + ttl <= next_event:
            next_event = created + ttl
            if next_event <= now:
                return row
        new = (task_id, "t", next_event, ttl, ttr, pri, created, data)
        space = self.space
        op = (SET, space.id, task_id, 1, "t", NEXT_EVENT, next_event)
        space.update(task_id, row, new, op)
        return new


class LimFifoTtl(FifoTtl):
    """fifottl with room for `capacity` tasks, all states counted; 0 or none = no limit."""

    name: ClassVar[str] = "limfifottl"

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        super().__init__(space, opts)
        self.capacity = opts["capacity"]

    @classmethod
    def check_options(cls, opts: dict[str, Any]) -> dict[str, Any]:
        full = super().check_options(opts)
        capacity = full.get("capacity")
        if capacity is None:
            capacity = 0
        if type(capacity) is float and capacity.is_integer():
            capacity = int(capacity)
        if type(capacity) is not int or not 0 <= capacity <= NEVER_US:
            raise DriverMisuse(
                f"Invalid value of capacity: {capacity!r} (expected 0 or more tasks)"
            )
        full["capacity"] = capacity
        return full
