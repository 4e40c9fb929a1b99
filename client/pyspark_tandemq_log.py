"""What Spark finds by this name: `format("tandemq_log")`; see `pyspark_tandemq.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for `tandemq.spark.source.TandemLog`; the name is Spark's."""

    def __new__(cls, options: Mapping[str, str]) -> Any:
        from tandemq.spark.source import TandemLog

        return TandemLog(options)

    @classmethod
    def name(cls) -> str:
        return "tandemq_log"
