"""A stream of `tandemq_archive` into itself: tasks write a batch's files aside, its end names them.

Below a folder: batch=<number>/*.parquet. A batch gets its name when all of it is on the disk, so a
reader sees all of it or nothing; one that Spark asks for again has its name already.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tandemq.spark.archive import ArchivePartition, ArchiveWriting
from tandemq.spark.parts import durable
from tandemq.spark.stream import LogStreamReader, Offset

#: Where tasks write, below the folder; Parquet readers pass over such names.
ASIDE = "_aside"


class ChangesReader(ArchiveWriting, LogStreamReader):
    """What is new, retractions first. All batches are written into one folder."""

    @property
    def into(self) -> Path:
        return super().into / ASIDE

    def name(self, number: int) -> str:
        return f"part-{number:05d}-{uuid4().hex}.zstd.parquet"

    def partitions(self, start: Offset, end: Offset) -> list[Any]:
        parts = [found.part for found in super().partitions(start, end)]
        return [ArchivePartition(part, number) for number, part in enumerate(parts)]


@dataclass
class Written(WriterCommitMessage):
    """The files a task was told of."""

    files: list[str]


class ChangesWriter(DataSourceStreamArrowWriter):
    def __init__(self, home: Path) -> None:
        self.home = home

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written([name for batch in iterator for name in batch.column(0).to_pylist()])

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        publish(self.home, [name for one in messages for name in one.files], batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """What was written stays aside until the next batch is whole."""


def folder_of(home: Path, batch: int) -> Path:
    return home / f"batch={batch:010d}"


def publish(home: Path, files: Sequence[str], batch: int) -> None:
    """Give a batch its name, unless it has it already; nothing is left aside."""
    target, aside = folder_of(home, batch), home / ASIDE
    if files and not target.exists():
        whole = aside / target.name
        shutil.rmtree(whole, ignore_errors=True)
        whole.mkdir()
        for number, name in enumerate(sorted(files)):
            os.replace(aside / name, whole / f"part-{number:05d}.zstd.parquet")
        durable(whole)
        os.replace(whole, target)
        durable(home)
    for left in aside.iterdir():
        # Of tasks that failed, or of a query that ended in the middle of a batch.
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
