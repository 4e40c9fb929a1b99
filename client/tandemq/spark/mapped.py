"""Running a function over a log where it is decoded: only what it makes of the rows meets the JVM.

As `DataFrame.mapInArrow` over `tandemq_log`, without the way of every row into Spark and out again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from tandemq.spark import options as opt
from tandemq.spark.columns import check_columns
from tandemq.spark.logs import Part
from tandemq.spark.source import LogReader, settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Called with the batches of one part and the number of parts there are. Texts may come encoded
#: as dictionaries.
Work = Callable[[Iterator[pa.RecordBatch], int], Iterable[pa.RecordBatch]]


def mapped(
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[str],
    work: Work,
    schema: StructType,
    **options: object,
) -> DataFrame:
    """What `work` makes of these columns of a log, part by part; rows of `schema`.

    options: those of `tandemq_log`. The log is planned here, or on the server of Spark Connect.
    Raises `ValueError` for what is no option or column, `StorageError` for what cannot be planned.
    """
    given = {"path": ",".join(map(str, paths)), **options}
    values = opt.parse("tandemq_log", opt.LOG_OPTIONS, {k: str(v) for k, v in given.items()})
    reader = LogReader(values, check_columns(columns))
    reader.dictionaries = True
    groups = _planned_there(spark, reader) if is_remote() else _planned(reader)
    count = max(len(groups), 1)
    tasks = spark.range(0, len(groups), 1, count)
    return tasks.mapInArrow(partial(_read, reader, groups, work), schema)


def _planned(reader: LogReader) -> list[list[Part]]:
    """Parts by task: small ones that follow each other make one."""
    groups: list[list[Part]] = []
    room = 0
    for part in (found.part for found in reader.partitions()):
        # What a file of an archive holds is as much as a part of a log.
        size = part.end - part.start[1] if part.start is not None else reader.wanted.split_bytes
        if size > room:
            groups.append([])
            room = reader.wanted.split_bytes
        groups[-1].append(part)
        room -= size
    return groups


def _planned_there(spark: SparkSession, reader: LogReader) -> list[list[Part]]:
    def plan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"groups": [pickle.dumps(_planned(reader))]})

    row = spark.range(0, 1, 1, 1).mapInArrow(plan, "groups binary").collect()[0]
    groups: list[list[Part]] = pickle.loads(bytes(row["groups"]))
    return groups


def _read(
    reader: LogReader,
    groups: list[list[Part]],
    work: Work,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The row that comes is the number of a group."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        for part in groups[number]:
            yield from work(reader.rows(part), len(groups))
    settle()
