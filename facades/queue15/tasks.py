"""queue15: a space that holds many tubes, as the queue API of the Tarantool 1.5 era had them.

Fields: task_id, status, tube, id, event, rank, pri, turn, created, ttl, ttr, cbury, ctaken, data.
Times in µs; `id` is what clients know (32 hex digits), `task_id` counts up and keeps equals in the
order they came; `pri` is stored inverted, 255 - clamp(127 + pri); data is an array of fields.
Behaviour: docs/compatibility-queue15.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from msgpack import Packer, Unpacker, packb

from tandemq.model.raw import Raw
from tandemq.model.record import SET
from tandemq.model.task import INFINITY_US, NEVER_US
from tandemq_server.drivers.base import Driver, DriverMisuse, Event
from tandemq_server.drivers.deadlines import duration_us
from tandemq_server.spaces.index import DeadlineIndex, Index
from tandemq_server.spaces.lane_index import MIDDLE, LaneIndex, NameIndex
from tandemq_server.spaces.space import IndexShape, Row, Space

STATUS, TUBE, ID, EVENT, RANK, PRI, TURN, CREATED, TTL, TTR, CBURY, CTAKEN, DATA = range(1, 14)
FIELDS = (
    ("task_id", "unsigned"),
    ("status", "string"),
    ("tube", "string"),
    ("id", "string"),
    ("event", "unsigned"),
    ("rank", "unsigned"),
    ("pri", "unsigned"),
    ("turn", "unsigned"),
    ("created", "unsigned"),
    ("ttl", "unsigned"),
    ("ttr", "unsigned"),
    ("cbury", "unsigned"),
    ("ctaken", "unsigned"),
    ("data", "*"),
)
SHAPES = (
    IndexShape("task_id", [(0, "unsigned")]),
    IndexShape("id", [(ID, "string")]),
    IndexShape(
        "queue",
        [(TUBE, "string"), (STATUS, "string"), (RANK, "unsigned"), (PRI, "unsigned"),
         (0, "unsigned")],
    ),
    IndexShape("event", [(EVENT, "unsigned")], unique=False),
)  # fmt: skip
DAY_S = 86_400
DEFAULT_TTL_S, DEFAULT_TTR_S = 25 * DAY_S, 60
LONGEST_US = 2**62
#: What a task's ipri is shown as when nothing moved it.
IPRI = 127
DONE = "*"
STATUS_NAMES = {"r": "ready", "~": "delayed", "t": "taken", "!": "buried", DONE: "done"}
SCOPES = ("all_active", "ready_delayed")


_PACKER = Packer()


def split_array(data: bytes) -> tuple[int, bytes]:
    """(number of fields, the fields) of a MessagePack array."""
    mark = data[0]
    if mark < 0xA0:
        return mark & 0x0F, data[1:]
    size = 3 if mark == 0xDC else 5
    return int.from_bytes(data[1:size], "big"), data[size:]


def due(row: Row) -> int | None:
    """When to look at a task again, None for "not in 100 years"."""
    moment: int = row[EVENT]
    return moment if moment - row[CREATED] < INFINITY_US else None


def stored_priority(pri: int) -> int:
    """A user's priority, larger first, as it is stored: 0 to 255, smaller first."""
    return 255 - max(0, min(255, 127 + pri))


def ipri(row: Row) -> int:
    """The internal priority as clients knew it: 0 to 255, smaller first, 127 where one begins."""
    shown: int = max(0, min(255, IPRI + row[RANK] - MIDDLE))
    return shown


def first_field(data: bytes) -> bytes | None:
    """The first of a task's fields as raw MessagePack, None if it has none."""
    reader = Unpacker(max_buffer_size=max(len(data), 1))
    reader.feed(data)
    if not reader.read_array_header():
        return None
    start = reader.tell()
    reader.skip()
    return data[start : reader.tell()]


