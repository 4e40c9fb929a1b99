"""Spark data sources of Tandem: the log as a table and as a stream, tubes as sink and source.

`register(spark)` makes `format("tandemq_log")` and `format("tandemq")` known to a session, classic
or Connect. Columns and options: docs/spark.md. Decoding (`decode`, `logs`) needs PyArrow only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the formats known to `spark` and let filters reach them. Again does no harm.

    Spark knows them already where it found `pyspark_tandemq` installed.
    """
    from pyspark.errors import AnalysisException

    from tandemq.spark.sink import TandemTube
    from tandemq.spark.source import TandemLog

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (TandemLog, TandemTube):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
