"""Following a log into Parquet: what happens, as it happens, in files any tool can read.

A folder with a mark, and in it batch=<number>/*.parquet with all columns of `tandemq_log` and the
query's checkpoint. Each record is there once: see `client/tandemq/spark/changes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tandemq.spark.archive import TandemArchive
from tandemq.spark.changes import ASIDE
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.logs import meta_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MARK = "tandemq-changes.json"
#: A name that Parquet readers pass over.
CHECKPOINT = "_checkpoint"
POLL_SECONDS = 0.5
BATCHES = "batch=*"


def prepare(home: Path, path: str) -> None:
    """Make the folder, or see that it is one of this cluster's. Raises `ValueError`."""
    disk = ArrowDisk(path)
    cluster = meta_of(disk, disk.list()).cluster.hex()
    home.mkdir(parents=True, exist_ok=True)
    mark = home / MARK
    if not mark.exists():
        if any(home.iterdir()):
            raise ValueError(f"{home} is not empty, and no folder of changes")
        mark.write_text(json.dumps({"version": 1, "cluster": cluster}) + "\n")
    known = json.loads(mark.read_text())
    if known.get("version") != 1:
        raise ValueError(f"{mark}: version {known.get('version')} is unknown")
    if known["cluster"] != cluster:
        raise ValueError(
            f"{home} has changes of cluster {known['cluster']}, {path} is of {cluster}"
        )
    (home / ASIDE).mkdir(exist_ok=True)


def start(
    spark: SparkSession,
    path: str,
    out: str,
    every: float | None = None,
    options: dict[str, Any] | None = None,
) -> StreamingQuery:
    """The running query. every: seconds between batches; None: all there is, and end.

    options: those of `tandemq_log` for streams. Raises `ValueError` for what is none or where `out`
    is something else, `StorageError` where no log is.
    """
    home = Path(out).resolve()
    prepare(home, path)
    spark.dataSource.register(TandemArchive)
    reader = spark.readStream.format(TandemArchive.name()).option("into", str(home))
    for name, value in (options or {}).items():
        reader = reader.option(name, str(value))
    writer = reader.load(path).writeStream.format(TandemArchive.name()).option("into", str(home))
    if every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every} seconds")
    return writer.option("checkpointLocation", str(home / CHECKPOINT)).start()


def run(
    spark: SparkSession,
    path: str,
    out: str,
    every: float | None = None,
    options: dict[str, Any] | None = None,
    told: Callable[[int, int, int], None] | None = None,
) -> dict[str, int]:
    """Follow until all is there, or until interrupted. Batches and rows written, and up to where.

    told: called with each batch, its rows and the LSN it goes up to.
    """
    home = Path(out)
    before = {found.name for found in home.glob(BATCHES)}
    query = start(spark, path, out, every, options)
    seen = {"batches": 0, "rows": 0, "to_lsn": 0}
    over = False
    try:
        while not over:
            over = bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
            _count(home, before, seen, told)
    except KeyboardInterrupt:
        query.stop()
        _count(home, before, seen, told)
    return seen


def _count(
    home: Path,
    known: set[str],
    seen: dict[str, int],
    told: Callable[[int, int, int], None] | None,
) -> None:
    """What the folder has more than is known, whoever's driver wrote it."""
    for name in sorted({found.name for found in home.glob(BATCHES)} - known):
        known.add(name)
        files = [pq.read_metadata(file) for file in sorted((home / name).glob("*.parquet"))]
        rows, lsn = sum(file.num_rows for file in files), _last_lsn(files[-1])
        seen |= {"batches": seen["batches"] + 1, "rows": seen["rows"] + rows, "to_lsn": lsn}
        if told is not None:
            told(int(name.partition("=")[2]), rows, lsn)


def _last_lsn(file: pq.FileMetaData) -> int:
    """By what the writer noted of the column's bounds."""
    column = file.schema.names.index("lsn")
    groups = range(file.num_row_groups)
    return int(max(file.row_group(group).column(column).statistics.max for group in groups))
