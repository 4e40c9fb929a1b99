"""What every job starts from: the log as a DataFrame, one lineage of it, and events of tasks.

A task is known by its tube, its id and which put it began with: ids start at 0 again when a tube
is truncated. `by_task` brings all events of a task to one place; from there on `pipeline.lives`
works on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.lives import AT_LSN, AT_OP, Lives, lives
from pipeline.operations import CODES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
#: Events one Python worker has at once, at most, where tasks are spread evenly.
PART_ROWS = 1_000_000


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
class Lineage:
    """Rows of one node; its last LSN, None where there is no row; how many rows there are."""

    log: DataFrame
    last: int | None
    count: int


def furthest(log: DataFrame) -> Lineage:
    """The one node whose log goes furthest; of equals the one that reaches back furthest.

    Rescue files are left out.
    """
    nodes = (
        log.where("not rescue and node is not null")
        .groupBy("node")
        .agg(F.max("lsn").alias("last"), F.min("lsn").alias("first"), F.count("*").alias("rows"))
        .collect()
    )
    alone = log.where("not rescue")
    if not nodes:
        return Lineage(alone, None, 0)
    best = min(nodes, key=lambda row: (-row["last"], row["first"], row["node"]))
    if len(nodes) > 1:
        alone = alone.where(F.col("node") == best["node"])
    return Lineage(alone, best["last"], best["rows"])


def one_lineage(log: DataFrame) -> DataFrame:
    """Rows of one node only: see `furthest`."""
    return furthest(log).log


def code_of(operation: Column) -> Column:
    """The operation's code."""
    found = F.lit(0)
    for name, code in CODES.items():
        found = F.when(operation == name, F.lit(code)).otherwise(found)
    return found.cast("bigint")


def events(log: DataFrame, timed: bool = False) -> DataFrame:
    """One row per task and record, touches left out; columns of `pipeline.lives.EVENT`.

    timed: with ttl and ttr, which only the audit reads; each column costs every row.
    """
    return log.where("task_id is not null and operation != 'touch'").select(
        "tube",
        F.col("task_id").alias("task"),
        (
            F.shiftleft("lsn", AT_LSN)
            + F.shiftleft(code_of(F.col("operation")), AT_OP)
            + F.coalesce((F.col("state_to") == "-").cast("bigint"), F.lit(0))
        ).alias("at"),
        F.unix_micros("time").alias("us"),
        "session",
        F.col("priority").alias("pri"),
        "utube",
        *(("ttl", "ttr") if timed else ()),
    )


def by_task(
    happened: DataFrame,
    work: Callable[[Lives], Iterable[pa.RecordBatch]],
    schema: pa.Schema,
    count: int = 0,
) -> DataFrame:
    """What `work` makes of the lives of tasks, part by part; each task is whole in one part.

    schema: of its batches. count: how many events there are about, so that parts do not get large.
    """
    parts = int(happened.sparkSession.conf.get("spark.sql.shuffle.partitions") or 8)
    parts = max(parts, count // PART_ROWS + 1)

    def on_part(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if found:
            yield from work(lives(pa.Table.from_batches(found)))

    return happened.repartition(parts, "tube", "task").mapInArrow(
        on_part, from_arrow_schema(schema)
    )


def cleared(log: DataFrame) -> dict[str, list[int]]:
    """When all tasks of a tube went at once, by truncate or drop: LSNs by tube, ascending."""
    rows = log.where("operation in ('truncate', 'drop_tube') and tube is not null")
    found: dict[str, list[int]] = {}
    for row in rows.select("tube", "lsn").orderBy("lsn").collect():
        found.setdefault(row["tube"], []).append(row["lsn"])
    return found
