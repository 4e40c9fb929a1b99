"""Compaction: sealed segments to a Parquet archive that `tandemq_log` reads like the log itself.

The tasks of Spark that decode a segment write its file. What an archive is: `compact_files.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandemq.pipeline.compact_files import advance
from tandemq.spark.archive import TandemArchive
from tandemq.spark.logs import LogQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    spark: SparkSession, paths: Sequence[str], archive: str, include_open: bool = False
) -> dict[str, Any]:
    """Archive what is sealed and not yet archived, node by node. Counts and LSNs by directory.

    The newest segment may still be cut by a rewind: it is left out, or with `include_open` taken up
    to the commit LSN the node published. What a later run finds archived it does not take again.
    """
    spark.dataSource.register(TandemArchive)

    def copied(sources: Sequence[str], wanted: LogQuery, into: Path) -> int:
        reader = spark.read.format(TandemArchive.name()).option("into", str(into))
        bounds = {"fromLsn": str(wanted.first_lsn), "toLsn": str(wanted.last_lsn)}
        files = reader.options(path=",".join(sources), **bounds).load()
        return sum(row["rows"] for row in files.collect())

    return advance(paths, archive, copied, include_open)
