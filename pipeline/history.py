"""History: one row per delivery and one per task, incremental, as Parquet by date and tube.

`deliveries` and `tasks` are functions of events; `run` keeps the events of unfinished tasks beside
its output, so that the next run reads only what the log has gained.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pipeline.events import (
    ACK,
    BURY,
    DEAD,
    DELETE,
    FINISH,
    MOVE,
    NEEDED,
    PUT,
    RELEASE,
    TAKE,
    TTL,
    TTR,
    cleared,
    events,
    furthest,
    kept,
    read_log,
    with_birth,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: How a delivery or a task ended, by the operation that ended it.
OUTCOMES = {
    ACK: "acked",
    RELEASE: "released",
    TTR: "ttr",
    TTL: "ttl",
    BURY: "buried",
    DELETE: "deleted",
    FINISH: "finished",
    DEAD: "dead",
    MOVE: "moved",
}
STATE_FILE = "history.json"
NARROW = (
    "tube",
    "task",
    "lsn",
    "us",
    "op",
    "ends",
    "session",
    "pri",
    "ttl",
    "ttr",
    "utube",
    "payload",
    "tube_type",
)


def outcome_of(op: Column, otherwise: Column) -> Column:
    found = otherwise
    for code, name in OUTCOMES.items():
        found = F.when(op == code, F.lit(name)).otherwise(found)
    return found


def deliveries(happened: DataFrame) -> DataFrame:
    """One row per take.

    Columns: tube, task, birth, attempt, consumer, taken_us, waited_us (since it became ready),
    ran_us and outcome (NULL and `running` while it is held), lsn.
    """
    from pyspark.sql import Window

    taken = happened.where(F.col("op") == TAKE)
    order = Window.partitionBy("tube", "task", "birth").orderBy("lsn")
    return taken.select(
        "tube",
        "task",
        "birth",
        F.row_number().over(order).alias("attempt"),
        F.col("session").alias("consumer"),
        F.col("us").alias("taken_us"),
        (F.col("us") - F.col("prev_us")).alias("waited_us"),
        (F.col("next_us") - F.col("us")).alias("ran_us"),
        outcome_of(
            F.col("next_op"),
            F.when(F.col("next_op").isNull(), F.lit("running")).otherwise(F.lit("other")),
        ).alias("outcome"),
        "lsn",
    )


def tasks(happened: DataFrame, gone: DataFrame | None = None) -> DataFrame:
    """One row per task.

    Columns: tube, task, birth, utube, pri, producer, consumer (of the last delivery), put_us,
    first_taken_us, ended_us, waited_us (put to first take), ran_us (all deliveries), attempts,
    retries (given back or out of time), outcome, first_lsn, last_lsn. `gone`: see `cleared`.
    """
    op = F.col("op")
    is_put, is_take = op == PUT, op == TAKE
    facts = happened.groupBy("tube", "task", "birth").agg(
        F.first(F.when(is_put, F.col("utube")), ignorenulls=True).alias("utube"),
        F.first(F.when(is_put, F.col("pri")), ignorenulls=True).alias("pri"),
        F.first(F.when(is_put, F.col("session")), ignorenulls=True).alias("producer"),
        F.max_by("session", F.when(is_take, F.col("lsn"))).alias("consumer"),
        F.min(F.when(is_put, F.col("us"))).alias("put_us"),
        F.min(F.when(is_take, F.col("us"))).alias("first_taken_us"),
        F.max(F.when(F.col("ends"), F.col("us"))).alias("ended_us"),
        F.sum(F.when(is_take, F.col("next_us") - F.col("us"))).alias("ran_us"),
        F.sum(is_take.cast("int")).alias("attempts"),
        F.sum(op.isin(RELEASE, TTR, DEAD).cast("int")).alias("retries"),
        F.max_by("op", "lsn").alias("last_op"),
        F.max(F.col("ends").cast("int")).alias("over"),
        F.min("lsn").alias("first_lsn"),
        F.max("lsn").alias("last_lsn"),
    )
    if gone is not None:
        facts = facts.join(F.broadcast(gone), "tube", "left").withColumn(
            "truncated",
            F.coalesce(F.array_max("cleared") > F.col("last_lsn"), F.lit(False)),
        )
    else:
        facts = facts.withColumn("truncated", F.lit(False))
    waiting = F.when(F.col("last_op") == TAKE, "running").otherwise("waiting")
    outcome = (
        F.when(F.col("truncated") & (F.coalesce("over", F.lit(0)) == 0), F.lit("truncated"))
        .when(F.col("over") == 1, outcome_of(F.col("last_op"), F.lit("other")))
        .when(F.col("last_op") == BURY, F.lit("buried"))
        .otherwise(waiting)
    )
    return (
        facts.withColumn("outcome", outcome)
        .withColumn("waited_us", F.col("first_taken_us") - F.col("put_us"))
        .drop("last_op", "over", "truncated", "cleared")
    )


def run(spark: SparkSession, paths: Sequence[str], out: str) -> dict[str, Any]:
    """Bring `out` up to the log's end; what was written before stays. Counts by name.

    Below `out`: tasks/ and deliveries/ (finished ones, a folder per run, then date and tube),
    open/ (events of the others), history.json (how far). A run that is cut short is repeated
    whole: it replaces its own folders and moves the mark last.
    """
    home = Path(out)
    state = json.loads((home / STATE_FILE).read_text()) if (home / STATE_FILE).exists() else {}
    before = int(state.get("lsn", 0))
    with kept(read_log(spark, paths, NEEDED, fromLsn=before + 1)) as whole:
        log, last = furthest(whole)
        if last is None:
            empty = {"tasks": 0, "deliveries": 0, "open": 0}
            return {"from_lsn": before + 1, "to_lsn": before, **empty}
        happened = events(log)
        if state.get("open"):
            open_before = spark.read.parquet(str(home / state["open"]))
            happened = with_birth(happened.select(*NARROW).unionByName(open_before.select(*NARROW)))
        name = f"run={last:020d}"
        with kept(happened):
            counts = _write(home, name, happened, cleared(log))
    aside = home / (STATE_FILE + ".new")
    aside.write_text(json.dumps({"lsn": last, "open": f"open/{name}"}) + "\n")
    os.replace(aside, home / STATE_FILE)
    for old in (home / "open").iterdir():
        if old.name != name:
            shutil.rmtree(old)
    return {"from_lsn": before + 1, "to_lsn": last, **counts}


def _write(home: Path, name: str, happened: DataFrame, gone: DataFrame) -> dict[str, int]:
    """One run's folders; tasks and deliveries written, and tasks that are not over."""
    rows = tasks(happened, gone).withColumn("date", F.to_date(F.timestamp_micros("put_us")))
    unfinished = F.col("outcome").isin("waiting", "running", "buried")
    key = ["tube", "task", "birth"]
    with kept(rows):
        done = rows.where(~unfinished)
        ended = deliveries(happened).join(done.select(*key, "date"), key)
        still = happened.join(rows.where(unfinished).select(*key), key, "left_semi")
        for table, rows_of, order in (
            ("tasks", done, "first_lsn"),
            ("deliveries", ended, "lsn"),
        ):
            rows_of.repartition("date", "tube").sortWithinPartitions(
                "date", "tube", order
            ).write.mode("overwrite").partitionBy("date", "tube").option(
                "compression", "zstd"
            ).parquet(str(home / table / name))
        still.select(*NARROW).write.mode("overwrite").parquet(str(home / "open" / name))
        over, attempts, waiting = rows.agg(
            F.sum((~unfinished).cast("int")),
            F.sum(F.when(~unfinished, F.col("attempts"))),
            F.sum(unfinished.cast("int")),
        ).collect()[0]
    return {"tasks": over or 0, "deliveries": attempts or 0, "open": waiting or 0}
