"""Frames of a part to Arrow batches: one row per task a record touched, at least one per record.

Where numba is installed and the part is worth it, `compiled.py` does the work. Here is the same in
plain Python, for what that gives up on and for parts that are small: a record is unpacked with
hundreds of others in one call of C code. Its ops are sorted by what they do and by tube, and each
such group becomes columns at once; a final sort by LSN (stable) puts the groups together again.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tandemq.log.segment import SegmentReader
from tandemq.model.errors import GaveUp, StorageError
from tandemq.model.record import (
    DELETE,
    DELETE_MANY,
    INSERT,
    INSERT_MANY,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    FrameError,
    FrameHeader,
    decode_body,
)
from tandemq.model.units import MIB
from tandemq.spark.columns import arrow_schema
from tandemq.spark.disk import ArrowDisk, named
from tandemq.spark.groups import (
    NOTE_ATTEMPTS,
    NOTES_ID,
    SPACE_ID_FIRST,
    Columns,
    Group,
    about_no_task,
    operation_name,
)
from tandemq.spark.logs import Part, node_name

if TYPE_CHECKING:
    from tandemq.spark.compiled import Walker

#: Smaller parts are done in plain Python before the compiled code is even loaded.
WORTH_LOADING = MIB
#: Bodies of so many bytes make a batch, however few records they are.
BATCH_BYTES = 4 * MIB

#: Rows that plain Python makes columns of at once: more do not fit into the processor's caches.
PLAIN_ROWS = 1 << 13

Frame = tuple[FrameHeader, "bytes | memoryview", int]


class Decoder:
    """Arrow batches of one part with the columns wanted.

    tubes / operations: rows of others are left out early; None keeps all.
    """

    def __init__(
        self,
        part: Part,
        columns: Sequence[str],
        batch_rows: int = 1 << 16,
        tubes: frozenset[str] | None = None,
        operations: frozenset[str] | None = None,
        compiled: bool | None = None,
    ) -> None:
        """`compiled`: use the compiled walk or not; None: where there is one and it pays."""
        self.part = part
        self.columns = tuple(columns)
        self.schema = arrow_schema(columns)
        self.batch_rows = batch_rows
        self.tubes = tubes
        self.operations = operations
        self.kinds = None if operations is None else _kinds_of(operations)
        self.groups: dict[tuple[int, int], Group] = {}
        #: By op code and tube: what appends to the group's rows.
        self.adders: Any = ({}, {}, {}, {})
        self.pending = 0
        #: Attempts that records name, by LSN, space and task.
        self.notes: dict[tuple[int, int, Any], int] = {}
        self.sessions: dict[bytes | None, str | None] = {None: None}
        self.constants: dict[str, Any] = {}
        self.walker = self._walker(compiled)

    def _walker(self, compiled: bool | None) -> Walker | None:
        if compiled is None:
            start = self.part.start[1] if self.part.start is not None else 0
            loaded = "tandemq.spark.compiled" in sys.modules
            compiled = loaded or self.part.end - start >= WORTH_LOADING
            if compiled:
                try:
                    import tandemq.spark.compiled  # noqa: F401
                except (ImportError, RuntimeError):  # no numba, or no folder for its cache
                    compiled = False
        if not compiled:
            return None
        from tandemq.spark.compiled import Walker

        return Walker(self.part, self.sessions, self.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order of LSN. Raises `StorageError` naming file, byte and reason."""
        part, disk = self.part, ArrowDisk(self.part.path)
        assert part.meta is not None
        collecting = gc.isenabled()
        gc.disable()
        try:
            reader = SegmentReader(
                disk,
                part.name,
                part.meta,
                part.end,
                rescue=part.rescue,
            )
            self.constants = {
                "term": reader.term.number,
                "node": node_name(part.meta.node),
                "term_id": reader.term.id.hex(),
                "segment": part.name,
                "rescue": part.rescue,
                "retracted": part.retracted,
            }
            if self.walker is not None:
                self.walker.constants = self.constants
            waiting: list[Frame] = []
            try:
                yield from self._frames(reader, waiting)
            except StorageError:
                # What stands before the damage is whole.
                yield from self._rows(waiting)
                raise
            yield from self._rows(waiting)
        except StorageError as error:
            raise named(disk, error) from error
        finally:
            if collecting:
                gc.enable()

    def _frames(self, reader: SegmentReader, waiting: list[Frame]) -> Iterator[pa.RecordBatch]:
        """Batches of whole frames; those that make no full one are left in `waiting`."""
        first, last = self.part.first_lsn, self.part.last_lsn
        records = size = 0
        for header, body in reader.frames(self.part.start):
            if header.last_lsn < first:
                continue
            if header.first_lsn > last:
                break
            waiting.append((header, body, reader.info.size))
            records += header.count
            size += header.length
            if records >= self.batch_rows or size >= BATCH_BYTES:
                ready = waiting.copy()
                waiting.clear()
                records = size = 0
                yield from self._rows(ready)

    def _rows(self, frames: list[Frame]) -> Iterator[pa.RecordBatch]:
        if self.walker is not None and frames:
            try:
                yield from self._walked(frames)
                return
            except GaveUp:
                pass
        for header, body, position in frames:
            try:
                self._record_rows(header, body, position)
            except StorageError:
                yield from self._flush()
                raise
            if self.pending >= min(self.batch_rows, PLAIN_ROWS):
                yield from self._flush()
        yield from self._flush()

    def _walked(self, frames: list[Frame]) -> Iterator[pa.RecordBatch]:
        assert self.walker is not None
        bounds = (self.part.first_lsn, self.part.last_lsn)
        rows = self.walker.columns([(header, body) for header, body, _ in frames], bounds)
        if not rows.count:
            return
        arrays = [rows.array(field) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        chosen = rows.chosen(self.tubes, self.operations)
        if chosen is not None:
            batch = batch.filter(pa.array(chosen))
        if batch.num_rows:
            yield batch

    # -- sorting ops into groups -----------------------------------------------------------------

    def _record_rows(self, header: FrameHeader, body: bytes | memoryview, position: int) -> None:
        first, last = self.part.first_lsn, self.part.last_lsn
        try:
            records = decode_body(body, header.count)
        except FrameError as error:
            raise StorageError(self.part.name, position, error.reason) from error
        lsn = header.first_lsn
        if lsn < first or header.last_lsn > last:
            records = records[max(first - lsn, 0) : last - lsn + 1]
            lsn = max(lsn, first)
        self._collect(lsn, records, position)

    def _collect(self, lsn: int, records: Sequence[Any], position: int) -> None:
        kinds, adders, pending = self.kinds, self.adders, 0
        lsn -= 1
        try:
            for time_us, kind, session, ops in records:
                lsn += 1
                if kinds is not None and kind not in kinds:
                    continue
                before = pending
                for op in ops:
                    code, space = op[0], op[1]
                    if code == TERM:
                        self._other(lsn, time_us, kind, session, (op,))
                        pending += 1
                        continue
                    if space < SPACE_ID_FIRST:
                        if space == NOTES_ID and (code == SET or code == INSERT):
                            self._note(lsn, op, ops)
                        continue
                    if code <= DELETE:
                        try:
                            add = adders[code][space]
                        except KeyError:
                            add = adders[code][space] = self._group(code, space).rows.append
                        # The row of an insert, the whole op of a set, the id of a delete.
                        add((lsn, time_us, kind, session, op if code == SET else op[2]))
                        pending += 1
                    elif code >= INSERT_MANY:
                        pending += self._many(lsn, time_us, kind, session, op)
                if pending == before:
                    self._other(lsn, time_us, kind, session, ops)
                    pending += 1
        except (IndexError, TypeError, ValueError) as error:
            name = self.part.name
            raise StorageError(name, position, f"LSN {lsn}: no record: {error}") from error
        self.pending += pending

    def _note(self, lsn: int, note: Sequence[Any], ops: Sequence[Any]) -> None:
        """What a note on a task says of its attempts goes with what its record did to the task.

        A note knows its tube by another number than the task's space. The op it belongs to is the
        next one on a task of that id, or else the last one before.
        """
        if note[0] == INSERT:
            (_, task, count, *_), counts = note[2], note[2][NOTE_ATTEMPTS] > 0
        else:
            (_, task), count, counts = note[2], note[4], note[3] == NOTE_ATTEMPTS
        if not counts:
            return
        at = next(at for at, op in enumerate(ops) if op is note)
        for op in (*ops[at + 1 :], *reversed(ops[:at])):
            code, space = op[0], op[1]
            if space < SPACE_ID_FIRST or code == TERM:
                continue
            if (code in (SET, DELETE) and op[2] == task) or (
                code in (SET_MANY, DELETE_MANY) and task in op[2]
            ):
                self.notes[lsn, space, task] = count
                return

    def _group(self, code: int, space: int) -> Group:
        found = self.groups.get((code, space))
        if found is None:
            found = self.groups[code, space] = Group(code, space)
        return found

    def _many(self, lsn: int, time_us: int, kind: int, session: Any, op: Sequence[Any]) -> int:
        code, space, values = op[0], op[1], op[2]
        if code == INSERT_MANY:
            rows = self._group(INSERT, space).rows
        elif code == SET_MANY:
            rows = self._group(SET, space).rows
            rest = op[3:]
            values = [(SET, space, key, *rest) for key in values]
        elif code == DELETE_MANY:
            rows = self._group(DELETE, space).rows
        else:
            raise ValueError(f"unknown op code {code}")
        rows.extend([(lsn, time_us, kind, session, value) for value in values])
        return len(values)

    def _other(self, lsn: int, time_us: int, kind: int, session: Any, ops: Sequence[Any]) -> None:
        """What is about no single task: a term, a tube, a session, a setting."""
        space, text = about_no_task(ops)
        self._group(TRUNCATE, space).rows.append((lsn, time_us, kind, session, text))

    # -- groups to columns -----------------------------------------------------------------------

    def _flush(self) -> Iterator[pa.RecordBatch]:
        groups, self.groups, self.pending = list(self.groups.values()), {}, 0
        self.adders = ({}, {}, {}, {})
        made = [one for group in groups if group.rows and (one := self._columns(group)) is not None]
        if not made:
            return
        order = pa.concat_arrays([pa.array(one.lsn, pa.int64()) for one in made])
        order = None if len(made) == 1 else pc.sort_indices(order)
        arrays = [self._array(made, field, order) for field in self.schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self.operations is not None:
            chosen = pa.array(
                [name in self.operations for one in made for name in one.operations()]
            )
            batch = batch.filter(chosen if order is None else chosen.take(order))
        self.notes = {}
        if batch.num_rows:
            yield batch

    def _columns(self, group: Group) -> Columns | None:
        tube, driver = self.part.spaces.get(group.space, (None, ""))
        if tube is None and group.space >= SPACE_ID_FIRST:
            tube = f"#{group.space}"
        if self.tubes is not None and tube not in self.tubes:
            return None
        return Columns(group, tube, driver, self.sessions, self.notes)

    def _array(self, made: list[Columns], field: pa.Field, order: pa.Array | None) -> pa.Array:
        """A column of all groups in order of LSN; what is constant or NULL is made at once."""
        count = sum(len(one.lsn) for one in made)
        if field.name in self.constants:
            return pa.repeat(pa.scalar(self.constants[field.name], field.type), count)
        values = [one.values_of(field.name) for one in made]
        if all(value is None for value in values):
            return pa.nulls(count, field.type)
        parts = [
            pa.nulls(len(one.lsn), field.type)
            if value is None
            else pa.repeat(pa.scalar(value, field.type), len(one.lsn))
            if isinstance(value, str)
            else pa.array(value, field.type)
            for one, value in zip(made, values, strict=True)
        ]
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        return joined if order is None else joined.take(order)


def _kinds_of(operations: frozenset[str]) -> set[int] | None:
    """Kinds of records that may hold such operations; None where any may."""
    if operations & {"put", "dead", "move"}:
        return None
    return {
        kind
        for kind in range(256)
        if not operations.isdisjoint((operation_name(kind), operation_name(kind, TRUNCATE)))
    }


def damaged(part: Part, columns: Sequence[str]) -> pa.RecordBatch:
    """The one row that stands for what could not be read (mode PERMISSIVE)."""
    assert part.damage is not None
    position, reason = part.damage
    schema = arrow_schema(columns)
    known = {
        "operation": "damaged",
        "kind": "damaged",
        "lsn": part.first_lsn or None,
        "segment": part.name,
        "rescue": part.rescue,
        "retracted": False,
        "detail": json.dumps({"file": part.name, "position": position, "reason": reason}),
        "node": node_name(part.meta.node) if part.meta is not None else None,
    }
    arrays = [pa.array([known.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
