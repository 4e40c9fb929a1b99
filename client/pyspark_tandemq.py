"""What Spark finds by this name: `format("tandemq")`, in every session, without a call to register.

Spark looks through all modules whose names begin with `pyspark_`, and takes one format from each.
Small, since it is imported wherever Spark is: the source itself is loaded when somebody uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for `tandemq.spark.sink.TandemTube`; the name is Spark's."""

    def __new__(cls, options: Mapping[str, str]) -> Any:
        from tandemq.spark.sink import TandemTube

        return TandemTube(options)

    @classmethod
    def name(cls) -> str:
        return "tandemq"
