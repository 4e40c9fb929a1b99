"""Rescued records: the note that says what was cut and why, and what in it is worth putting again.

The cut frames are kept verbatim. Where files lie, and who puts the tasks again, is not known here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    DROP,
    HEADER_SIZE,
    INSERT,
    INSERT_MANY,
    KIND_NAMES,
    SET,
    SET_MANY,
    TRUNCATE,
    FrameError,
    FrameHeader,
    Op,
    Record,
    decode_body,
    decode_header,
    frame_body,
)
from replication.lineage import ID_BYTES, Lineage, LineageError

RESCUE_MAGIC = b"TQs1"
RESCUE_VERSION = 1
#: Spaces below are the queue's own; tubes start here (spaces.store.SPACE_ID_FIRST).
TUBE_SPACE_FIRST = 1024
_HEAD = struct.Struct(">4sII")
#: Space id and task id; records of an xqueue tube may have text for it.
TaskKey = tuple[int, int | str]


class RescueError(Exception):
    """Bytes that are not a rescue file. `position`: the byte at which they stop being one."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.position = position
        self.reason = reason


@dataclass(frozen=True, slots=True)
class RescueNote:
    """What was cut, from which log, and why. Ids are 16 bytes, `time_us` the log's clock.

    lineage: of the log that lost its end, as it was before the cut, so that its last terms are
    those of the records. tubes: space id -> (name, driver) at the fork: the records name spaces
    by number, and on the other lineage the same number may be another tube. records_from: the
    first LSN whose record is saved, 0 for `first_lsn`; of those below only what they led to is
    known, by the rescued `snapshot`.
    """

    cluster: bytes
    node: bytes
    lineage: Lineage
    first_lsn: int
    last_lsn: int
    acked_mark: int
    time_us: int
    reason: str
    tubes: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    records_from: int = 0
    snapshot: str = ""

    @property
    def saved_from(self) -> int:
        """The first LSN whose record is saved."""
        return self.records_from or self.first_lsn

    @property
    def summary(self) -> str:
        """One line for a listing."""
        acked = max(0, min(self.acked_mark, self.last_lsn) - self.first_lsn + 1)
        term = self.lineage.last
        return (
            f"LSN {self.first_lsn}..{self.last_lsn} of term {term.number if term else 0}: "
            f"{self.last_lsn - self.first_lsn + 1} records, {acked} acknowledged; {self.reason}"
        )


def encode_rescue(note: RescueNote, frames: Iterable[bytes]) -> bytes:
    """The note, then the cut frames as they were; no frames for a note that lies beside them."""
    body: bytes = msgpack.packb(
        {
            "version": RESCUE_VERSION,
            "cluster": note.cluster,
            "node": note.node,
            "lineage": [list(term) for term in note.lineage],
            "first_lsn": note.first_lsn,
            "last_lsn": note.last_lsn,
            "acked_mark": note.acked_mark,
            "time_us": note.time_us,
            "reason": note.reason,
            "tubes": [[space, *names] for space, names in note.tubes.items()],
            # What older versions do not know they pass over.
            **({"records_from": note.records_from} if note.records_from else {}),
            **({"snapshot": note.snapshot} if note.snapshot else {}),
        },
        unicode_errors="surrogateescape",
    )
    head = _HEAD.pack(RESCUE_MAGIC, len(body), zlib.crc32(body))
    return b"".join((head, body, *frames))


