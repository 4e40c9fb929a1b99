"""What every job starts from: the log as a DataFrame, one lineage of it, and events of tasks.

A task is known by its tube, its id and which put it began with: ids start at 0 again when a tube
is truncated. Times are microseconds since the epoch as BIGINT, codes are small integers: what is
shuffled stays narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Operations by code. 0 is any other.
CODES = {
    "put": 1,
    "take": 2,
    "ack": 3,
    "release": 4,
    "bury": 5,
    "kick": 6,
    "delete": 7,
    "ttr": 8,
    "ttl": 9,
    "delay": 10,
    "finish": 11,
    "dead": 12,
    "move": 13,
}
PUT, TAKE, ACK, RELEASE, BURY, KICK, DELETE, TTR, TTL, DELAY, FINISH, DEAD, MOVE = range(1, 14)
NEEDED = (
    "lsn",
    "node",
    "time",
    "tube",
    "tube_type",
    "task_id",
    "operation",
    "kind",
    "state_to",
    "session",
    "priority",
    "ttl",
    "ttr",
    "utube",
    "payload",
    "rescue",
)


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
    """The frame, computed once while the block runs: each scan of a log plans and decodes anew."""
    if frame.is_cached:
        yield frame
        return
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def furthest(log: DataFrame) -> tuple[DataFrame, int | None]:
    """(rows of the one node whose log goes furthest, its last LSN, None where there is no row).

    Of equals it is the one that reaches back furthest. Rescue files are left out.
    """
    nodes = (
        log.where("not rescue and node is not null")
        .groupBy("node")
        .agg(F.max("lsn").alias("last"), F.min("lsn").alias("first"))
        .collect()
    )
    alone = log.where("not rescue")
    if not nodes:
        return alone, None
    best = min(nodes, key=lambda row: (-row["last"], row["first"], row["node"]))
    return alone if len(nodes) < 2 else alone.where(F.col("node") == best["node"]), best["last"]


def one_lineage(log: DataFrame) -> DataFrame:
    """Rows of one node only: see `furthest`."""
    return furthest(log)[0]


def code_of(operation: Column, state_to: Column) -> Column:
    """The operation's code; another operation that ends a task counts as one of no name."""
    found = F.lit(0)
    for name, code in CODES.items():
        found = F.when(operation == name, F.lit(code)).otherwise(found)
    return found.cast("tinyint")


def events(log: DataFrame) -> DataFrame:
    """One narrow row per task and record, touches left out, with the put it belongs to.

    Columns: tube, task, birth (1 for the first put of that id, 2 for the next), lsn, us, op, ends
    (the task is gone), session, pri, ttl, ttr, utube, payload, and of the event before: prev_op,
    prev_lsn, prev_us, prev_session, prev_ends.
    """
    narrow = log.where("task_id is not null and operation != 'touch'").select(
        "tube",
        F.col("task_id").alias("task"),
        "lsn",
        F.unix_micros("time").alias("us"),
        code_of(F.col("operation"), F.col("state_to")).alias("op"),
        (F.col("state_to") == "-").alias("ends"),
        "session",
        F.col("priority").alias("pri"),
        "ttl",
        "ttr",
        "utube",
        "payload",
        "tube_type",
    )
    return with_birth(narrow)


def with_birth(narrow: DataFrame) -> DataFrame:
    """Adds birth and what came before to narrow events; see `events`."""
    order = Window.partitionBy("tube", "task").orderBy("lsn")
    running = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return narrow.select(
        "*",
        F.sum((F.col("op") == PUT).cast("int")).over(running).alias("birth"),
        F.lag("op").over(order).alias("prev_op"),
        F.lag("lsn").over(order).alias("prev_lsn"),
        F.lag("us").over(order).alias("prev_us"),
        F.lag("session").over(order).alias("prev_session"),
        F.lag("ends").over(order).alias("prev_ends"),
        F.lead("op").over(order).alias("next_op"),
        F.lead("us").over(order).alias("next_us"),
        F.lead("ends").over(order).alias("next_ends"),
        F.lead("lsn").over(order).alias("next_lsn"),
    )


def cleared(log: DataFrame) -> DataFrame:
    """(tube, lsns): when all tasks of a tube went at once, by truncate or drop; few rows."""
    return (
        log.where("operation in ('truncate', 'drop_tube') and tube is not null")
        .groupBy("tube")
        .agg(F.sort_array(F.collect_list("lsn")).alias("cleared"))
    )
