"""Rescue files of a data directory: what was cut off its log, and what of it was put again since.

Here: reading notes with their segments, and the record of replays beside them.
Must not be here: sending anything to a server, printing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from pathlib import Path
from typing import Any

from tandemq.log.disk import RESCUE_PREFIX, Disk
from tandemq.log.meta import Meta, read_meta
from tandemq.log.rescue import read_rescue, rescue_names, rescue_stem
from tandemq.log.segment import SegmentReader, segment_names
from tandemq.log.snapshot import SUFFIX as SNAPSHOT_SUFFIX
from tandemq.log.snapshot import read_snapshot, snapshot_name, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import CREATE, INSERT_MANY, FrameError, Op, Record, decode_body
from tandemq.model.task import NEVER_US
from tandemq_server.replication.replay import ReplayPlan, RescuedTask, TaskKey, replay_plan
from tandemq_server.replication.rescue import RescueError, RescueNote, decode_note
from tandemq_server.storage.inspection import Dump

NOTE, REPLAYED = ".note", ".replayed"
#: In the place of a new id: the server said no.
REFUSED = -1
_NAME = re.compile(r"(\d{10})-(\d{20})")


@dataclass(frozen=True, slots=True)
class Rescued:
    """One cut. name: of its note, without directory and ending. files: its segments, by LSN."""

    name: str
    note: RescueNote
    files: tuple[str, ...]

    @property
    def records(self) -> int:
        """How many records are saved; those a snapshot stands for are not among them."""
        return self.note.last_lsn - self.note.saved_from + 1


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A cut whose note cannot be read, and why."""

    name: str
    problem: str


Cut = Rescued | Unreadable


@dataclass(slots=True)
class Replayed:
    """What earlier replays did. Tasks are (space id, task id).

    put: by the id each has now. open: it was sent, and the answer never written down. torn_at:
    where a last line begins that was not written to its end.
    """

    path: Path
    put: dict[TaskKey, int | str] = field(default_factory=dict)
    open: set[TaskKey] = field(default_factory=set)
    torn_at: int | None = None

    def note(self, task: RescuedTask, new_id: int | str | None, server: str) -> None:
        """Write down, durably, that a task is about to be put (None) or was put."""
        key = (task.space_id, task.task_id)
        line = {"task": key, "tube": task.tube, "id": new_id, "server": server}
        with self.path.open("ab") as file:
            if self.torn_at is not None:
                file.truncate(self.torn_at)
                self.torn_at = None
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if new_id is None:
            self.open.add(key)
        else:
            self.open.discard(key)
            self.put[key] = new_id

    def refused(self, task: RescuedTask, server: str) -> None:
        """The server certainly did not take it."""
        self.note(task, REFUSED, server)
        del self.put[(task.space_id, task.task_id)]


def load_replayed(directory: Path, name: str) -> Replayed:
    """Raises ValueError for a file that is not one of ours."""
    found = Replayed(directory / (RESCUE_PREFIX + name + REPLAYED))
    if not found.path.exists():
        return found
    whole, end, torn = found.path.read_bytes().rpartition(b"\n")
    if torn:
        # Never synced, so nothing was done because of it: the next line takes its place.
        found.torn_at = len(whole + end)
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            value = json.loads(line)
            (space, task_id), new_id = value["task"], value["id"]
            key: TaskKey = (int(space), task_id if isinstance(task_id, str) else int(task_id))
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{found.path}: line {number} is malformed") from None
        if new_id is None:
            found.open.add(key)
            continue
        found.open.discard(key)
        if new_id != REFUSED:
            found.put[key] = new_id
    return found


def note_name(note: RescueNote) -> str:
    """Where a note lies: beside the segment of the first record it tells of."""
    term = note.lineage.term_at(note.first_lsn)
    assert term is not None, "what is cut has a term"
    return rescue_stem(term, note.first_lsn) + NOTE


