"""What one look through a log keeps of it: its events, packed by bucket, and notes.

Pure functions of Arrow batches, and what is known once all of a log was looked at: Spark's tasks
run them (`events.py`), and so does the engine of one process (`local.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tandemq.pipeline.arrays import TEXT, Bits, chosen_rows, encoded, numbers, place_of
from tandemq.pipeline.exchange import bucket_in_tube, buckets_for, packed, unpacked
from tandemq.pipeline.lives import AT_LSN, AT_OP, Lives, lives
from tandemq.pipeline.notes import Notes, noted
from tandemq.pipeline.operations import CODES

NEEDED = (
    "lsn",
    "node",
    "time",
    "tube",
    "task_id",
    "operation",
    "state_to",
    "session",
    "priority",
    "utube",
    "rescue",
)
#: What events are made of, and with what notes are taken besides.
READ = (*NEEDED, "ttl", "ttr")
SURVEYED = (*READ, "term", "term_id", "tube_type", "detail")
#: Rows packed at once.
STRETCH = 1 << 19
#: Events that are worked on at once, at most, where tasks are spread evenly.
PART_ROWS = 1 << 20
#: Events of one bucket, or notes (no bucket).
PACKED = pa.schema([("node", pa.string()), ("bucket", pa.int32()), ("body", pa.binary())])


@dataclass
class Surveyed:
    """What is known of a log gone through once. notes: see `tandemq.pipeline.notes`."""

    notes: list[Notes]

    @cached_property
    def logs(self) -> list[Notes]:
        """Notes on the nodes' logs, without rescue files and what could not be read at all."""
        return [one for one in self.notes if one.node is not None and not one.rescue]

    @property
    def buckets(self) -> int:
        """How many there are of packed rows, at most."""
        return max((one.buckets for one in self.notes), default=buckets_for(1))

    @cached_property
    def furthest(self) -> Notes | None:
        """The node whose log goes furthest; of equals the one that reaches back furthest."""
        there = [one for one in self.logs if one.last is not None]
        return min(there, key=lambda one: (-one.last, one.first, one.node), default=None)  # type: ignore[operator]

    @property
    def cleared(self) -> dict[str, int]:
        """The last LSN at which all tasks of a tube went, in the log that goes furthest."""
        best = self.furthest
        return {} if best is None else {tube: max(lsns) for tube, lsns in best.cleared.items()}


def parts_of(least: int, buckets: int, rows: int) -> int:
    """How many parts so many rows in buckets are worked on in: a power of two."""
    wanted = max(least, rows // PART_ROWS + 1)
    return min(buckets, 1 << (wanted - 1).bit_length())


def lives_of(bodies: Iterable[Iterable[pa.Scalar]]) -> Lives | None:
    """The lives in packed events of one part; None where there are no events."""
    tables = [one for one in unpacked(bodies) if one.num_rows]
    if not tables:
        return None
    # They come in any order; each is in order of LSN.
    tables.sort(key=lambda one: one["at"][0].as_py())
    return lives(pa.concat_tables(tables))


def pack(batches: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.RecordBatch]:
    """Rows of `tandemq_log` to rows of PACKED."""
    for table in stretches(batches):
        yield from _pack(table, buckets_for(parts))


def stretches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of batches in tables of up to STRETCH rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if waiting and sum(one.num_rows for one in waiting) + batch.num_rows > STRETCH:
            yield pa.Table.from_batches(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield pa.Table.from_batches(waiting)


def _pack(table: pa.Table, buckets: int) -> Iterator[pa.RecordBatch]:
    table = table.unify_dictionaries().combine_chunks()
    node, nodes = encoded(table["node"])
    rescue = numbers(table["rescue"].cast(pa.int64()))
    both = node * 2 + rescue
    for value in np.unique(both).tolist():
        name, rescued = nodes[value // 2] if value >= 0 else None, bool(value & 1)
        notes = noted(table, both == value, name, rescued)
        notes.buckets = buckets
        yield pa.RecordBatch.from_pylist(
            [{"node": name, "bucket": None, "body": notes.text()}], PACKED
        )
        if name is not None and not rescued:
            yield from _packed(_events(table, both == value), name, buckets)


def _events(table: pa.Table, chosen: Bits) -> pa.Table:
    """One row per task and record, touches left out; columns of `tandemq.pipeline.lives.EVENT`."""
    table = table.select([name for name in table.column_names if name in READ])
    operation, operations = encoded(table["operation"])
    # Of what is no operation, too: the last one is for NULL.
    asked = np.array([name not in ("touch", "damaged") for name in (*operations, "")], bool)
    chosen = chosen & asked[operation] & table["task_id"].is_valid().to_numpy()
    table, operation = chosen_rows(table, chosen), operation[chosen]
    codes = np.array([CODES.get(name, 0) for name in (*operations, "")], np.int64)
    state, states = encoded(table["state_to"])
    ends = (state == place_of(states, "-")).astype(np.int64)
    columns = {
        "tube": _text(table["tube"]),
        "task": table["task_id"],
        "at": (numbers(table["lsn"]) << AT_LSN) + (codes[operation] << AT_OP) + ends,
        "us": table["time"].cast(pa.int64()),
        "session": _text(table["session"]),
        "pri": table["priority"],
        "utube": _text(table["utube"]),
    }
    timed = {name: table[name] for name in ("ttl", "ttr") if name in table.column_names}
    return pa.table(columns | timed)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if column.type == TEXT else column.dictionary_encode()


def pack_events(buckets: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of EVENT, texts plain, to rows of PACKED without a node."""
    for table in stretches(batches):
        names = table.column_names
        columns = [
            _text(table[name]) if pa.types.is_string(table[name].type) else table[name]
            for name in names
        ]
        yield from _packed(pa.table(columns, names), None, buckets)


def _packed(events: pa.Table, node: str | None, buckets: int) -> Iterator[pa.RecordBatch]:
    if not events.num_rows:
        return
    bucket = bucket_in_tube(events["tube"], events["task"], buckets)
    there, bodies = packed(events, bucket, buckets)
    columns = [pa.repeat(pa.scalar(node, pa.string()), len(there)), pa.array(there, pa.int32())]
    yield pa.RecordBatch.from_arrays([*columns, bodies], schema=PACKED)
