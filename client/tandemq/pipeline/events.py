"""What every job starts from: the log as a DataFrame, and one look through it that packs events.

A task is known by its tube, its id and which put it began with: ids start at 0 again when a tube
is truncated. `Survey.by_task` brings all events of a task to one worker; from there on
`tandemq.pipeline.lives` works on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.pipeline.arrays import TEXT, Bits, chosen_rows, encoded, numbers, place_of
from tandemq.pipeline.exchange import bucket_in_tube, buckets_for, packed, unpacked
from tandemq.pipeline.lives import AT_LSN, AT_OP, Lives, lives
from tandemq.pipeline.notes import Notes, gathered, noted
from tandemq.pipeline.operations import CODES
from tandemq.spark.mapped import mapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
#: Events one Python worker has at once, at most, where tasks are spread evenly.
PART_ROWS = 1 << 20
#: Parts for which the rows of a DataFrame are packed: it does not tell how large it is.
FRAME_PARTS = 256
#: Events of one bucket, or notes (no bucket).
PACKED = pa.schema([("node", pa.string()), ("bucket", pa.int32()), ("body", pa.binary())])


def read_log(
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[str] | None = None,
    **options: object,
) -> DataFrame:
    """The log of directories and archives; `options` are those of `tandemq_log`."""
    reader = spark.read.format("tandemq_log").option("path", ",".join(map(str, paths)))
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame, computed once while the block runs: each use would compute it anew."""
    if frame.is_cached:
        yield frame
        return
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


@dataclass
class Survey:
    """A log gone through once. frame: rows of PACKED, kept. notes: see `tandemq.pipeline.notes`."""

    frame: DataFrame
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

    def by_task(
        self,
        work: Callable[[Lives], Iterable[pa.RecordBatch]],
        schema: pa.Schema,
        nodes: Sequence[str] | None = None,
        before: DataFrame | None = None,
    ) -> DataFrame:
        """What `work` makes of the lives of tasks, part by part; each task is whole in one part.

        schema: of its batches, with plain texts. nodes: whose logs; default is the furthest.
        before: rows of `tandemq.pipeline.lives.EVENT`, older than the log.
        """
        best = self.furthest
        chosen = nodes if nodes is not None else [best.node] if best is not None else []
        notes = [one for one in self.logs if one.node in chosen]
        buckets = self.buckets
        rows = self.frame.where(F.col("bucket").isNotNull() & F.col("node").isin(*chosen))
        if before is not None:
            pack = partial(_pack_events, buckets)
            rows = rows.unionByName(before.mapInArrow(pack, from_arrow_schema(PACKED)))
        parts = parts_for(self.frame.sparkSession, buckets, sum(one.rows for one in notes))
        return spread(rows, parts).mapInArrow(partial(_on_part, work), from_arrow_schema(schema))


def parts_for(spark: SparkSession, buckets: int, rows: int) -> int:
    """How many partitions so many rows in buckets are brought to: a power of two."""
    wanted = int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
    wanted = max(wanted, rows // PART_ROWS + 1)
    return min(buckets, 1 << (wanted - 1).bit_length())


def spread(rows: DataFrame, parts: int) -> DataFrame:
    """The bodies of packed rows; those of one bucket are in one of so many partitions."""
    place = F.pmod(F.col("bucket"), F.lit(parts))
    return rows.withColumn("place", place).repartitionById(parts, "place").select("body")


def _on_part(
    work: Callable[[Lives], Iterable[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    tables = [one for one in unpacked(batch.column(0) for batch in batches) if one.num_rows]
    if tables:
        # They come in any order; each is in order of LSN.
        tables.sort(key=lambda one: one["at"][0].as_py())
        yield from work(lives(pa.concat_tables(tables)))


@contextmanager
def survey(
    spark: SparkSession, paths: Sequence[str], columns: Sequence[str] = NEEDED, **options: object
) -> Iterator[Survey]:
    """Look through directories and archives; what is found is kept while the block runs.

    columns: NEEDED at least; ttl and ttr become columns of the events, of term, term_id and
    tube_type there are notes. options: those of `tandemq_log`.
    """
    schema = from_arrow_schema(PACKED)
    with kept(mapped(spark, paths, columns, pack, schema, **options)) as frame:
        yield Survey(frame, _notes(frame))


@contextmanager
def survey_frame(log: DataFrame) -> Iterator[Survey]:
    """The same of rows of `tandemq_log`."""
    read = log.select(*(name for name in log.columns if name in SURVEYED))
    packing = read.mapInArrow(partial(pack, parts=FRAME_PARTS), from_arrow_schema(PACKED))
    with kept(packing) as frame:
        yield Survey(frame, _notes(frame))


def _notes(frame: DataFrame) -> list[Notes]:
    rows = frame.where("bucket is null").select("body").collect()
    return gathered(bytes(row["body"]) for row in rows)


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


def _pack_events(buckets: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