class FirstFieldIndex(Index):
    """Tasks by tube and first field; empty until somebody asks, for few tubes ever need it."""

    __slots__ = ("groups", "rows")

    def __init__(self) -> None:
        self.rows: dict[Any, Row] = {}
        self.groups: dict[tuple[str, bytes], dict[int, None]] | None = None

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def added(self, row: Row) -> None:
        if self.groups is not None and (first := first_field(row[DATA])) is not None:
            self.groups.setdefault((row[TUBE], first), {})[row[0]] = None

    def removed(self, row: Row) -> None:
        if self.groups is not None and (first := first_field(row[DATA])) is not None:
            key = (row[TUBE], first)
            del self.groups[key][row[0]]
            if not self.groups[key]:
                del self.groups[key]

    def changed(self, old: Row, new: Row) -> None:
        if old[DATA] is not new[DATA] and old[DATA] != new[DATA]:
            self.removed(old)
            self.added(new)

    def cleared(self) -> None:
        if self.groups is not None:
            self.groups.clear()

    def find(self, tube: str, first: bytes) -> list[Row]:
        """Tasks of a tube whose first field it is, oldest first. The first call reads all rows."""
        if self.groups is None:
            self.groups = {}
            for row in self.rows.values():
                self.added(row)
        return [self.rows[task_id] for task_id in sorted(self.groups.get((tube, first), ()))]

    def check(self) -> None:
        if self.groups is not None:
            found = self.groups
            self.groups = {}
            for row in self.rows.values():
                self.added(row)
            assert {key: set(group) for key, group in found.items()} == {
                key: set(group) for key, group in self.groups.items()
            }


#: Where the documents of 1.5 say other than its code did: what the code did, what they say.
AS_WRITTEN = {"pri_range": ("signed", "unsigned"), "meta_times": ("microseconds", "seconds")}
#: The English text: 0 to 255, and 127 where nobody cares.
ENGLISH_MIDDLE = 127


