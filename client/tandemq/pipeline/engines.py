"""Which engine a job runs on, one process or Spark: one choice for all jobs that have both."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from tandemq.model.errors import StorageError
from tandemq.model.units import GIB

#: Bytes of logs that `auto` leaves to one process; an audit has those of all nodes in its memory.
LOCAL_BYTES = 6 * GIB
#: A log's bytes for each byte of an archive, about.
ARCHIVED = 3
#: Set for Spark Connect, and in what spark-submit starts.
SPARKS = ("SPARK_REMOTE", "SPARK_ENV_LOADED", "SPARK_SUBMIT_OPTS")


class JobEngine(StrEnum):
    """What does a job: one process, Spark, or whichever fits."""

    auto = "auto"
    local = "local"
    spark = "spark"


EngineOption = Annotated[
    JobEngine, typer.Option("--engine", help="One process, Spark, or what fits.")
]


def choice(
    asked: JobEngine, paths: Sequence[str], master: str | None, alike: bool = True
) -> JobEngine:
    """`auto`: Spark where it is named (a master, its variables) or memory may not hold the logs.

    alike: both engines read the same and do the same. Else Spark is the lesser one, but for
    archives, which one process cannot read.
    """
    if asked is not JobEngine.auto:
        return asked
    if master is not None or (alike and any(name in os.environ for name in SPARKS)):
        return JobEngine.spark
    sizes = [_log_bytes(path, alike) for path in paths]
    if any(size is None for size in sizes) or sum(size or 0 for size in sizes) > LOCAL_BYTES:
        return JobEngine.spark
    return JobEngine.local


def _log_bytes(path: str, archives: bool) -> int | None:
    """Of a data directory's segments; None for an archive, unless those count. What cannot be read
    has none: whoever does the job says why."""
    try:
        from tandemq.spark.disk import ArrowDisk
        from tandemq.spark.logs import ARCHIVE_MARK

        disk = ArrowDisk(path)
        names = disk.list()
        if ARCHIVE_MARK in names:
            held = sum(disk.size(name) for name in names if name.endswith(".parquet"))
            return held * ARCHIVED if archives else None
        return sum(disk.size(name) for name in names if name.endswith(".wal") and "/" not in name)
    except (ModuleNotFoundError, StorageError):
        return 0


class NoPandas:
    """Among the places modules are looked for: says that there is no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def without_pandas() -> None:
    """Have PyArrow load pandas only where it is needed: loading takes it half a second.

    It would do so to see whether the first thing it makes a column of is one of pandas' own.
    """
    if "pandas" not in sys.modules:
        import pyarrow as pa

        sys.meta_path.insert(0, NoPandas)
        try:
            pa.array([0])
        finally:
            sys.meta_path.remove(NoPandas)
