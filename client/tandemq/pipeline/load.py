"""Bulk load: a file of rows becomes tasks of a tube, once per row, however often it is tried."""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tandemq.spark.sink import PUT_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
TYPES = {"key": "string", "utube": "string", "pri": "bigint"}


class LoadError(Exception):
    """A load that ended before its end: why, and how many of its rows are stored at least."""


def read(spark: SparkSession, source: str, kind: str | None = None) -> DataFrame:
    """The rows of a file or folder; the format by its suffix unless given."""
    kind = kind or FORMATS.get(Path(source).suffix, "parquet")
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
    return reader.load(source)


def mapped(
    rows: DataFrame, options: dict[str, str], payload: Sequence[str] | None = None
) -> DataFrame:
    """Columns for the sink: put options by name from the columns given, the rest as payload.

    options: put option to column. payload: columns of the payload; default all that are no option.
    Raises `ValueError` for a column that is not there.
    """
    for column in (*options.values(), *(payload or ())):
        if column not in rows.columns:
            raise ValueError(f"no column {column!r}; there are {', '.join(rows.columns)}")
    for name in options:
        if name not in PUT_COLUMNS:
            raise ValueError(f"no put option {name!r}; there are {', '.join(PUT_COLUMNS)}")
    taken = set(options.values())
    names = list(payload) if payload else [name for name in rows.columns if name not in taken]
    body = F.struct(*names).alias("payload")
    made = [
        F.col(column).cast(TYPES.get(name, "double")).alias(name)
        for name, column in options.items()
    ]
    return rows.select(body, *made)


def job_of(source: str, tube: str) -> str:
    """The same for the same source and tube, so that a load begun anew goes on."""
    return hashlib.sha256(f"{source}\0{tube}".encode()).hexdigest()[:16]


def run(
    spark: SparkSession,
    rows: DataFrame,
    servers: str,
    tube: str,
    job: str,
    sink: dict[str, str] | None = None,
    dry: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Put the rows of `mapped`. Counts: rows, stored, refused, resent; `dry` puts nothing.

    Raises `LoadError`.
    """
    count = rows.count()
    if dry:
        sample = [row.asDict(recursive=True) for row in rows.limit(3).collect()]
        return {"rows": count, "stored": 0, "job": job, "sample": sample}
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        writer = rows.write.format("tandemq").mode("append")
        options = {"servers": servers, "tube": tube, "jobId": job, "summary": str(summary)}
        for name, value in {**options, **(sink or {})}.items():
            writer = writer.option(name, value)
        over = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, over, progress), daemon=True)
        watcher.start()
        try:
            writer.save()
        except Exception as error:
            raise LoadError(_ended_early(error, summary, count)) from error
        finally:
            over.set()
            watcher.join()
        counts: dict[str, Any] = json.loads(summary.read_text())
    return {"rows": count, **counts}


def _ended_early(error: Exception, summary: Path, count: int) -> str:
    """Why, in a line, and what the partitions that were done have stored."""
    from tandemq.pipeline.cli import plain

    # Not there: Spark failed before any row was on its way.
    stored = json.loads(summary.read_text())["stored"] if summary.exists() else 0
    return f"{plain(error)}; of {count} rows at least {stored} are stored"


def _watch(
    spark: SparkSession, over: threading.Event, progress: Callable[[int, int], None] | None
) -> None:
    """Tell how many partitions are done, now and then; not over Connect, which cannot tell."""
    if progress is None or not hasattr(spark, "_jsc"):
        return
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(0.5):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                progress(info.numCompletedTasks, info.numTasks)
