"""The report: what a queue did, hour by hour and tube by tube, as tables and one HTML page.

Every table is a function of history's rows, so it can be tested and used alone. The page holds its
charts as inline SVG and loads nothing.
"""

from __future__ import annotations

import html
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pipeline import history as histories
from pipeline.events import one_lineage
from pipeline.staged import staged
from tandemq.spark.groups import json_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame, SparkSession

HOUR_US = 3_600_000_000
QUANTILES = (0.5, 0.95, 0.99)
#: Outcomes of a delivery that make another one necessary.
FAILED = ("released", "ttr", "buried", "dead")
TOP = 20
#: What is read of the log itself: the payloads of what failed.
PUTS = ("lsn", "node", "tube", "task_id", "operation", "payload", "rescue")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left } svg { max-width: 100%; height: auto }
"""


def hour_of(us: Column) -> Column:
    return F.floor(us / HOUR_US).cast("bigint")


def throughput(rows: DataFrame, given: DataFrame) -> DataFrame:
    """tube, hour: puts, takes, ended, retries, wait and run quantiles in ms."""
    puts = rows.where("put_us is not null").groupBy("tube", hour_of(F.col("put_us")).alias("hour"))
    ends = rows.where("ended_us is not null").groupBy(
        "tube", hour_of(F.col("ended_us")).alias("hour")
    )
    waits = F.percentile_approx("waited_us", list(QUANTILES), 1000)
    runs = F.percentile_approx("ran_us", list(QUANTILES), 1000)
    taken = given.groupBy("tube", hour_of(F.col("taken_us")).alias("hour")).agg(
        F.count("*").alias("takes"),
        F.sum(F.col("outcome").isin(*FAILED).cast("int")).alias("failed"),
        waits.alias("wait"),
        runs.alias("run"),
    )
    key = ["tube", "hour"]
    joined = (
        puts.agg(F.count("*").alias("puts"))
        .join(taken, key, "full")
        .join(ends.agg(F.count("*").alias("ended")), key, "full")
    )
    quantiles = [
        F.round(F.col(what)[at] / 1000, 3).alias(f"{what}_p{int(q * 100)}_ms")
        for what in ("wait", "run")
        for at, q in enumerate(QUANTILES)
    ]
    counts = [F.coalesce(name, F.lit(0)).alias(name) for name in ("puts", "takes", "ended")]
    failed = F.coalesce("failed", F.lit(0)).alias("retries")
    return joined.select(*key, *counts, failed, *quantiles).orderBy(*key)


def backlog(rows: DataFrame) -> DataFrame:
    """tube, hour: tasks there at its end, and the age of the oldest of them in seconds."""
    last = rows.agg(F.max(F.greatest("put_us", F.coalesce("ended_us", "put_us")))).first()[0]
    if last is None:
        empty = "tube string, hour bigint, backlog bigint, oldest_s double"
        return rows.sparkSession.createDataFrame([], empty)
    end = last // HOUR_US
    # The last hour a task was there at the end of: the one before it ended.
    until = F.when(F.col("ended_us").isNull(), F.lit(end)).otherwise(hour_of(F.col("ended_us")) - 1)
    there = (
        rows.where("put_us is not null")
        .select("tube", "put_us", hour_of(F.col("put_us")).alias("from"), until.alias("until"))
        .where("until >= from")
        .select("tube", "put_us", F.explode(F.sequence("from", "until")).alias("hour"))
    )
    moment = F.least((F.col("hour") + 1) * HOUR_US, F.lit(last))
    return (
        there.groupBy("tube", "hour")
        .agg(F.count("*").alias("backlog"), F.min("put_us").alias("put_us"))
        .select(
            "tube",
            "hour",
            "backlog",
            F.round((moment - F.col("put_us")) / 1e6, 3).alias("oldest_s"),
        )
        .orderBy("tube", "hour")
    )


def workers(given: DataFrame) -> DataFrame:
    """consumer: deliveries, acked, seconds at work, and which part of its time that was."""
    span = F.max(F.col("taken_us") + F.coalesce("ran_us", F.lit(0))) - F.min("taken_us")
    busy = F.sum(F.coalesce("ran_us", F.lit(0)))
    return (
        given.where("consumer is not null")
        .groupBy("consumer")
        .agg(
            F.count("*").alias("deliveries"),
            F.sum((F.col("outcome") == "acked").cast("int")).alias("acked"),
            F.round(busy / 1e6, 3).alias("busy_s"),
            F.round(F.when(span > 0, busy / span), 3).alias("utilisation"),
        )
        .orderBy(F.desc("busy_s"), "consumer")
    )


def outcomes(rows: DataFrame) -> DataFrame:
    """tube, outcome: tasks, and deliveries of all of them."""
    counts = rows.groupBy("tube", "outcome").agg(
        F.count("*").alias("tasks"), F.sum("attempts").alias("deliveries")
    )
    return counts.orderBy("tube", "outcome")


def failing(log: DataFrame, given: DataFrame, field: str | None = None) -> list[dict[str, Any]]:
    """The payloads (or the values of one field of them) whose deliveries failed most often.

    log: rows of one lineage with the columns PUTS. given: deliveries.
    """
    bad = given.where(F.col("outcome").isin(*FAILED)).groupBy("tube", "task", "put_lsn")
    counts = bad.agg(F.count("*").alias("failures"))
    # By the record of its put, too: a truncated tube gives the same ids again.
    puts = log.where("operation = 'put'").select(
        "tube", F.col("task_id").alias("task"), F.col("lsn").alias("put_lsn"), "payload"
    )
    grouped = (
        puts.join(F.broadcast(counts), ["tube", "task", "put_lsn"])
        .groupBy("tube", "payload")
        .agg(F.sum("failures").alias("failures"), F.count("*").alias("tasks"))
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


def run(
    spark: SparkSession,
    paths: Sequence[str],
    out: str,
    field: str | None = None,
    history: str | None = None,
) -> dict[str, Any]:
    """Write report.html and, beside it, every table as Parquet and CSV. Counts by name.

    history: the folder of `pipeline.history`, which is brought up to the log's end and kept; else
    one below `out` that is removed at the end.
    """
    import pandas as pd

    home = Path(out)
    home.mkdir(parents=True, exist_ok=True)
    aside = home / "_history"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        histories.run(spark, paths, history or str(aside))
        rows, given = histories.read(spark, history or str(aside))
        with staged(spark, paths, PUTS) as log:
            found = failing(one_lineage(log), given, field)
        tables: dict[str, pd.DataFrame] = {
            "throughput": throughput(rows, given).toPandas(),
            "backlog": backlog(rows).toPandas(),
            "workers": workers(given).limit(1000).toPandas(),
            "outcomes": outcomes(rows).toPandas(),
            "failing": pd.DataFrame(found, columns=["tube", "key", "failures", "tasks"]),
        }
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    for name in ("throughput", "backlog"):
        hours = pd.to_datetime(tables[name]["hour"] * 3600, unit="s", utc=True)
        tables[name]["hour"] = hours
    for name, table in tables.items():
        # Spark Connect leaves its measurements there, which no format knows how to write.
        table.attrs.clear()
        table.to_parquet(home / f"{name}.parquet", index=False)
        table.to_csv(home / f"{name}.csv", index=False)
    (home / "report.html").write_text(page(tables), encoding="utf-8")
    return {"page": str(home / "report.html"), **{name: len(t) for name, t in tables.items()}}


def chart(table: pd.DataFrame, values: dict[str, str], title: str, unit: str) -> str:
    """One SVG: a line per tube and column. `values`: column to what the legend says."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for tube, rows in table.groupby("tube"):
        for column, says in values.items():
            axes.plot(rows["hour"], rows[column], marker=".", label=f"{tube} {says}".strip())
    axes.set_title(title, loc="left")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.autofmt_xdate()
    if len(table):
        axes.legend(fontsize="small", ncols=3)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    # Only the drawing: the XML head names a DTD on another server.
    return text.getvalue()[text.getvalue().index("<svg") :]


def page(tables: dict[str, pd.DataFrame]) -> str:
    """The whole page; it refers to nothing outside itself."""
    rates, stock = tables["throughput"], tables["backlog"]
    charts = [
        chart(rates, {"puts": "put", "ended": "ended"}, "Throughput", "tasks per hour"),
        chart(rates, {"wait_p50_ms": "p50", "wait_p99_ms": "p99"}, "Waiting", "ms"),
        chart(rates, {"run_p50_ms": "p50", "run_p99_ms": "p99"}, "Running", "ms"),
        chart(stock, {"backlog": ""}, "Backlog at the end of the hour", "tasks"),
        chart(stock, {"oldest_s": ""}, "Age of the oldest task", "s"),
    ]
    titles = {
        "outcomes": "How tasks ended",
        "throughput": "Hour by hour",
        "backlog": "Backlog",
        "failing": "What failed most",
        "workers": "Workers",
    }
    parts = ["<h1>Queue report</h1>", *charts]
    for name, title in titles.items():
        parts.append(f"<h2>{html.escape(title)}</h2>")
        parts.append(tables[name].to_html(index=False, border=0, na_rep="", max_rows=200))
    body = "\n".join(parts)
    head = f"<meta charset='utf-8'><title>Queue report</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"
