"""What every job starts from: the log as a DataFrame, and one look through it that packs events.

A task is known by its tube, its id and which put it began with: ids start at 0 again when a tube
is truncated. `Survey.by_task` brings all events of a task to one worker; from there on
`tandemq.pipeline.lives` works on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.pipeline.lives import Lives
from tandemq.pipeline.notes import Notes, gathered
from tandemq.pipeline.packing import (
    NEEDED,
    PACKED,
    SURVEYED,
    Surveyed,
    lives_of,
    pack,
    pack_events,
    parts_of,
)
from tandemq.spark.mapped import mapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Parts for which the rows of a DataFrame are packed: it does not tell how large it is.
FRAME_PARTS = 256


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
class Survey(Surveyed):
    """A log gone through once. frame: rows of PACKED, kept."""

    frame: DataFrame

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
            again = partial(pack_events, buckets)
            rows = rows.unionByName(before.mapInArrow(again, from_arrow_schema(PACKED)))
        parts = parts_for(self.frame.sparkSession, buckets, sum(one.rows for one in notes))
        return spread(rows, parts).mapInArrow(partial(_on_part, work), from_arrow_schema(schema))


def parts_for(spark: SparkSession, buckets: int, rows: int) -> int:
    """How many partitions so many rows in buckets are brought to: a power of two."""
    return parts_of(int(spark.conf.get("spark.sql.shuffle.partitions") or 8), buckets, rows)


def spread(rows: DataFrame, parts: int) -> DataFrame:
    """The bodies of packed rows; those of one bucket are in one of so many partitions."""
    place = F.pmod(F.col("bucket"), F.lit(parts))
    return rows.withColumn("place", place).repartitionById(parts, "place").select("body")


def _on_part(
    work: Callable[[Lives], Iterable[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    part = lives_of(batch.column(0) for batch in batches)
    if part is not None:
        yield from work(part)


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
        yield Survey(_notes(frame), frame)


@contextmanager
def survey_frame(log: DataFrame) -> Iterator[Survey]:
    """The same of rows of `tandemq_log`."""
    read = log.select(*(name for name in log.columns if name in SURVEYED))
    packing = read.mapInArrow(partial(pack, parts=FRAME_PARTS), from_arrow_schema(PACKED))
    with kept(packing) as frame:
        yield Survey(_notes(frame), frame)


def _notes(frame: DataFrame) -> list[Notes]:
    rows = frame.where("bucket is null").select("body").collect()
    return gathered(bytes(row["body"]) for row in rows)
