"""The report: what a queue did, hour by hour and tube by tube, as tables and one HTML page.

Here are the jobs that make a history's rows few figures; tables of them are made in
`report_tables.py`, the page of the tables in `page.py`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.pipeline import figures as fig
from tandemq.pipeline import history as histories
from tandemq.pipeline import page, periods, report_tables, spans
from tandemq.pipeline.arrays import Ints
from tandemq.pipeline.events import kept, parts_for, spread
from tandemq.pipeline.exchange import BUCKETS_MIN
from tandemq.pipeline.packing import stretches
from tandemq.pipeline.spans import TimeSpan
from tandemq.spark.groups import json_of
from tandemq.spark.mapped import mapped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOP = 20
#: What is read of the log itself: the payloads of what failed.
PUTS = ("lsn", "node", "tube", "payload", "rescue")
#: Of failed tasks so many are looked at: every worker has the LSNs of their puts.
FAILED_MAX = 4_000_000
FAILING = pa.schema(
    [
        ("tube", pa.string()),
        ("payload", pa.binary()),
        ("failures", pa.int64()),
        ("tasks", pa.int64()),
    ]
)


def figures(spark: SparkSession, history: str, span: TimeSpan) -> pa.Table:
    """Rows of `figures.FIGURE`, of a history's folder; counts by bin are quantiles."""
    schema = from_arrow_schema(fig.FIGURE)
    files = histories.files(history)
    shares = max(1, min(len(files), int(spark.conf.get("spark.sql.shuffle.partitions") or 8)))
    # The largest come first: dealt out in turn, the shares are about as large.
    given = [files[at::shares] for at in range(shares)]
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


def of_file(table: str, file: str, span: TimeSpan) -> Iterator[pa.RecordBatch]:
    """Figures of one of a history's files; table: tasks or deliveries."""
    columns = fig.OF_TASKS if table == "tasks" else fig.OF_DELIVERIES
    for stretch in stretches(histories.rows_of(file, columns)):
        rows = stretch.unify_dictionaries().combine_chunks()
        if table == "tasks":
            yield from fig.of_tasks(rows, span.grain_us)
            yield from periods.of_tasks(rows, span)
        else:
            yield from fig.of_deliveries(rows, BUCKETS_MIN, span.grain_us)
            yield from periods.of_deliveries(rows, span)


def _quantiles(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from fig.quantiles(batch.column(0) for batch in batches)


def failing(
    spark: SparkSession,
    paths: Sequence[str],
    failed: tuple[Ints, Ints],
    node: str | None = None,
    field: str | None = None,
) -> list[dict[str, Any]]:
    """The payloads (or the values of one field of them) whose deliveries failed most often.

    paths: the log with the payloads; node: whose is meant, if not any. failed: see
    `tandemq.pipeline.figures.failed`.
    """
    lsns, failures = failed
    if not len(lsns):
        return []
    bounds = {"operations": "put", "fromLsn": int(lsns[0]), "toLsn": int(lsns[-1])}
    work = partial(_payloads, lsns, failures, node)
    rows = mapped(spark, paths, PUTS, work, from_arrow_schema(FAILING), **bounds)
    grouped = (
        rows.groupBy("tube", "payload")
        .agg(F.sum("failures").alias("failures"), F.sum("tasks").alias("tasks"))
        .orderBy(F.desc("failures"), "tube", "payload")
        .limit(TOP if field is None else 100_000)
    )
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in grouped.collect():
        text = json_of(bytes(row["payload"])) if row["payload"] is not None else None
        key = text or "?"
        if field is not None and text is not None:
            value = json.loads(text)
            key = str(value.get(field)) if isinstance(value, dict) else "?"
        one = found.setdefault(
            (row["tube"], key), {"tube": row["tube"], "key": key, "failures": 0, "tasks": 0}
        )
        one["failures"] += row["failures"]
        one["tasks"] += row["tasks"]
    return sorted(found.values(), key=lambda one: (-one["failures"], one["tube"], one["key"]))[:TOP]


def _payloads(
    lsns: Ints,
    failures: Ints,
    node: str | None,
    batches: Iterable[pa.RecordBatch],
    _parts: int,
) -> Iterator[pa.RecordBatch]:
    """Rows of FAILING, of the puts at these LSNs."""
    for batch in batches:
        if not batch.num_rows or node not in (None, batch["node"][0].as_py()):
            continue
        lsn = batch["lsn"].to_numpy()
        at = np.minimum(np.searchsorted(lsns, lsn), len(lsns) - 1)
        there = lsns[at] == lsn
        if there.any():
            chosen = pa.array(there)
            columns = {
                "tube": batch["tube"].filter(chosen).cast(pa.string()),
                "payload": batch["payload"].filter(chosen),
                "failures": failures[at[there]],
                "tasks": np.ones(np.count_nonzero(there), np.int64),
            }
            sums = pa.table(columns, FAILING).group_by(["tube", "payload"])
            made = sums.aggregate([("failures", "sum"), ("tasks", "sum")])
            yield from made.rename_columns(FAILING.names).cast(FAILING).to_batches()


def run(
    spark: SparkSession,
    paths: Sequence[str],
    out: str,
    field: str | None = None,
    history: str | None = None,
) -> dict[str, Any]:
    """Write report.html and, beside it, every table as Parquet and CSV. Counts by name.

    history: the folder of `history.py`, which is brought up to the log's end and kept; else
    one below `out` that is removed at the end.
    """
    home = Path(out)
    home.mkdir(parents=True, exist_ok=True)
    aside = home / "_history"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder = history or str(aside)
        histories.run(spark, paths, folder)
        span = spans.of_files(file for _, file in histories.files(folder))
        made = figures(spark, folder, span)
        bodies = made.filter(pc.equal(made["what"], "failed"))["body"].chunks
        failed = fig.failed(bodies, FAILED_MAX)
        worst = failing(spark, paths, failed, histories.node_of(folder), field)
        tables = report_tables.tables(made, worst, span)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    for name, table in tables.items():
        # Spark Connect leaves its measurements there, which no format knows how to write.
        table.attrs.clear()
        table.to_parquet(home / f"{name}.parquet", index=False)
        table.to_csv(home / f"{name}.csv", index=False)
    (home / "report.html").write_text(page.page(tables, span), encoding="utf-8")
    return {"page": str(home / "report.html"), **{name: len(t) for name, t in tables.items()}}