class RescueFiles:
    """The rescue files of a directory, looked at without a lock, also beside a running node."""

    def __init__(self, disk: Disk, meta: Meta | None = None) -> None:
        self._disk = disk
        self._meta = meta or read_meta(disk)

    def cuts(self) -> list[Cut]:
        """Every cut that has a note, oldest first; one that cannot be read says why."""
        segments = self._segments()
        found: list[Cut] = []
        for path in self._disk.list():
            if path.startswith(RESCUE_PREFIX) and path.endswith(NOTE):
                name = path[len(RESCUE_PREFIX) : -len(NOTE)]
                try:
                    note, _end = decode_note(self._disk.read(path))
                except RescueError as error:
                    found.append(Unreadable(name, f"{path}: {error}"))
                    continue
                except StorageError as error:
                    found.append(Unreadable(name, str(error)))
                    continue
                mine = tuple(one.name for one in segments if one.belongs(note))
                found.append(Rescued(name, self._completed(note, mine), mine))
        return found

    def _completed(self, note: RescueNote, files: tuple[str, ...]) -> RescueNote:
        """What older versions left out of a note: that a snapshot stands for the first records."""
        first = min((_of_name(name)[1] for name in files), default=0)
        if note.snapshot or first <= note.first_lsn:
            return note
        for path in self._disk.list():
            if path.endswith(SNAPSHOT_SUFFIX) and first - 1 <= _lsn_of(path) <= note.last_lsn:
                return replace(note, records_from=first, snapshot=path)
        return note

    def strays(self) -> list[str]:
        """Segments without a note: which tubes their tasks were of is not known."""
        notes = [cut.note for cut in self.cuts() if isinstance(cut, Rescued)]
        return [
            one.name for one in self._segments() if not any(one.belongs(note) for note in notes)
        ]

    def in_log(self, name: str) -> bool:
        """Whether the log has every record of a segment here: then nothing was cut.

        A cut saves copies first and its note behind them; one that ended between the two, and was
        never done again, leaves the copies.
        """
        copy = Dump(self._disk, rescue=name, meta=self._meta)
        first = next(iter(copy), None)
        if first is None:
            return False
        log = Dump(self._disk, first.lsn, meta=self._meta)
        copy = Dump(self._disk, rescue=name, meta=self._meta)
        rows = dropwhile(lambda row: row.lsn < first.lsn, log)
        return all(row == next(rows, None) for row in copy) and not copy.problems

    def untold(self, note: RescueNote) -> int:
        """The first LSN of a cut that no note here tells of; behind its last when all is told."""
        first = note.first_lsn
        known = [cut.note for cut in self.cuts() if isinstance(cut, Rescued)]
        for other in sorted(known, key=lambda one: one.first_lsn):
            if other.first_lsn > first:
                break
            common = note.lineage.common_point(other.lineage, note.last_lsn, other.last_lsn)
            first = max(first, common + 1)
        return first

    def _segments(self) -> list[_Segment]:
        return [_segment(self._disk, self._meta, name) for name in rescue_names(self._disk)]

    def records(self, cut: Rescued) -> Iterator[tuple[int, Record]]:
        """(LSN, record) of the cut, each once. Raises StorageError, RescueError.

        An interrupted rewind and the one that finished it may both have saved a record: a file
        that is damaged matters only for what no other has.
        """
        assert self._meta is not None
        due, problem = cut.note.saved_from, None
        for name in cut.files:
            try:
                for header, _frame, records in read_rescue(self._disk, self._meta, name):
                    if header.first_lsn > due:
                        break
                    for lsn, record in enumerate(records, header.first_lsn):
                        if lsn == due <= cut.note.last_lsn:
                            yield lsn, record
                            due += 1
            except StorageError as error:
                problem = problem or error
        if due <= cut.note.last_lsn:
            if problem is not None:
                raise problem
            raise RescueError(0, f"{cut.name}: LSN {due} to {cut.note.last_lsn} are missing")

    def plan(self, cut: Rescued) -> ReplayPlan:
        """What of the cut may be put again. Raises StorageError, RescueError."""
        note, records = cut.note, self.records(cut)
        if not note.snapshot:
            return self._declared(
                replay_plan(records, note.tubes, options=note.options, numbers=note.numbers)
            )
        path, reach = self._snapshot(note)
        content = self._content(path, note.first_lsn)
        return self._declared(
            replay_plan(records, note.tubes, content, reach, note.options, note.numbers)
        )

    def _declared(self, plan: ReplayPlan) -> ReplayPlan:
        """Notes of older versions leave out how tubes were declared: the directory may know.

        A tube without its declaration only keeps its tasks from being put again.
        """
        lacking = {t.space_id for t in plan.tasks if t.driver == "xqueue" and not t.tube_options}
        if not lacking:
            return plan
        known: dict[int, Any] = {}
        with suppress(StorageError, FrameError):
            for op in self._created():
                known[op[1]] = op[4]
        return replace(
            plan,
            tasks=tuple(
                replace(task, tube_options=known.get(task.space_id) or {})
                if task.space_id in lacking
                else task
                for task in plan.tasks
            ),
        )

    def _created(self) -> Iterator[Op]:
        """CREATE ops of the newest snapshot and of the log as they are now."""
        assert self._meta is not None
        for name in snapshot_names(self._disk)[-1:]:
            for part in read_snapshot(self._disk, name, self._meta):
                if part[0] == "catalogue":
                    yield from (op for op in part[1] if op[0] == CREATE)
        for name in segment_names(self._disk):
            for header, body in SegmentReader(self._disk, name, self._meta).frames():
                for record in decode_body(body, header.count):
                    yield from (op for op in record[3] if op[0] == CREATE)

    def _snapshot(self, note: RescueNote) -> tuple[str, int]:
        """(path, LSN) of the snapshot a rescue keeps; it may be on its way there still."""
        path, reach = note.snapshot, _lsn_of(note.snapshot)
        waiting = snapshot_name(reach)
        names = self._disk.list()
        return waiting if path not in names and waiting in names else path, reach

    def _content(self, path: str, first_lsn: int) -> Iterator[tuple[int, Record]]:
        """A snapshot as records: LSN 0 for what it does not tell the origin of."""
        assert self._meta is not None
        for part in read_snapshot(self._disk, path, self._meta):
            if part[0] == "catalogue":
                yield 0, (0, 0, None, part[1])
            elif part[0] == "rows":
                yield 0, (0, 0, None, [(INSERT_MANY, part[1], part[2])])
            elif part[0] == "frame":
                for lsn, record in enumerate(part[2], part[1].first_lsn):
                    yield (lsn if lsn >= first_lsn else 0), record


