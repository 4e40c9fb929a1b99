"""The log as Parquet files for as long as a job runs.

A job reads its log several times, each time other columns. Rows that come out of Python are copied
twice and column by column; Spark's own Parquet reader is ten times as fast and reads only what is
asked for. So archives are read by that one as they are, and live segments are first written to
Parquet by the tasks that decode them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from pipeline.events import kept, read_log
from tandemq.spark.archive import TandemArchive
from tandemq.spark.columns import ddl
from tandemq.spark.logs import ARCHIVE_MARK, Part, Wanted, plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def staged(
    spark: SparkSession,
    paths: Sequence[str],
    columns: Sequence[str],
    from_lsn: int = 0,
    rescue: bool = False,
    permissive: bool = False,
) -> Iterator[DataFrame]:
    """These columns of the log of directories and archives, while the block runs.

    Only where the tasks run on this machine and the files are on it: else the rows are read by
    `tandemq_log` and kept by Spark. Raises what reading the log raises, then or when it is used.
    """
    paths = list(map(str, paths))
    options = {"fromLsn": from_lsn, "rescue": str(rescue).lower()}
    options["mode"] = "PERMISSIVE" if permissive else "FAILFAST"
    if not _all_here(spark, paths):
        with kept(read_log(spark, paths, columns, **options)) as frame:
            yield frame
        return
    scratch = Path(tempfile.mkdtemp(prefix="tandemq-staged-"))
    try:
        archives = [path for path in paths if (Path(path) / ARCHIVE_MARK).exists()]
        archived = plan(archives, Wanted(first_lsn=from_lsn))
        written = []
        if len(archives) < len(paths):
            spark.dataSource.register(TandemArchive)
            reader = spark.read.format(TandemArchive.name()).option("path", ",".join(paths))
            for name, value in {**options, "live": "true", "into": scratch}.items():
                reader = reader.option(name, str(value))
            written = [str(scratch / row["file"]) for row in reader.load().collect()]
        yield _frame(spark, archived, written, columns)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _all_here(spark: SparkSession, paths: Sequence[str]) -> bool:
    if is_remote() or not spark.sparkContext.master.startswith("local"):
        return False
    return all(Path(path).is_dir() for path in paths)


def _frame(
    spark: SparkSession, archived: Sequence[Part], files: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """One DataFrame over all files; of archives the rows within the bounds of their parts."""
    reader = spark.read.schema(ddl(columns))
    frames = [reader.parquet(*files)] if files else []
    bounded: dict[tuple[int, int], list[str]] = {}
    for part in archived:
        place = str(Path(part.path) / part.name)
        bounded.setdefault((part.first_lsn, part.last_lsn), []).append(place)
    for (first, last), places in bounded.items():
        rows = reader.parquet(*places)
        if first > 0 or last < 2**63 - 1:
            rows = rows.where(F.col("lsn").between(first, last))
        frames.append(rows)
    if not frames:
        return spark.createDataFrame([], ddl(columns))
    return reduce(lambda one, other: one.unionByName(other), frames)