def decode_note(data: bytes) -> tuple[RescueNote, int]:
    """The note and where the frames begin. Raises `RescueError`."""
    if len(data) < _HEAD.size:
        raise RescueError(len(data), "the head is cut short")
    magic, length, crc = _HEAD.unpack_from(data)
    if magic != RESCUE_MAGIC:
        raise RescueError(0, f"not a rescue file: magic {magic!r}")
    end = _HEAD.size + length
    body = data[_HEAD.size : end]
    if len(body) < length:
        raise RescueError(len(data), "the note is cut short")
    if zlib.crc32(body) != crc:
        raise RescueError(_HEAD.size, f"CRC of the note is {zlib.crc32(body):08x}")
    try:
        value = msgpack.unpackb(body, raw=False, unicode_errors="surrogateescape")
        if value["version"] > RESCUE_VERSION:
            raise RescueError(
                _HEAD.size, f"version {value['version']} is newer than {RESCUE_VERSION}, known here"
            )
        note = RescueNote(
            value["cluster"],
            value["node"],
            Lineage(value["lineage"]),
            value["first_lsn"],
            value["last_lsn"],
            value["acked_mark"],
            value["time_us"],
            value["reason"],
            {space: (name, driver) for space, name, driver in value["tubes"]},
            value.get("records_from", 0),
            value.get("snapshot", ""),
        )
        if len(note.cluster) != ID_BYTES or len(note.node) != ID_BYTES:
            raise ValueError(f"an id is not {ID_BYTES} bytes")
        if not 1 <= note.first_lsn <= note.saved_from <= note.last_lsn + 1:
            raise ValueError(f"LSN {note.first_lsn}, {note.saved_from}, {note.last_lsn}")
    except (ValueError, TypeError, KeyError, LineageError, msgpack.UnpackException) as error:
        raise RescueError(_HEAD.size, f"the note is malformed: {error}") from error
    return note, end


def decode_rescue(
    data: bytes,
) -> tuple[RescueNote, Iterator[tuple[FrameHeader, bytes, list[Record]]]]:
    """The note and (header, whole frame, records) of each frame. Raises `RescueError`.

    The frames are verified as they are asked for: every CRC, no gap, all that the note announces.
    """
    note, at = decode_note(data)
    return note, _frames(note, data, at)


def _frames(
    note: RescueNote, data: bytes, at: int
) -> Iterator[tuple[FrameHeader, bytes, list[Record]]]:
    lsn = note.first_lsn
    while at < len(data):
        try:
            header = decode_header(data, at)
            term = note.lineage.term_at(header.first_lsn)
            if header.first_lsn != lsn or term is None or term.number != header.term:
                raise FrameError(f"LSN {header.first_lsn} of term {header.term} is not next")
            body = frame_body(data, at, header, term.id)
            records = decode_body(body, header.count)
        except FrameError as error:
            raise RescueError(at, error.reason) from error
        end = at + HEADER_SIZE + header.length
        yield header, data[at:end], records
        at, lsn = end, header.last_lsn + 1
    if lsn != note.last_lsn + 1:
        raise RescueError(at, f"records {lsn}..{note.last_lsn} are missing")