@dataclass(frozen=True, slots=True)
class _Segment:
    """A rescue file as its name and its header tell. term_id None: the header cannot be read."""

    name: str
    first_lsn: int
    last_lsn: int
    number: int
    term_id: bytes | None

    def belongs(self, note: RescueNote) -> bool:
        """Whether it has records of that cut."""
        if self.first_lsn > note.last_lsn or self.last_lsn < note.first_lsn:
            return False
        owner = note.lineage.term_at(self.first_lsn)
        if owner is None or self.term_id is None:
            return owner is not None and owner.number == self.number
        return owner.id == self.term_id


def _segment(disk: Disk, meta: Meta | None, name: str) -> _Segment:
    assert meta is not None, "a directory with rescue files has an identity"
    number, first_lsn = _of_name(name)
    try:
        reader = SegmentReader(disk, name, meta, rescue=True)
        footer = reader.peek_footer()
    except StorageError:
        return _Segment(name, first_lsn, NEVER_US, number, None)
    last_lsn = footer.last_lsn if footer is not None else NEVER_US
    return _Segment(name, reader.first_lsn, last_lsn, reader.term.number, reader.term.id)


def _lsn_of(snapshot: str) -> int:
    found = re.match(r"\d{20}", snapshot.removeprefix(RESCUE_PREFIX))
    return int(found[0]) if found else 0


def _of_name(name: str) -> tuple[int, int]:
    """(term number, first LSN) in the name of a rescue file, (0, 0) for one of no known form."""
    found = _NAME.match(name.removeprefix(RESCUE_PREFIX))
    return (int(found[1]), int(found[2])) if found else (0, 0)
