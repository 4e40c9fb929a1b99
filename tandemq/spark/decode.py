"""Frames of a part to Arrow batches: one row per task a record touched, at least one per record.

A record is unpacked with hundreds of others in one call of C code. Its ops are sorted by what
they do and by tube, and each such group becomes columns at once; a final sort by LSN (stable, so
that the tasks of one record keep their order) puts the groups together again.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from model.errors import StorageError
from model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    INSERT,
    INSERT_MANY,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    FrameError,
    decode_body,
)
from storage.segment import SegmentReader
from tandemq.spark.columns import arrow_schema
from tandemq.spark.groups import Columns, Group, operation_name, plain
from tandemq.spark.logs import ArrowDisk, Part, named, node_name

SPACE_ID_FIRST = 1024


class Decoder:
    """Arrow batches of one part with the columns wanted.

    tubes / operations: rows of others are left out early; None keeps all.
    """

    def __init__(
        self,
        part: Part,
        columns: Sequence[str],
        batch_rows: int = 8192,
        tubes: frozenset[str] | None = None,
        operations: frozenset[str] | None = None,
    ) -> None:
        self.part = part
        self.columns = tuple(columns)
        self.schema = arrow_schema(columns)
        self.batch_rows = batch_rows
        self.tubes = tubes
        self.operations = operations
        self.kinds = None if operations is None else _kinds_of(operations)
        self.groups: dict[tuple[int, int], Group] = {}
        self.pending = 0
        self.sessions: dict[bytes | None, str | None] = {None: None}
        self.constants: dict[str, Any] = {}

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
                rescue=part.rescue,  # type: ignore[arg-type]
            )
            self.constants = {
                "term": reader.term.number,
                "node": node_name(part.meta.node),
                "term_id": reader.term.id.hex(),
                "segment": part.name,
                "rescue": part.rescue,
                "retracted": part.retracted,
            }
            first, last = part.first_lsn, part.last_lsn
            for header, body in reader.frames(part.start):
                if header.last_lsn < first:
                    continue
                if header.first_lsn > last:
                    break
                records = decode_body(body, header.count)
                lsn = header.first_lsn
                if lsn < first or header.last_lsn > last:
                    records = records[max(first - lsn, 0) : last - lsn + 1]
                    lsn = max(lsn, first)
                self._collect(lsn, records, reader.info.size)
                if self.pending >= self.batch_rows:
                    yield from self._flush()
            yield from self._flush()
        except FrameError as error:
            where = StorageError(part.name, reader.info.size, error.reason)
            raise named(disk, where) from error
        except StorageError as error:
            raise named(disk, error) from error
        finally:
            if collecting:
                gc.enable()

    # -- sorting ops into groups -----------------------------------------------------------------

    def _collect(self, lsn: int, records: Sequence[Any], position: int) -> None:
        kinds, groups, pending = self.kinds, self.groups, 0
        lsn -= 1
        try:
            for time_us, kind, session, ops in records:
                lsn += 1
                if kinds is not None and kind not in kinds:
                    continue
                before = pending
                for op in ops:
                    code, space = op[0], op[1]
                    if space < SPACE_ID_FIRST or code == TERM:
                        continue
                    if code <= DELETE:
                        key = (code, space)
                        if key not in groups:
                            groups[key] = Group(code, space)
                        # The row of an insert, the whole op of a set, the id of a delete.
                        value = op if code == SET else op[2]
                        groups[key].rows.append((lsn, time_us, kind, session, value))
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
        """A record about no single task: a term, a tube, a session, a setting."""
        space, detail = 0, None
        for op in ops:
            if op[0] == TERM:
                number, term_id, parent, start_lsn, node, solo = op[1:7]
                detail = {
                    "number": number,
                    "id": term_id.hex(),
                    "parent": parent.hex() if parent else None,
                    "start_lsn": start_lsn,
                    "node": node,
                    "solo": solo,
                }
            elif op[0] == CREATE:
                space, detail = op[1], {"name": op[2], "type": op[3], "opts": op[4]}
            elif op[1] >= SPACE_ID_FIRST:
                space = op[1]
        text = None if detail is None else json.dumps(detail, default=plain)
        self._group(TRUNCATE, space).rows.append((lsn, time_us, kind, session, text))

    # -- groups to columns -----------------------------------------------------------------------

    def _flush(self) -> Iterator[pa.RecordBatch]:
        groups, self.groups, self.pending = list(self.groups.values()), {}, 0
        tables = [
            table
            for group in groups
            if group.rows and (table := self._table(group)) is not None and table.num_rows
        ]
        if not tables:
            return
        if len(tables) == 1:
            whole = tables[0].drop_columns(["_order"])
        else:
            joined = pa.concat_tables(tables).combine_chunks()
            order = pc.sort_indices(joined["_order"])
            whole = joined.drop_columns(["_order"]).take(order)
        yield from whole.combine_chunks().to_batches(max_chunksize=4 * self.batch_rows)

    def _table(self, group: Group) -> pa.Table | None:
        tube, driver = self.part.spaces.get(group.space, (None, ""))
        if group.space and tube is None and group.space >= SPACE_ID_FIRST:
            tube = f"#{group.space}"
        if self.tubes is not None and tube not in self.tubes:
            return None
        columns = Columns(group, tube, driver, self.constants, self.sessions)
        arrays = [columns.make(name, self.schema.field(name).type) for name in self.columns]
        order = pa.array(columns.lsn, pa.int64())
        schema = self.schema.append(pa.field("_order", pa.int64()))
        table = pa.Table.from_arrays([*arrays, order], schema=schema)
        if self.operations is not None:
            chosen = self.operations
            table = table.filter(pa.array([one in chosen for one in columns.operations()]))
        return table


def _kinds_of(operations: frozenset[str]) -> set[int] | None:
    """Kinds of records that may hold such operations; None where any may."""
    if operations & {"put", "dead", "move"}:
        return None
    return {kind for kind in range(256) if operation_name(kind) in operations}


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
