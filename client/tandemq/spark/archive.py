"""Writing a log to Parquet in the tasks that decode it: no row goes through the JVM.

A source: what Spark reads from it is one row per file written. `pipeline/compact.py` publishes the
files; for streams it is a sink as well, which does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from tandemq.spark import options as opt
from tandemq.spark.columns import ALL
from tandemq.spark.logs import Part
from tandemq.spark.parts import BATCH_ROWS, Folder, part_name, unarchived, write
from tandemq.spark.source import LogReader, LogReading, TandemLog, settle

OPTIONS = (
    *opt.LOG_OPTIONS,
    opt.Option("into", None, "folder that gets the files"),
    opt.Option("feed", None, "streams: `into` is a Delta table, and this names the checkpoint"),
)
WRITTEN = pa.schema([("file", pa.string()), ("rows", pa.int64())])


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
        return part_name(number)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one that is None.
        if isinstance(partition, ArchivePartition):
            name = self.name(partition.number)
            rows = write(self.rows(partition.part), self.folder, name)
            if rows:
                yield pa.RecordBatch.from_pylist([{"file": name, "rows": rows}], WRITTEN)
        settle()


class ArchiveReader(ArchiveWriting, LogReader):
    """Batch: all of a log that was asked for, but what an archive named beside it holds."""

    def partitions(self) -> list[Any]:
        parts = unarchived(self.paths, self.wanted)
        return [ArchivePartition(part, number) for number, part in enumerate(parts)]
