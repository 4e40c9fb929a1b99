"""Writing a log to Parquet in the tasks that decode it: no row goes through the JVM.

A source: what Spark reads from it is one row per file written. `pipeline/compact.py` publishes the
files; for streams it is a sink as well, which does that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from tandemq.spark import options as opt
from tandemq.spark.columns import ALL, COLUMNS, arrow_schema
from tandemq.spark.logs import Part, plan
from tandemq.spark.source import LogReader, LogReading, TandemLog, settle

#: Larger batches decode and encode faster; no row of them is shipped.
BATCH_ROWS = 1 << 15
GROUP_ROWS = 1 << 17
OPTIONS = (
    *opt.LOG_OPTIONS,
    opt.Option("into", None, "folder that gets the files"),
    opt.Option("feed", None, "streams: `into` is a Delta table, and this names the checkpoint"),
)
WRITTEN = pa.schema([("file", pa.string()), ("rows", pa.int64())])

_TEXTS = [column.name for column in COLUMNS if column.kind == pa.string()]
#: Numbers that mostly grow or stay: differences are small and quicker than a dictionary.
_DELTAS = {
    column.name: "DELTA_BINARY_PACKED"
    for column in COLUMNS
    if pa.types.is_integer(column.kind) or pa.types.is_timestamp(column.kind)
}
#: Columns that queries narrow by. Bounds of the others cost time and help nobody.
_BOUNDED = ["lsn", "time", "tube", "operation", "task_id"]


@dataclass
class ArchivePartition(InputPartition):
    """What one Spark task reads, and the number of the file it writes."""

    part: Part
    number: int


class TandemArchive(TandemLog):
    """Copies what `tandemq_log` would read into `into`; a row (file, rows) for each file.

    Batch: a task tried again replaces the file of its first try, so the folder is whole once all
    rows were collected. Streams: changes.py.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super(TandemLog, self).__init__(dict(options))
        self.values = opt.parse(self.name(), OPTIONS, options)
        self.values["batchRows"] = str(BATCH_ROWS)

    @classmethod
    def name(cls) -> str:
        return "tandemq_archive"

    def schema(self) -> str:
        return "file STRING, rows BIGINT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ArchiveReader(self.values, ALL)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self.values["feed"] is not None:
            from tandemq.spark.delta import DeltaReader

            return DeltaReader(self.values, ALL)
        from tandemq.spark.changes import ChangesReader

        return ChangesReader(self.values, ALL)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if self.values["feed"] is not None:
            from tandemq.spark.delta import DeltaWriter

            return DeltaWriter(self.values["into"], self.values["feed"])
        from tandemq.spark.changes import ChangesWriter

        return ChangesWriter(Path(self.values["into"]))


class ArchiveWriting(LogReading):
    """Reads by writing; the files' names are in the order of their parts."""

    @property
    def into(self) -> Path:
        return Path(self.values["into"])

    @property
    def folder(self) -> Any:
        return Folder(self.into)

    def name(self, number: int) -> str:
        return f"part-{number:05d}.zstd.parquet"

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that is None.
        if isinstance(partition, ArchivePartition):
            name = self.name(partition.number)
            rows = write(self.rows(partition.part), self.folder, name)
            if rows:
                yield pa.RecordBatch.from_pylist([{"file": name, "rows": rows}], WRITTEN)
        settle()


class ArchiveReader(ArchiveWriting, LogReader):
    """Batch: all of a log that was asked for."""

    def partitions(self) -> list[Any]:
        parts = plan(self.paths, self.wanted)
        return [ArchivePartition(part, number) for number, part in enumerate(parts)]


class Folder:
    """A local folder that gets files; each has its name once it is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def file(self, name: str) -> Iterator[Any]:
        """What to write a file into. It is on the disk when this ends, or not there at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        aside = self.path / f"_{name}.{uuid4().hex}"
        try:
            yield aside
            durable(aside)
            os.replace(aside, self.path / name)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def write(batches: Iterator[pa.RecordBatch], folder: Any, name: str) -> int:
    """Batches of all columns into a Parquet file of a `Folder`, or of what is like one.

    Rows written; no file where there are none.
    """
    first = next(batches, None)
    if first is None:
        return 0
    waiting: list[pa.RecordBatch] = []
    rows = 0
    with folder.file(name) as sink, _writer(sink) as writer:
        for batch in chain([first], batches):
            waiting.append(batch)
            rows += batch.num_rows
            if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting), GROUP_ROWS * 2)
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting), GROUP_ROWS * 2)
    return rows


def durable(path: Path) -> None:
    """A file as it is now, or the names in a folder, are on the disk when this returns."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _writer(sink: Any) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        arrow_schema(ALL),
        compression="zstd",
        use_dictionary=_TEXTS,
        column_encoding=_DELTAS,
        write_statistics=_BOUNDED,
        store_schema=False,
    )
