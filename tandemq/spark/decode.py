"""Frames of a part to Arrow batches: one row per task a record touched, at least one per record.

A record is unpacked with hundreds of others in one call of C code. Its ops are sorted by what
they do and by tube, and each such group becomes columns at once; a final sort by LSN (stable, so
that the tasks of one record keep their order) puts the groups together again.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from model.errors import StorageError
from model.record import (
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
    decode_body,
)
from storage.segment import SegmentReader
from tandemq.spark.columns import arrow_schema
from tandemq.spark.logs import ArrowDisk, Part, named, node_name

SPACE_ID_FIRST = 1024
#: Fields of a driver's rows, by column. Drivers not listed: id, status, ..., payload.
LAYOUTS: dict[str, dict[str, int]] = {
    "fifo": {"payload": 2},
    "fifottl": {"ttl": 3, "ttr": 4, "priority": 5, "payload": 7},
    "limfifottl": {"ttl": 3, "ttr": 4, "priority": 5, "payload": 7},
    "utube": {"utube": 2, "payload": 3},
    "utubettl": {"ttl": 3, "ttr": 4, "priority": 5, "utube": 7, "payload": 8},
}
NEXT_EVENT, TTL, TTR = 2, 3, 4
#: The state a task must have had for such an operation to touch it.
STATE_FROM = {
    "take": "r",
    "ack": "t",
    "release": "t",
    "kick": "!",
    "touch": "t",
    "ttr": "t",
    "delay": "~",
}
LARGEST = 2**63 - 1


def operation_name(kind: int) -> str:
    """What a record of this kind did to a task it touched."""
    name = KIND_NAMES.get(kind, f"kind_{kind}")
    if name in ("session", "term", "startup", "release_all"):
        return "release"
    return name.removesuffix("_many")


def json_of(payload: bytes | None) -> str | None:
    """A MessagePack payload as JSON; bytes in it as text, None for what is no MessagePack."""
    if payload is None:
        return None
    try:
        value = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="backslashreplace")
        return json.dumps(value, default=_plain, ensure_ascii=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return repr(value)


class Group:
    """Rows that become columns together: puts, sets or deletes of one tube, or the rest."""

    __slots__ = ("rows", "space", "what")

    def __init__(self, what: int, space: int) -> None:
        self.what = what
        self.space = space
        self.rows: list[tuple[Any, ...]] = []


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
        self.kinds = (
            None
            if operations is None
            else {kind for kind in range(256) if _may_be(kind, operations)}
        )
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
        text = None if detail is None else json.dumps(detail, default=_plain)
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
        return pa.Table.from_arrays(
            [*arrays, order], schema=self.schema.append(pa.field("_order", pa.int64()))
        )


def _may_be(kind: int, operations: frozenset[str]) -> bool:
    return operation_name(kind) in operations or KIND_NAMES.get(kind, f"kind_{kind}") in operations


class Columns:
    """One group's values by column, made when asked for."""

    def __init__(
        self,
        group: Group,
        tube: str | None,
        driver: str,
        constants: dict[str, Any],
        sessions: dict[bytes | None, str | None],
    ) -> None:
        self.what = group.what
        self.lsn, self.times, self.kinds, self.owners, self.values = zip(*group.rows, strict=True)
        self.tube = tube
        self.layout = LAYOUTS.get(driver, {"payload": -1})
        self.constants = constants
        self.sessions = sessions

    def make(self, name: str, kind: pa.DataType) -> pa.Array:
        count = len(self.lsn)
        if name in self.constants:
            return pa.repeat(pa.scalar(self.constants[name], kind), count)
        if name == "tube":
            return pa.repeat(pa.scalar(self.tube, kind), count)
        values = self._values(name)
        return pa.nulls(count, kind) if values is None else pa.array(values, kind)

    def _values(self, name: str) -> Sequence[Any] | None:
        if name == "lsn":
            return self.lsn
        if name == "time":
            return self.times
        if name == "kind":
            return self._named(lambda kind: KIND_NAMES.get(kind, f"kind_{kind}"))
        if name == "operation":
            if self.what == TRUNCATE:
                return self._named(lambda kind: KIND_NAMES.get(kind, f"kind_{kind}"))
            return self._named(operation_name)
        if name == "session":
            return self._session_names()
        if name == "state_from" and self.what != TRUNCATE:
            return self._named(lambda kind: STATE_FROM.get(operation_name(kind)))
        if self.what == INSERT:
            return self._of_insert(name)
        if self.what == SET:
            return self._of_set(name)
        if self.what == DELETE:
            if name == "task_id":
                return self.values
            return ["-"] * len(self.lsn) if name == "state_to" else None
        return self.values if name == "detail" else None

    def _named(self, name_of: Callable[[int], str | None]) -> Sequence[str | None]:
        names = {kind: name_of(kind) for kind in set(self.kinds)}
        return [names[kind] for kind in self.kinds]

    def _session_names(self) -> Sequence[str | None]:
        names = self.sessions
        for session in set(self.owners):
            if session not in names:
                names[session] = (
                    str(UUID(bytes_le=session)) if len(session) == 16 else session.hex()
                )
        return [names[session] for session in self.owners]

    def _of_insert(self, name: str) -> Sequence[Any] | None:
        rows = self.values
        if name == "task_id":
            return [row[0] for row in rows]
        if name == "state_to":
            return [row[1] for row in rows]
        if name == "payload":
            at = self.layout["payload"]
            return [_bytes(row[at]) for row in rows]
        if name == "payload_json":
            at = self.layout["payload"]
            return [json_of(_bytes(row[at])) for row in rows]
        if name == "delay" and "ttl" in self.layout:
            return [
                row[NEXT_EVENT] - now if row[1] == "~" else None
                for row, now in zip(rows, self.times, strict=True)
            ]
        place = self.layout.get(name)
        if place is None:
            return None
        if name == "utube":
            return [row[place] for row in rows]
        return [min(row[place], LARGEST) for row in rows]

    def _of_set(self, name: str) -> Sequence[Any] | None:
        ops = self.values
        if name == "task_id":
            return [op[2] for op in ops]
        if name == "state_to":
            return [op[4] if op[3] == 1 else _field(op, 1) for op in ops]
        if "ttl" not in self.layout:
            return None
        if name == "ttl":
            return [_field(op, TTL) if len(op) > 7 else None for op in ops]
        if name == "ttr":
            return [_field(op, TTR) if len(op) > 7 else None for op in ops]
        if name == "delay":
            return [
                (_field(op, NEXT_EVENT) or now) - now if op[4] == "~" else None
                for op, now in zip(ops, self.times, strict=True)
            ]
        return None


def _field(op: Sequence[Any], number: int) -> Any:
    """The value a set op gives to a field; None when it leaves it alone."""
    for at in range(3, len(op) - 1, 2):
        if op[at] == number:
            return op[at + 1]
    return None


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None


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