class Tasks(Driver):
    """One space of tubes. Calls that name a tube come through spaces.py."""

    lanes: ClassVar[bool] = True
    lane_field: ClassVar[int] = TUBE
    tube_options: ClassVar[frozenset[str]] = frozenset({"meta_pri", "unique_scope", *AS_WRITTEN})

    def __init__(self, space: Space, opts: dict[str, Any]) -> None:
        super().__init__(space, opts)
        index, by_id, _, by_data = space.indexes
        assert isinstance(index, LaneIndex)
        assert isinstance(by_id, NameIndex)
        assert isinstance(by_data, FirstFieldIndex)
        self.index, self.by_id, self.by_data = index, by_id, by_data
        self.ttl_us = duration_us("ttl", opts["ttl"])
        self.ttr_us = duration_us("ttr", opts["ttr"])
        #: What a user's priority in the middle is.
        self.middle = ENGLISH_MIDDLE if opts.get("pri_range") == "unsigned" else 0

    @classmethod
    def check_options(cls, opts: dict[str, Any]) -> dict[str, Any]:
        """ttl: 25 days, ttr: 60 s; the others: docs/compatibility-queue15.md."""
        full = dict(opts)
        for option in ("max_attempts", "retry_delay", "capacity", "capacity_bytes"):
            if full.get(option) is not None:
                raise DriverMisuse(f"Invalid option {option}: not for queue15")
        for option, default in (("ttl", DEFAULT_TTL_S), ("ttr", DEFAULT_TTR_S)):
            if full.get(option) is None:
                full[option] = default
            if not duration_us(option, full[option]):
                raise DriverMisuse(f"Invalid value of {option}: 0 (expected more than 0 seconds)")
        for option, values in (("meta_pri", ("raw", "original")), ("unique_scope", SCOPES)):
            value = full[option] = full.get(option) or values[0]
            if value not in values:
                expected = " or ".join(values)
                raise DriverMisuse(f"Invalid value of {option}: {value} (expected {expected})")
        for option, values in AS_WRITTEN.items():
            # Kept only where it was asked for: spaces of earlier versions have no word of it.
            value = full.pop(option, None) or values[0]
            if value not in values:
                expected = " or ".join(values)
                raise DriverMisuse(f"Invalid value of {option}: {value} (expected {expected})")
            if value != values[0]:
                full[option] = value
        return full

    @classmethod
    def create_space(cls, space_id: int, name: str, opts: dict[str, Any], temporary: bool) -> Space:
        return Space(
            space_id,
            name,
            FIELDS,
            indexes=(
                LaneIndex(TUBE, RANK, PRI, TURN),
                NameIndex(ID),
                DeadlineIndex(EVENT, due),
                FirstFieldIndex(),
            ),
            shapes=SHAPES,
            temporary=temporary,
            raw=DATA,
        )

    # -- calls that name a tube or a task's own id -----------------------------------------------

    def holds(self, lane: str) -> bool:
        return lane in self.index.lanes

    def present(self, row: Row) -> Raw:
        """id, tube, long name of the status, and the task's own fields as they came."""
        count, fields = split_array(row[DATA])
        head = (row[ID], row[TUBE], STATUS_NAMES[row[STATUS]])
        packed = b"".join(packb(part, unicode_errors="surrogateescape") for part in head)
        return Raw(_PACKER.pack_array_header(count + 3) + packed + fields)

    def find(self, ident: str) -> Row | None:
        return self.by_id.find(ident)

    def add(
        self,
        tube: str,
        ident: str,
        data: bytes,
        times: tuple[int, int, int],
        pri: int,
        urgent: bool,
        now: int,
    ) -> Row:
        """A new task; times: delay, ttl and ttr in µs, 0 for none and for the space's own."""
        delay, ttl, ttr = times
        ttl = min((ttl or self.ttl_us) + delay, LONGEST_US)
        rank = MIDDLE
        if urgent and not delay:
            # Before everything that was moved forward earlier, and before all that will be put.
            rank = self.index.edge_ranks(tube)[0] - 1
        space = self.space
        row = (
            space.next_id, "~" if delay else "r", tube, ident, now + (delay or ttl), rank,
            stored_priority(pri - self.middle), 0, now, ttl, ttr or self.ttr_us, 0, 0, data,
        )  # fmt: skip
        space.insert(row)
        return row

    def same(self, tube: str, first: bytes, delayed: bool) -> Row | None:
        """The task that a put_unique finds in its way."""
        wanted = "r~t!" if self.opts["unique_scope"] == SCOPES[0] else "~" if delayed else "r"
        rows = self.by_data.find(tube, first)
        return next((row for row in rows if row[STATUS] in wanted), None)

    def take_from(self, lane: str, now: int) -> Row | None:
        """The next ready task of a tube, taken; one whose life is over as it stands."""
        row = self.index.first_ready(lane)
        if row is None:
            return None
        deadline = row[CREATED] + row[TTL]
        if deadline <= now:
            return row
        event = min(now + row[TTR], deadline)
        return self._set(row, "t", event, CTAKEN, row[CTAKEN] + 1)

    def _set(self, row: Row, status: str, event: int, *pairs: Any) -> Row:
        fields = list(row)
        fields[STATUS] = status
        fields[EVENT] = event
        for at in range(0, len(pairs), 2):
            fields[pairs[at]] = pairs[at + 1]
        new = tuple(fields)
        op = (SET, self.space.id, row[0], STATUS, status, EVENT, event, *pairs)
        self.space.update(row[0], row, new, op)
        return new

    def give_back(self, row: Row, delay: int, ttl: int, now: int) -> Row:
        """Taken to ready, or delayed. `ttl` µs counts from now; 0 keeps the life time as it is,
        longer by the delay if the task would not live to see its end.
        """
        whole = row[TTL]
        if ttl:
            whole = min(now - row[CREATED] + ttl + delay, LONGEST_US)
        elif delay and now + delay >= row[CREATED] + whole:
            whole = min(whole + delay, LONGEST_US)
        deadline = row[CREATED] + whole
        event = min(now + delay, deadline) if delay else deadline
        return self._set(row, "~" if delay else "r", event, TTL, whole)

    def requeue(self, row: Row) -> Row:
        """Behind everything there is, before everything there will be."""
        rank = self.index.edge_ranks(row[TUBE])[1] + 1
        turn = self.space.next_id
        return self._set(row, "r", row[CREATED] + row[TTL], RANK, rank, TURN, turn)

    def dig(self, row: Row) -> Row:
        return self._set(row, "r", row[CREATED] + row[TTL], CBURY, row[CBURY] + 1)

    def kick_from(self, lane: str, count: int) -> list[Row]:
        rows = self.space.rows
        return [self.dig(rows[task_id]) for task_id in self.index.buried(lane, count)]

    def finish(self, row: Row, data: bytes) -> Row:
        return self._set(row, DONE, row[CREATED] + row[TTL], DATA, data)

    def run_longer(self, row: Row, now: int) -> Row:
        """One more full ttr, as far as the task lives."""
        return self._set(row, "t", min(now + row[TTR], row[CREATED] + row[TTL]))

    def remove_all(self, lane: str) -> int:
        ids = sorted(self.index.ids(lane))
        if ids:
            self.space.delete_many(ids)
        return len(ids)

    # -- the contract ----------------------------------------------------------------------------

    def put(self, data: bytes, opts: dict[str, Any] | None, now: int) -> Row:
        raise self._misuse("put")

    def take(self, now: int) -> Row | None:
        raise self._misuse("take")

    def check_put(self, opts: dict[str, Any] | None) -> None:
        raise self._misuse("put")

    def _misuse(self, method: str) -> DriverMisuse:
        return DriverMisuse(
            f"{self.space.name} holds tubes of queue15: call queue15.{method}(space, tube, ...)"
        )

    def release(self, task_id: int, opts: dict[str, Any] | None, now: int) -> Row:
        delay = opts.get("delay") if opts else None
        ttl = opts.get("ttl") if opts else None
        delay_us = 0 if delay is None else duration_us("delay", delay)
        ttl_us = 0 if ttl is None else duration_us("ttl", ttl)
        return self.give_back(self.space.rows[task_id], delay_us, ttl_us, now)

    def bury(self, task_id: int, now: int) -> Row:
        row = self.space.rows[task_id]
        if row[STATUS] == DONE:
            raise DriverMisuse(f"Task {task_id} is done")
        return self._set(row, "!", row[CREATED] + row[TTL], CBURY, row[CBURY] + 1)

    def kick(self, count: int, now: int) -> list[Row]:
        buried = sorted(row[0] for row in self.index.by_status("!"))
        return [self.dig(self.space.rows[task_id]) for task_id in buried[:count]]

    def kick_one(self, task_id: int, now: int) -> Row:
        return self.dig(self.space.rows[task_id])

    def touch(self, task_id: int, delta_us: int, now: int) -> Row:
        row = self.space.rows[task_id]
        event = min(row[EVENT] + delta_us, row[CREATED] + row[TTL], NEVER_US)
        return self._set(row, "t", event)

    def prolong(self, task_id: int, by_us: int, now: int) -> Row | None:
        row = self.space.rows[task_id]
        later = min(row[EVENT] + by_us, row[CREATED] + row[TTL])
        return self.space.set(task_id, EVENT, later) if later > row[EVENT] else None

    def delete(self, task_id: int, now: int) -> Row:
        row = self.space.delete(task_id)
        return (row[0], "-", *row[2:])

    def tasks_by_state(self, status: str) -> Iterator[Row]:
        return self.index.by_status(status)

    def counts(self) -> dict[str, int]:
        found = dict.fromkeys(("taken", "buried", "ready", "delayed"), 0)
        for lane in self.index.lanes.values():
            for status, count in lane.counts().items():
                if status != DONE:
                    found[STATUS_NAMES[status]] += count
        return found

    def expire(self, task_id: int, now: int) -> list[Event]:
        """The end of its life removes a task in every state; ttr and delay make it ready."""
        row = self.space.rows[task_id]
        status = row[STATUS]
        deadline = row[CREATED] + row[TTL]
        if deadline <= now:
            gone = self.delete(task_id, now)
            return [("delete", gone), ("ttl", gone), (f"ttl.{STATUS_NAMES[status]}", gone)]
        ready = self._set(row, "r", deadline)
        return [("ttr" if status == "t" else "delay", ready)]