# -- putting again ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RescuedTask:
    """A task that is there at the end of the cut, and was not at the fork.

    row: as it was at the end of the cut, by the driver's format; its last field is the payload.
    tube, driver: "" when the space is not known. lsn, time_us: of the record it came in, 0 when
    only a snapshot has it: then it may have been there at the fork, too.
    """

    lsn: int
    time_us: int
    space_id: int
    tube: str
    driver: str
    task_id: int | str
    row: tuple[Any, ...]

    @property
    def payload(self) -> Any:
        return self.row[-1]


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What an operator may put again, what will run again by itself, and what is undone.

    tasks: those that came into being in the cut, by whatever call, and those only a snapshot has.
    finished: (space id, task id) of tasks from before the fork that were finished in the cut
    records: the winning log has them still, so somebody gets them once more. changed: tasks from
    before the fork that were taken, buried, edited ... in it: (space id, task id) -> the fields
    that were set, by their numbers. emptied: spaces from before the fork that were truncated or
    dropped. calls: how many records of each kind.
    """

    tasks: tuple[RescuedTask, ...]
    finished: tuple[TaskKey, ...]
    changed: Mapping[TaskKey, Mapping[int, Any]] = field(default_factory=dict)
    emptied: tuple[int, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)


def replay_plan(
    records: Iterable[tuple[int, Record]],
    tubes: Mapping[int, tuple[str, str]],
    snapshot: Iterable[tuple[int, Record]] = (),
    reach: int = 0,
) -> ReplayPlan:
    """`records`: (LSN, record) of the cut, ascending; `tubes`: the note's, at the fork.

    `snapshot`: the content of a snapshot that ends at LSN `reach`, as records; LSN 0 for its rows.
    What counts is what the records did to rows, not what their calls are named.
    """
    whole = _Plan(dict(tubes))
    for lsn, (time_us, _kind, _session, ops) in snapshot:
        for op in ops:
            whole.op(lsn, time_us, op)
    whole.forget_changes()
    cut = _Plan(dict(whole.tubes)) if reach else whole
    for lsn, (time_us, kind, _session, ops) in records:
        name = KIND_NAMES.get(kind, f"kind {kind}")
        cut.calls[name] = cut.calls.get(name, 0) + 1
        for op in ops:
            cut.op(lsn, time_us, op)
            if cut is not whole and lsn > reach:
                whole.op(lsn, time_us, op)
    alive = {**whole.alive, **cut.alive}
    tasks = []
    for (space_id, task_id), (lsn, time_us, row) in sorted(alive.items(), key=_by_lsn):
        tube, driver = cut.tubes.get(space_id) or whole.tubes.get(space_id, ("", ""))
        tasks.append(RescuedTask(lsn, time_us, space_id, tube, driver, task_id, tuple(row)))
    changed = {key: fields for key, fields in cut.changed.items() if key not in alive}
    return ReplayPlan(
        tuple(tasks), tuple(cut.finished), changed, tuple(cut.emptied), dict(cut.calls)
    )


def _by_lsn(item: tuple[TaskKey, tuple[int, int, list[Any]]]) -> int:
    return item[1][0]


class _Plan:
    """The tasks of the cut records, followed op by op."""

    def __init__(self, tubes: dict[int, tuple[str, str]]) -> None:
        self.tubes = tubes
        self.alive: dict[TaskKey, tuple[int, int, list[Any]]] = {}
        self.finished: dict[TaskKey, None] = {}
        self.changed: dict[TaskKey, dict[int, Any]] = {}
        self.emptied: dict[int, None] = {}
        self.calls: dict[str, int] = {}
        self._made: set[int] = set()

    def op(self, lsn: int, time_us: int, op: Op) -> None:
        code, space = op[0], op[1]
        if code == CREATE:
            self.tubes[space] = (op[2], op[3])
            self._made.add(space)
        elif not isinstance(space, int) or space < TUBE_SPACE_FIRST:
            return
        elif code == INSERT:
            self._insert(lsn, time_us, space, op[2])
        elif code == INSERT_MANY:
            for row in op[2]:
                self._insert(lsn, time_us, space, row)
        elif code == SET:
            self._set(space, op[2], op[3:])
        elif code == SET_MANY:
            for key in op[2]:
                self._set(space, key, op[3:])
        elif code == DELETE:
            self._finish(space, op[2])
        elif code == DELETE_MANY:
            for key in op[2]:
                self._finish(space, key)
        elif code in (DROP, TRUNCATE):
            self._empty(space)

    def forget_changes(self) -> None:
        """What was followed so far is where the cut begins."""
        self.finished.clear()
        self.changed.clear()
        self.emptied.clear()
        self._made.clear()

    def _insert(self, lsn: int, time_us: int, space: int, row: Any) -> None:
        key = (space, row[0])
        known = self.alive.get(key)
        if known is not None and known[0]:
            lsn, time_us = known[:2]
        self.alive[key] = (lsn, time_us, list(row))

    def _set(self, space: int, task_id: Any, changes: Op) -> None:
        pairs = zip(changes[::2], changes[1::2], strict=True)
        known = self.alive.get((space, task_id))
        if known is None:
            self.changed.setdefault((space, task_id), {}).update(pairs)
            return
        for fieldno, value in pairs:
            known[2][fieldno] = value

    def _finish(self, space: int, task_id: Any) -> None:
        key = (space, task_id)
        self.changed.pop(key, None)
        if self.alive.pop(key, None) is None:
            self.finished[key] = None

    def _empty(self, space: int) -> None:
        for tasks in (self.alive, self.changed):
            for key in [key for key in tasks if key[0] == space]:
                del tasks[key]
        if space not in self._made:
            self.emptied[space] = None
