"""Following a log into Parquet or Delta: what happens, as it happens, for any tool to read.

Parquet: a folder with a mark, and in it batch=<number>/*.parquet with all columns of `tandemq_log`
and the query's checkpoint. Delta: a table, on any file system, and a checkpoint on this machine.
Each record is there once: see `client/tandemq/spark/changes.py` and `delta.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import pyarrow.parquet as pq

from tandemq.spark.archive import TandemArchive
from tandemq.spark.changes import ASIDE
from tandemq.spark.disk import ArrowDisk
from tandemq.spark.logs import meta_of
from tandemq.spark.parts import put_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MARK = "tandemq-changes.json"
#: A name that Parquet readers pass over.
CHECKPOINT = "_checkpoint"
#: In a checkpoint's folder: what a Delta table knows it by, and Spark's own files.
FEED, QUERY = "tandemq-feed.json", "query"
POLL_SECONDS = 0.5
BATCHES = "batch=*"


class Output(Protocol):
    """Where changes go. checkpoint: Spark's folder; options: of the source and the sink."""

    checkpoint: Path
    options: dict[str, str]

    def news(self) -> Iterator[tuple[int, int, int]]:
        """(batch, rows, last LSN) of what was added since this was asked last."""
        ...


class ParquetOutput:
    def __init__(self, path: str, out: str) -> None:
        """Make the folder, or see that it is one of this cluster's. Raises `ValueError`."""
        self.home = Path(out).resolve()
        cluster = _cluster(path)
        self.home.mkdir(parents=True, exist_ok=True)
        mark = self.home / MARK
        if not mark.exists():
            if any(not one.name.startswith(".") for one in self.home.iterdir()):
                raise ValueError(f"{self.home} is not empty, and no folder of changes")
            put_text(mark, json.dumps({"version": 1, "cluster": cluster}) + "\n")
        known = json.loads(mark.read_text())
        if known.get("version") != 1:
            raise ValueError(f"{mark}: version {known.get('version')} is unknown")
        if known["cluster"] != cluster:
            raise ValueError(
                f"{self.home} has changes of cluster {known['cluster']}, {path} is of {cluster}"
            )
        (self.home / ASIDE).mkdir(exist_ok=True)
        self.checkpoint = self.home / CHECKPOINT
        self.options = {"into": str(self.home)}
        self._known = {found.name for found in self.home.glob(BATCHES)}

    def news(self) -> Iterator[tuple[int, int, int]]:
        """Whoever's driver wrote it."""
        for name in sorted({found.name for found in self.home.glob(BATCHES)} - self._known):
            self._known.add(name)
            files = [
                pq.read_metadata(file) for file in sorted((self.home / name).glob("*.parquet"))
            ]
            rows = sum(file.num_rows for file in files)
            yield int(name.partition("=")[2]), rows, _last_lsn(files[-1])


class DeltaOutput:
    def __init__(self, path: str, out: str, checkpoint: str | None) -> None:
        """Make the table, or see that it is this checkpoint's. Raises `ValueError`."""
        try:
            from tandemq.spark.delta import DeltaChanges

            self.table = DeltaChanges(out)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"{error.name} is not installed: pip install 'tandemq[delta]'"
            ) from None
        if checkpoint is None and not self.table.folder.is_local:
            raise ValueError(f"{out} is not on this machine: name a folder for --checkpoint")
        home = Path(checkpoint or Path(out) / CHECKPOINT).resolve()
        cluster = _cluster(path)
        self.feed = _feed(home, cluster)
        self.table.prepare(cluster, self.feed)
        self.checkpoint = home / QUERY
        self.options = {"into": out if "://" in out else str(Path(out).resolve())}
        self.options["feed"] = self.feed
        self._known = self.table.batch(self.feed)

    def news(self) -> Iterator[tuple[int, int, int]]:
        for batch, rows, lsn in self.table.batches(self._known):
            self._known = batch
            yield batch, rows, lsn


def _cluster(path: str) -> str:
    disk = ArrowDisk(path)
    return meta_of(disk, disk.list()).cluster.hex()


def _feed(home: Path, cluster: str) -> str:
    """The name of a checkpoint, given to it once."""
    home.mkdir(parents=True, exist_ok=True)
    mark = home / FEED
    if not mark.exists():
        told = {"version": 1, "cluster": cluster, "feed": uuid4().hex}
        put_text(mark, json.dumps(told) + "\n")
    known = json.loads(mark.read_text())
    if known.get("version") != 1:
        raise ValueError(f"{mark}: version {known.get('version')} is unknown")
    if known["cluster"] != cluster:
        raise ValueError(f"{home} is a checkpoint of cluster {known['cluster']}, not {cluster}")
    return str(known["feed"])


def output(path: str, out: str, table: str = "parquet", checkpoint: str | None = None) -> Output:
    """table: parquet or delta. checkpoint: for delta, its folder on this machine.

    Raises `ValueError` for what is none or where `out` is something else, `StorageError` where no
    log is.
    """
    if table == "delta":
        return DeltaOutput(path, out, checkpoint)
    if table != "parquet":
        raise ValueError(f"table is parquet or delta, not {table!r}")
    if checkpoint is not None:
        raise ValueError("a folder of Parquet has its checkpoint inside")
    return ParquetOutput(path, out)


def start(
    spark: SparkSession,
    path: str,
    out: str | Output,
    every: float | None = None,
    options: dict[str, Any] | None = None,
) -> StreamingQuery:
    """The running query. out: a folder of Parquet, or what `output` gives.

    every: seconds between batches; None: all there is, and end. options: those of `tandemq_log` for
    streams. Raises as `output` does.
    """
    into = output(path, out) if isinstance(out, str) else out
    spark.dataSource.register(TandemArchive)
    reader = spark.readStream.format(TandemArchive.name()).options(**into.options)
    for name, value in (options or {}).items():
        reader = reader.option(name, str(value))
    stream = reader.load(path).writeStream.format(TandemArchive.name())
    writer = stream.options(**into.options)
    if every is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every} seconds")
    return writer.option("checkpointLocation", str(into.checkpoint)).start()


def run(
    spark: SparkSession,
    path: str,
    out: str | Output,
    every: float | None = None,
    options: dict[str, Any] | None = None,
    told: Callable[[int, int, int], None] | None = None,
) -> dict[str, int]:
    """Follow until all is there, or until interrupted. Batches and rows written, and up to where.

    told: called with each batch, its rows and the LSN it goes up to.
    """
    into = output(path, out) if isinstance(out, str) else out
    query = start(spark, path, into, every, options)
    seen = {"batches": 0, "rows": 0, "to_lsn": 0}
    over = False
    try:
        while not over:
            over = bool(query.awaitTermination(POLL_SECONDS))  # type: ignore[arg-type]
            _count(into, seen, told)
    except KeyboardInterrupt:
        query.stop()
        _count(into, seen, told)
    return seen


def _count(
    into: Output, seen: dict[str, int], told: Callable[[int, int, int], None] | None
) -> None:
    """What there is more than was counted."""
    for batch, rows, lsn in into.news():
        seen |= {"batches": seen["batches"] + 1, "rows": seen["rows"] + rows, "to_lsn": lsn}
        if told is not None:
            told(batch, rows, lsn)


def _last_lsn(file: pq.FileMetaData) -> int:
    """By what the writer noted of the column's bounds."""
    column = file.schema.names.index("lsn")
    groups = range(file.num_row_groups)
    return int(max(file.row_group(group).column(column).statistics.max for group in groups))
