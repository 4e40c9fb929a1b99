"""History: one row per delivery and one per task, incremental, as Parquet by date and tube.

`tasks` and `deliveries` are functions of a survey. `run` has them written where they are computed,
and keeps the events of unfinished tasks beside its output, so that the next run reads only what the
log has gained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.pipeline import lives as lv
from tandemq.pipeline.arrays import plain
from tandemq.pipeline.events import Survey, survey
from tandemq.pipeline.history_files import (
    COUNTS,
    HistoryWriter,
    advance,
    files,
    node_of,
    rows_of,
    runs,
    state_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["deliveries", "files", "node_of", "read", "rows_of", "run", "tasks"]


def tasks(seen: Survey) -> DataFrame:
    """One row per task of the log that goes furthest.

    Columns: tube, task, birth, utube, pri, producer, consumer (of the last delivery), put_us,
    first_taken_us, ended_us, ran_us (all deliveries), attempts, retries (given back or out of
    time), first_lsn, last_lsn, outcome, waited_us (put to first take).
    """
    work = partial(_tasks, seen.cleared)
    return seen.by_task(work, plain(lv.TASK))


def _tasks(gone: Mapping[str, int], part: lv.Lives) -> Iterable[pa.RecordBatch]:
    yield from lv.tasks(part, gone).cast(plain(lv.TASK)).to_batches()


def deliveries(seen: Survey) -> DataFrame:
    """One row per take of the log that goes furthest.

    Columns: tube, task, birth, attempt, consumer, taken_us, waited_us (since it became ready),
    ran_us and outcome (NULL and `running` while it is held), lsn, put_lsn, put_us.
    """
    return seen.by_task(_deliveries, plain(lv.DELIVERY))


def _deliveries(part: lv.Lives) -> Iterable[pa.RecordBatch]:
    yield from lv.deliveries(part).cast(plain(lv.DELIVERY)).to_batches()


def run(spark: SparkSession, paths: Sequence[str], out: str) -> dict[str, Any]:
    """Bring `out` up to the log's end; what was written before stays. Counts by name."""

    def gone_through(first_lsn: int) -> AbstractContextManager[Survey]:
        return survey(spark, paths, fromLsn=first_lsn)

    return advance(paths, out, gone_through, _written, _place)


def _written(seen: Survey, writer: HistoryWriter, opened: str | None) -> list[dict[str, int]]:
    before = None if opened is None else _events(seen.frame.sparkSession, opened)
    return [row.asDict() for row in seen.by_task(writer, COUNTS, before=before).collect()]


def _place() -> tuple[int, int]:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.taskAttemptId()


def _events(spark: SparkSession, folder: str) -> DataFrame:
    """Events of the tasks that were not over at the end of the last run."""
    schema = from_arrow_schema(plain(lv.EVENT))
    return spark.read.schema(schema).parquet(folder).select(*lv.EVENT.names)


def read(spark: SparkSession, out: str) -> tuple[DataFrame, DataFrame]:
    """(tasks, deliveries) of all runs, and of what was not over at the end of the last one."""
    home, state = Path(out), state_of(Path(out))
    found = []
    for table, schema in (("tasks", lv.TASK), ("deliveries", lv.DELIVERY)):
        columns = from_arrow_schema(plain(schema))
        if not state:
            found.append(spark.createDataFrame([], columns))
            continue
        folders = [str(folder) for folder in runs(home, table, state)]
        reader = spark.read.schema(columns).option("basePath", str(home / table))
        finished = reader.parquet(*folders) if folders else spark.createDataFrame([], columns)
        unfinished = spark.read.schema(columns).parquet(str(home / f"open-{table}" / state["name"]))
        found.append(finished.select(*schema.names).unionByName(unfinished))
    return found[0], found[1]
