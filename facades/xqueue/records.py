"""Queue powers for records of the user's own layout, in six states.

Behaviour after moonlibs/xqueue, with the one timer field of the original taken apart into what it
means (record.py). Must not be here: who asks, and who waits (tube.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import msgpack

from tandemq.model.record import SET
from tandemq.model.task import NEVER_US
from tandemq.model.units import SECOND_US
from tandemq_server.drivers.base import Driver, DriverMisuse, Event
from tandemq_server.facades.xqueue import declaration, updating
from tandemq_server.facades.xqueue.record import (
    ER_TUPLE_FOUND,
    EXPIRES,
    FIRST_OTHER,
    KIND,
    RUNAT,
    FieldPlaces,
)
from tandemq_server.spaces.index import DeadlineIndex
from tandemq_server.spaces.record_index import RecordIndex
from tandemq_server.spaces.space import Row, Space
from tandemq_server.spaces.view import ViewSpace

_STATES = {"taken": "T", "buried": "B", "ready": "R", "delayed": "W"}


class Records(Driver):
    tube_options: ClassVar[frozenset[str]] = declaration.OPTIONS
    records: ClassVar[bool] = True

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        super().__init__(space, opts)
        index = space.indexes[0]
        assert isinstance(index, RecordIndex)
        self.index = index
        self.layout = FieldPlaces(opts)
        self.features: dict[str, Any] = opts["features"]
        self.ttl = _default(self.features, "ttl")
        self.ttr = _default(self.features, "ttr")
        self.zombie = _default(self.features, "zombie")
        #: As the original does it: without a time for it a zombie stays until it is killed.
        self.keeps_zombies = opts.get("compat") == "strict"
        self.time64 = self.features["id"] == "time64"
        #: Keys are numbers made here, which fit by the way they are made.
        self.numbered = self.features["id"] in ("time64", "auto_increment")
        #: An ack removes the record, whatever is said with it.
        self.removes = not {"keep", "zombie"} & self.features.keys()

    @classmethod
    def check_options(cls, opts: dict[str, Any]) -> dict[str, Any]:
        return declaration.check(opts)

    @classmethod
    def functions(cls, opts: dict[str, Any]) -> list[str]:
        named = [opts["features"]["id"], opts.get("worker", "")]
        return [reference for reference in named if ":" in reference]

    @classmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        layout = FieldPlaces(opts)
        index = RecordIndex(layout.priority, layout.tube, tuple(opts["tube_stats"]))
        # Records without a field for it have no deadlines, see the declaration's checks.
        deadlines = DeadlineIndex(RUNAT, lambda row: row[RUNAT] or None)
        return ViewSpace(
            space_id,
            name,
            tuple((field[0], field[1]) for field in opts["format"]),
            indexes=(index,) if layout.runat is None else (index, deadlines),
            shapes=layout.shapes(),
            temporary=temporary,
            view=layout.view,
        )

    def start(self, now: int) -> None:
        self.index.begin_counting()

    def normalize_task(self, row: Row) -> tuple[int, str, bytes]:
        shown = self.layout.table(row if row[1] != "-" else (row[0], "t", *row[2:]))
        return row[0], row[1], msgpack.packb(shown, unicode_errors="surrogateescape")

    # -- records ---------------------------------------------------------------------------------

    def next_key(self, now: int) -> int:
        """The key `auto_increment` and `time64` give: never one that was given before."""
        last = self.space.next_id
        if self.time64:
            now *= 1000
            if now > last:
                return now
        if last >= NEVER_US:
            raise DriverMisuse("the primary key has no greater value left")
        return last or 1

    def add(
        self, key: Any, task: dict[str, Any], delay: int | None, ttl: int | None, now: int
    ) -> Row:
        """Insert a record; `delay`, `ttl` in µs. Unknown fields of `task` are dropped."""
        layout = self.layout
        space = self.space
        if not self.numbered:
            key = layout.check_key(key)
        row: Row = layout.fresh(key, task)
        if key in space.rows:
            raise DriverMisuse(
                f"Duplicate key exists in unique index 'primary' in space '{space.name}'",
                ER_TUPLE_FOUND,
            )
        if delay is not None or ttl is not None or self.ttl is not None:
            row = (key, *self._ready_at(delay, ttl, 0, now), *row[FIRST_OTHER:])
        space.insert(row)
        return row

    def _ready_at(
        self, delay: int | None, ttl: int | None, left: int, now: int
    ) -> tuple[str, int, str, int]:
        """Status, runat, kind and end of life of a record that is ready now or after `delay`."""
        begins = now if delay is None else max(1, now + delay)
        if ttl is None:
            ttl = self.ttl
        expires = left if ttl is None else max(1, begins + ttl)
        if delay is not None:
            return "~", begins, "w", expires
        return "r", expires, "x" if expires else "", expires

    def take_one(self, tube: str | None, ttr: int | None, now: int) -> Row | None:
        """The next ready record, of one tube or any, taken for `ttr` µs (None: the default).

        One whose life is over is returned still ready, for the engine to expire.
        """
        if ttr is None:
            ttr = self.ttr
            if ttr is None and self.index.flat and (row := self.index.take_first()) is not None:
                return row
        row = self.index.first_ready(tube)
        if row is None:
            return None
        key, runat = row[0], row[RUNAT]
        space = self.space
        op: tuple[Any, ...]
        if not runat and ttr is None:
            new = (key, "t", *row[2:])
            op = (SET, space.id, key, 1, "t")
        else:
            if runat and runat <= now:
                return row
            runat, kind = (0, "") if ttr is None else (now + ttr, "t")
            new = (key, "t", runat, kind, *row[EXPIRES:])
            op = (SET, space.id, key, 1, "t", RUNAT, runat, KIND, kind)
        space.update(key, row, new, op)
        return new

    def _set(
        self, row: Row, status: str, runat: int, kind: str, expires: int, updates: Any = None
    ) -> Row:
        """Status and deadline of a record, and update operations in the same step."""
        key, rest, more = row[0], row[FIRST_OTHER:], ()
        if updates:
            rest, more = self._edited(row, updates)
        new = (key, status, runat, kind, expires, *rest)
        space = self.space
        op = (SET, space.id, key, 1, status, RUNAT, runat, KIND, kind, EXPIRES, expires, *more)
        space.update(key, row, new, op)
        return new

    def _edited(self, row: Row, updates: Any) -> tuple[Row, tuple[Any, ...]]:
        """What the operations make of the fields a row keeps as they are; the pairs of its SET."""
        layout, key = self.layout, row[0]
        found = updating.apply(layout.view(row), layout.names, updates)
        if found[layout.pk] != key or type(found[layout.pk]) is not type(key):
            raise DriverMisuse(
                "Attempt to modify a tuple field which is part of primary index in space "
                f"'{self.space.name}'",
                updating.ER_UPDATE_PRIMARY,
            )
        rest = layout.rest(found)
        pairs: list[Any] = []
        for at, value in enumerate(rest, FIRST_OTHER):
            if value != row[at] or type(value) is not type(row[at]):
                pairs += (at, value)
        return rest, tuple(pairs)

    def _edit(self, key: Any, updates: Any) -> None:
        """Update operations alone; status and runat stay what they are."""
        row = self.space.rows[key]
        rest, pairs = self._edited(row, updates)
        new = (*row[:FIRST_OTHER], *rest)
        self.space.update(key, row, new, (SET, self.space.id, key, *pairs))

    def finish(
        self, key: Any, delay: int | None, now: int, updates: Any = None
    ) -> tuple[Row, bool]:
        """What an ack does: remove, keep, or keep for a while. (row, whether it is gone).

        As in the original a record that goes is updated first, one that stays in the same step.
        """
        if self.removes and not updates:
            return self.space.delete(key), True
        row = self.space.rows[key]
        if "keep" in self.features:
            return self._set(row, "d", 0, "", 0, updates), False
        if delay is None:
            delay = self.zombie
        if delay is None and self.keeps_zombies and not self.removes:
            return self._set(row, "z", 0, "", 0, updates), False
        if delay is None or self.removes:
            # "otherwise only if set delay during ack", says the documentation of the feature.
            if updates:
                self._edit(key, updates)
            return self.space.delete(key), True
        return self._set(row, "z", max(1, now + delay), "z", 0, updates), False

    def ready(
        self,
        key: Any,
        delay: int | None,
        ttl: int | None,
        left: int,
        now: int,
        updates: Any = None,
    ) -> Row:
        """Any state to ready, or waiting; `left` is the end of life where nothing else says."""
        row = self.space.rows[key]
        return self._set(row, *self._ready_at(delay, ttl, left, now), updates)

    def set_aside(self, key: Any, updates: Any) -> Row:
        """`bury` with update operations."""
        row = self.space.rows[key]
        return self._set(row, "!", 0, "", row[EXPIRES], updates)

    def more_time(self, key: Any, increment: int) -> Row:
        """touch: a ttr or ttl that runs gets longer; where none runs nothing changes."""
        row = self.space.rows[key]
        if not increment or not row[RUNAT] or row[1] not in ("t", "r"):
            return row
        runat = min(row[RUNAT] + increment, NEVER_US)
        return self._set(row, row[1], runat, row[KIND], runat if row[1] == "r" else row[EXPIRES])

    # -- the contract of every driver ------------------------------------------------------------

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        raise DriverMisuse(
            f"tube {self.space.name} is an xqueue: use box.space.{self.space.name}:put"
        )

    def take(self, now: int) -> Row | None:
        return self.take_one(None, None, now)

    def delete(self, task_id: Any, now: int) -> Row:
        row = self.space.delete(task_id)
        return (row[0], "-", *row[2:])

    def release(self, task_id: Any, opts: dict[str, Any] | None, now: int) -> Row:
        """Given back without its owner: what was left of its life is left still."""
        row = self.space.rows[task_id]
        return self._set(row, "r", row[EXPIRES], "x" if row[EXPIRES] else "", row[EXPIRES])

    def bury(self, task_id: Any, now: int) -> Row:
        return self.set_aside(task_id, None)

    def kick(self, count: int, now: int) -> list[Row]:
        found: list[Row] = []
        while len(found) < count and (row := self.index.first_buried()) is not None:
            found.append(self.ready(row[0], None, None, 0, now))
        return found

    def kick_one(self, task_id: Any, now: int) -> Row:
        return self.ready(task_id, None, None, 0, now)

    def touch(self, task_id: Any, delta_us: int, now: int) -> Row:
        return self.more_time(task_id, delta_us)

    def prolong(self, task_id: Any, by_us: int, now: int) -> Row | None:
        row = self.space.rows[task_id]
        if row[KIND] != "t":
            return None
        return self.space.set(task_id, RUNAT, min(row[RUNAT] + by_us, NEVER_US))

    def tasks_by_state(self, status: str) -> Iterator[Row]:
        return self.index.by_status(status)

    def counts(self) -> dict[str, int]:
        return {name: self.index.counts[letter] for name, letter in _STATES.items()}

    def expire(self, task_id: Any, now: int) -> list[Event]:
        row = self.space.rows[task_id]
        kind = row[KIND]
        if kind == "w":
            return [("delay", self.release(task_id, None, now))]
        if kind == "t":
            return [("ttr", self.release(task_id, None, now))]
        gone = self.delete(task_id, now)
        return [("delete", gone), ("ttl", gone)] if kind == "x" else [("zombie", gone)]


def _default(features: dict[str, Any], name: str) -> int | None:
    """A feature's default in µs, None where it has none."""
    value = features.get(name)
    return None if value is None or value is True else round(value * SECOND_US)
