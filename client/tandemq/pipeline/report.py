"""The report over Spark: what a queue did, slot by slot and tube by tube, as tables and one page.

Here are the jobs that make a history's rows few figures; what of a report is the same with either
engine is in `report_files.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.pipeline import figures as fig
from tandemq.pipeline import history as histories
from tandemq.pipeline import periods
from tandemq.pipeline.events import kept, parts_for, spread
from tandemq.pipeline.exchange import BUCKETS_MIN
from tandemq.pipeline.report_files import FAILING, PUTS, FailingWork, of_file, write
from tandemq.pipeline.spans import TimeSpan
from tandemq.spark.mapped import mapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def figures(spark: SparkSession, files: Sequence[tuple[str, str]], span: TimeSpan) -> pa.Table:
    """Rows of `figures.FIGURE`, of a history's files; counts by bin are quantiles."""
    schema = from_arrow_schema(fig.FIGURE)
    shares = max(1, min(len(files), int(spark.conf.get("spark.sql.shuffle.partitions") or 8)))
    # The largest come first: dealt out in turn, the shares are about as large.
    given = [list(files[at::shares]) for at in range(shares)]
    each = spark.range(0, shares, 1, shares).mapInArrow(partial(_figures, given, span), schema)
    with kept(each) as found:
        parts = parts_for(spark, BUCKETS_MIN, 0)
        met = spread(found.where("what = 'bins'"), parts).mapInArrow(_quantiles, schema)
        return found.where("what != 'bins'").unionByName(met).toArrow()


def _figures(
    shares: list[list[tuple[str, str]]], span: TimeSpan, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Figures of the files of a share; the row that comes is its number."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        yield from periods.merged(
            found for table, file in shares[number] for found in of_file(table, file, span)
        )


def _quantiles(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from fig.quantiles(batch.column(0) for batch in batches)


def run(
    spark: SparkSession,
    paths: Sequence[str],
    out: str,
    field: str | None = None,
    history: str | None = None,
) -> dict[str, Any]:
    """Write page and tables into `out`; see `tandemq.pipeline.report_files.write`."""

    def worst(work: FailingWork, first: int, last: int, most: int) -> list[dict[str, Any]]:
        bounds = {"operations": "put", "fromLsn": first, "toLsn": last}
        rows = mapped(spark, paths, PUTS, work, from_arrow_schema(FAILING), **bounds)
        grouped = (
            rows.groupBy("tube", "payload")
            .agg(F.sum("failures").alias("failures"), F.sum("tasks").alias("tasks"))
            .orderBy(F.desc("failures"), "tube", "payload")
            .limit(most)
        )
        return [row.asDict() for row in grouped.collect()]

    return write(
        out,
        history,
        field,
        lambda folder: histories.run(spark, paths, folder),
        lambda files, span: figures(spark, files, span),
        worst,
    )
