"""What happened to a task, from the log: each step, also of one that is long gone.

Here: which bytes a frame that names a task has, and what the records in it say. Frames without them
are not read (storage.finding). Must not be here: how it is shown. The log goes back as far as its
oldest segment.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack

from tandemq.log.disk import Disk
from tandemq.log.meta import meta_of
from tandemq.log.segment import segment_names
from tandemq.log.snapshot import CATALOGUE_MAGIC, SnapshotReader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    INSERT,
    INSERT_MANY,
    KIND_NAMES,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    FrameError,
    Op,
    decode_body,
)
from tandemq.model.task import STATE_NAMES
from tandemq_server.storage.finding import Needle, SearchedSegment
from tandemq_server.storage.sought import Sought

#: Spaces of notes on tasks, and in their rows the task and why its attempt failed.
_NOTES, _NOTE_TASK, _NOTE_REASON = frozenset({521, 522}), 1, 3
_STATUS = 1
#: How a new row of `_queue`, space 512, with its five fields begins: then comes the name.
_NEW_TUBE = b"\x01\xcd\x02\x00\x95"
#: How much of a long name says that the tube may have been made in a segment.
_NAME_SIGN = 64
#: Below are the spaces of the queue itself.
_FIRST_OF_TUBES = 1024
#: Tasks that a search by payload goes on with.
FOUND_MAX = 20
#: Packed with five bytes and more: seldom anything else in a log. Of so many, one after the other.
_LARGE, _LARGE_FEW = 1 << 16, 3


class TaskStep(NamedTuple):
    """One step of a task. at: µs of the log's clock; state: after it, "gone" at its end; session:
    hex; node: who was the master; moved: "to TUBE 3" or "from TUBE 3".
    """

    id: int
    lsn: int
    at: int
    call: str
    state: str
    session: str | None
    node: str
    reason: str
    moved: str


class PastReader:
    """Iterate over the steps of some tasks of a tube, oldest first.

    ids: which; None: those whose put fits `sought` (at most FOUND_MAX of them), found as the log is
    read. total_bytes, done_bytes: for a progress bar. problems: segments that could not be read
    to their end. known: whether the tube was found at all. A segment at a time is in memory.
    """

    def __init__(
        self, disk: Disk, tube: str, ids: Iterable[int] | None = None, sought: Sought | None = None
    ) -> None:
        meta = meta_of(disk)
        self._disk, self._meta, self._tube = disk, meta, tube
        self._sought = None if ids is not None else sought
        self._found: set[int] = set(ids or ())
        self._names: dict[int, str] = {}
        self._nodes: dict[int, str] = {}
        self._files = [(name, disk.size(name)) for name in segment_names(disk)]
        self.total_bytes = sum(size for _, size in self._files)
        self.done_bytes = 0
        self.problems: list[str] = []
        self._all_known = False
        #: Of those that are looked for, who is in the tube at the place that is read.
        self._alive: set[int] = set()
        self._read_catalogue()

    @property
    def known(self) -> bool:
        return self._tube in self._names.values()

    def _read_catalogue(self) -> None:
        """Spaces and terms of the oldest snapshot that can be read."""
        for name in snapshot_names(self._disk):
            try:
                reader = SnapshotReader(self._disk, name, self._meta.cluster)
                for magic, _, body in reader.blocks():
                    if magic == CATALOGUE_MAGIC and body is not None:
                        self._learn(msgpack.unpackb(body, strict_map_key=False))
                        return
            except (StorageError, FrameError, ValueError):
                continue

    def _learn(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op[0] == CREATE:
                self._names[op[1]] = op[2]
            elif op[0] == TERM:
                self._nodes[op[1]] = op[5]

    def __iter__(self) -> Iterator[TaskStep]:
        for name, size in self._files:
            try:
                segment = SearchedSegment(self._disk, name, self._meta, size)
                self._nodes[segment.term.number] = segment.term.node
                if self._sought is None and not segment.has_any(self._signs()):
                    self.done_bytes += size
                    continue
                self._learn_tubes(segment, self._tube)
                spaces = [each for each, found in self._names.items() if found == self._tube]
                if self._sought is not None:
                    self._seek(segment, self._sought)
                if spaces and self._found:
                    yield from self._steps_in(segment, spaces)
                self.problems += dict.fromkeys(segment.problems)
            except StorageError as error:
                self.problems.append(str(error))
            except FrameError as error:
                self.problems.append(f"{name}: {error.reason}")
            self.done_bytes += size

    def _signs(self) -> list[Needle]:
        """What a segment has that can have a step of these tasks: else it is passed over."""
        spaces = [each for each, found in self._names.items() if found == self._tube]
        made = [_NEW_TUBE + msgpack.packb(self._tube)[:_NAME_SIGN]]
        needles, _ = named_by(self._found, spaces)
        ends = [_end_of(space) for space in spaces] if self._alive else []
        return [*made, *needles, *ends]

    def _learn_tubes(self, segment: SearchedSegment, tube: str | None) -> None:
        """Spaces of tubes of that name, or of all, that were made in this segment."""
        needle = _NEW_TUBE if tube is None else _NEW_TUBE + msgpack.packb(tube)
        for _, record in self._records(segment, [needle]):
            self._learn(op for op in record[3] if op[0] == CREATE)

    def _learn_all(self) -> None:
        """All tubes, once: a task came from another one, or went there."""
        self._all_known = True
        for name, size in self._files:
            with contextlib.suppress(StorageError, FrameError):
                self._learn_tubes(SearchedSegment(self._disk, name, self._meta, size), None)

    def _steps_in(self, segment: SearchedSegment, spaces: list[int]) -> Iterator[TaskStep]:
        """Steps in one segment. Truncation is sought where a task is that it could end."""
        needles, proofs = named_by(self._found, spaces)
        if not self._alive and next(self._records(segment, needles, proofs), None) is None:
            return
        ends = [_end_of(space) for space in spaces]
        for lsn, record in self._records(segment, [*needles, *ends], [*proofs, *ends]):
            yield from self._steps(lsn, segment.term.number, record)

    def _records(
        self, segment: SearchedSegment, needles: Iterable[Needle], proofs: Iterable[bytes] = (b"",)
    ) -> Iterator[tuple[int, Any]]:
        """(LSN, record) of each frame with a needle, unless it has none of the proofs."""
        for header, body in segment.frames(needles):
            if any(proof in body for proof in proofs):
                yield from enumerate(decode_body(body, header.count), header.first_lsn)

    def _seek(self, segment: SearchedSegment, sought: Sought) -> None:
        """Finds tasks whose payload fits, until there are enough."""
        if len(self._found) >= FOUND_MAX:
            return
        for _, record in self._records(segment, sought.needles):
            for op in record[3]:
                if op[0] not in (INSERT, INSERT_MANY) or self._names.get(op[1]) != self._tube:
                    continue
                for row in [op[2]] if op[0] == INSERT else op[2]:
                    if isinstance(row[-1], bytes) and sought.fits(row[-1]):
                        self._found.add(row[0])
                        if len(self._found) >= FOUND_MAX:
                            return

    def _steps(self, lsn: int, term: int, record: Any) -> Iterator[TaskStep]:
        at, kind, session, ops = record
        touched: dict[int, str] = {}
        for op in ops:
            if self._names.get(op[1]) == self._tube:
                self._touch(op, touched)
        if not touched:
            return
        for task_id, state in sorted(touched.items()):
            (self._alive.discard if state == "gone" else self._alive.add)(task_id)
            yield TaskStep(
                task_id,
                lsn,
                at,
                KIND_NAMES.get(kind, str(kind)),
                state,
                session.hex() if session is not None else None,
                self._nodes.get(term, f"term {term}"),
                _reason(ops, task_id),
                self._moved(ops, state, len(touched)),
            )

    def _touch(self, op: Op, touched: dict[int, str]) -> None:
        code = op[0]
        if code in (INSERT, INSERT_MANY):
            for row in [op[2]] if code == INSERT else op[2]:
                if row[0] in self._found:
                    touched[row[0]] = STATE_NAMES.get(row[_STATUS], str(row[_STATUS]))
        elif code in (SET, SET_MANY):
            pairs = dict(zip(op[3::2], op[4::2], strict=True))
            state = STATE_NAMES.get(str(pairs.get(_STATUS)), "changed")
            for key in [op[2]] if code == SET else op[2]:
                if key in self._found:
                    touched[key] = state
        elif code in (DELETE, DELETE_MANY):
            for key in [op[2]] if code == DELETE else op[2]:
                if key in self._found:
                    touched[key] = "gone"
        elif code == TRUNCATE:
            there = self._alive.union(key for key, state in touched.items() if state != "gone")
            touched.update(dict.fromkeys(there, "gone"))

    def _moved(self, ops: list[Op], state: str, many: int) -> str:
        """Where a task went, or came from, in the same record; told where it is plain."""
        if many != 1:
            return ""
        code = INSERT if state == "gone" else DELETE
        others = [op for op in ops if op[0] == code and op[1] >= _FIRST_OF_TUBES]
        if not self._all_known and any(op[1] not in self._names for op in others):
            self._learn_all()
        others = [op for op in others if op[1] in self._names]
        others = [op for op in others if self._names[op[1]] != self._tube]
        if len(others) != 1:
            return ""
        name, what = self._names[others[0][1]], others[0][2]
        return f"to {name} {what[0]}" if code == INSERT else f"from {name} {what}"


def _end_of(space: int) -> bytes:
    """How a record that empties a tube names it."""
    return bytes([TRUNCATE]) + bytes(msgpack.packb(space))


def named_by(ids: Iterable[int], spaces: Iterable[int]) -> tuple[list[Needle], list[bytes]]:
    """What a record about one of these tasks has in it, and what its frame must have besides.

    A small id is packed so short that it is everywhere: it is sought behind the number of a space.
    Changes of many tasks begin with lists: they are told by their code.
    """
    pack = msgpack.packb
    packed = {each: pack(each) for each in sorted(ids)}
    proofs = list(packed.values())
    needles: list[Needle] = [each for number, each in packed.items() if number >= _LARGE]
    if len(needles) > _LARGE_FEW:
        needles = [_any_of([each for number, each in packed.items() if number >= _LARGE])]
    small = b"|".join(re.escape(each) for number, each in packed.items() if number < _LARGE)
    for space in map(pack, spaces):
        escaped = re.escape(space)
        if small:
            codes = b"(?<=[\x09-\x0b]" + escaped + b")"
            text = escaped + b"(?:" + codes + b"|(?:[\x90-\x9f]|\xdc..)?(?:" + small + b"))"
            needles.append(re.compile(text, re.DOTALL))
    return needles, proofs


def _any_of(packed: list[bytes]) -> re.Pattern[bytes]:
    """A pattern that begins with one byte wherever it can: what begins alike is found quicker."""
    first = packed[0][:1]
    if all(each[:1] == first for each in packed):
        rest = b"|".join(re.escape(each[1:]) for each in packed)
        return re.compile(re.escape(first) + b"(?:" + rest + b")")
    return re.compile(b"|".join(re.escape(each) for each in packed))


def _reason(ops: list[Op], task_id: int) -> str:
    """Why an attempt ended, as the note in the same record says."""
    for op in ops:
        if op[1] not in _NOTES:
            continue
        if op[0] == INSERT and op[2][_NOTE_TASK] == task_id:
            return str(op[2][_NOTE_REASON])
        if op[0] == SET and op[2][1] == task_id:
            pairs = dict(zip(op[3::2], op[4::2], strict=True))
            if _NOTE_REASON in pairs:
                return str(pairs[_NOTE_REASON])
    return ""
