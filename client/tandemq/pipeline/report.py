"""The report: what a queue did, hour by hour and tube by tube, as tables and one HTML page.

Every table is a function of history's rows, so it can be tested and used alone. The page holds its
charts as inline SVG and loads nothing.
"""

from __future__ import annotations

import html
import io
import json
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tandemq.model.units import HOUR_US, SECOND_US
from tandemq.pipeline import figures as fig
from tandemq.pipeline import history as histories
from tandemq.pipeline.arrays import Ints
from tandemq.pipeline.events import kept, parts_for, spread, stretches
from tandemq.pipeline.exchange import BUCKETS_MIN
from tandemq.spark.groups import json_of
from tandemq.spark.mapped import mapped

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

TOP = 20
#: Of a tube's name in a legend.
LABEL_CHARS = 40
WORKERS = 1000
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
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left } svg { max-width: 100%; height: auto }
"""


def figures(spark: SparkSession, history: str) -> pa.Table:
    """Rows of `figures.FIGURE`, of a history's folder; counts by bin are quantiles."""
    schema = from_arrow_schema(fig.FIGURE)
    files = histories.files(history)
    shares = max(1, min(len(files), int(spark.conf.get("spark.sql.shuffle.partitions") or 8)))
    # The largest come first: dealt out in turn, the shares are about as large.
    given = [files[at::shares] for at in range(shares)]
    each = spark.range(0, shares, 1, shares).mapInArrow(partial(_figures, given), schema)
    with kept(each) as found:
        parts = parts_for(spark, BUCKETS_MIN, 0)
        met = spread(found.where("what = 'bins'"), parts).mapInArrow(_quantiles, schema)
        return found.where("what != 'bins'").unionByName(met).toArrow()


def _figures(
    shares: list[list[tuple[str, str]]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Figures of the files of a share; the row that comes is its number."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        for table, file in shares[number]:
            columns = fig.OF_TASKS if table == "tasks" else fig.OF_DELIVERIES
            for stretch in stretches(histories.rows_of(file, columns)):
                rows = stretch.unify_dictionaries().combine_chunks()
                if table == "tasks":
                    yield from fig.of_tasks(rows)
                else:
                    yield from fig.of_deliveries(rows, BUCKETS_MIN)


def _quantiles(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from fig.quantiles(batch.column(0) for batch in batches)


def throughput(found: pd.DataFrame) -> pd.DataFrame:
    """tube, hour: puts, takes, ended, retries, wait and run quantiles in ms."""
    import pandas as pd

    key = ["tube", "hour"]
    columns = []
    for what, names in (
        ("puts", {"a": "puts"}),
        ("takes", {"a": "takes", "b": "retries"}),
        ("ended", {"a": "ended"}),
    ):
        sums = _of(found, what).groupby(key)[[*names]].sum()
        columns.append(sums.rename(columns=names))
    table = pd.concat(columns, axis=1).fillna(0).astype("int64")
    table = table[["puts", "takes", "ended", "retries"]]
    for what in ("wait", "run"):
        names = {
            one: f"{what}_p{int(q * 100)}_ms" for one, q in zip("abc", fig.QUANTILES, strict=True)
        }
        values = _of(found, what).set_index(key)[[*names]] / 1000
        table = table.join(values.rename(columns=names))
    return table.sort_index().reset_index()


def backlog(found: pd.DataFrame) -> pd.DataFrame:
    """tube, hour: tasks there at its end, and the age of the oldest of them in seconds."""
    stays = _of(found, "stay")
    last = int(_of(found, "last")["a"].max()) if len(stays) else 0
    until = stays["a"].where(stays["a"] != fig.OPEN, last // HOUR_US)
    hours = (until - stays["hour"] + 1).to_numpy("int64")
    at = np.repeat(np.arange(len(stays)), hours)
    there = stays.iloc[at][["tube", "hour", "b", "c"]]
    there["hour"] += np.arange(len(at)) - np.repeat(np.cumsum(hours) - hours, hours)
    table = there.groupby(["tube", "hour"]).agg({"b": "sum", "c": "min"}).reset_index()
    moment = np.minimum((table["hour"] + 1) * HOUR_US, last)
    table["oldest_s"] = ((moment - table["c"]) / SECOND_US).round(3)
    return table.rename(columns={"b": "backlog"})[["tube", "hour", "backlog", "oldest_s"]]


def workers(found: pd.DataFrame) -> pd.DataFrame:
    """consumer: deliveries, acked, seconds at work, and which part of its time that was."""
    how = {"a": "sum", "b": "sum", "c": "sum", "d": "min", "e": "max"}
    table = _of(found, "worker").groupby("text").agg(how).reset_index()
    span = (table["e"] - table["d"]).where(lambda us: us > 0)
    table["utilisation"] = (table["c"] / span).round(3)
    table["busy_s"] = (table["c"] / SECOND_US).round(3)
    names = {"text": "consumer", "a": "deliveries", "b": "acked"}
    table = table.rename(columns=names).sort_values(["busy_s", "consumer"], ascending=[False, True])
    return table[["consumer", "deliveries", "acked", "busy_s", "utilisation"]].head(WORKERS)


def outcomes(found: pd.DataFrame) -> pd.DataFrame:
    """tube, outcome: tasks, and deliveries of all of them."""
    table = _of(found, "outcome").groupby(["tube", "text"])[["a", "b"]].sum().reset_index()
    return table.rename(columns={"text": "outcome", "a": "tasks", "b": "deliveries"})


def _of(found: pd.DataFrame, what: str) -> pd.DataFrame:
    """The figures of one kind, numbers as numbers."""
    rows = found[found["what"] == what]
    whole = [name for name in ("hour", *"abcde") if rows[name].notna().all()]
    return rows.astype(dict.fromkeys(whole, "int64"))


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
    import pandas as pd

    home = Path(out)
    home.mkdir(parents=True, exist_ok=True)
    aside = home / "_history"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder = history or str(aside)
        histories.run(spark, paths, folder)
        made = figures(spark, folder)
        bodies = made.filter(pc.equal(made["what"], "failed"))["body"].chunks
        failed = fig.failed(bodies, FAILED_MAX)
        worst = failing(spark, paths, failed, histories.node_of(folder), field)
        found = made.drop(["bucket", "body"]).to_pandas()
        tables = {
            "throughput": throughput(found),
            "backlog": backlog(found),
            "workers": workers(found),
            "outcomes": outcomes(found),
            "failing": pd.DataFrame(worst, columns=["tube", "key", "failures", "tasks"]),
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


def label_of(tube: str, says: str) -> str:
    """A line's name in the legend, which leaves out what begins with an underscore; a tube's name
    may be longer than the chart is wide."""
    tube = tube if len(tube) <= LABEL_CHARS else tube[: LABEL_CHARS - 1] + "…"
    text = f"{tube} {says}".strip()
    return f" {text}" if text.startswith("_") else text


def chart(table: pd.DataFrame, values: dict[str, str], title: str, unit: str) -> str:
    """One SVG: a line per tube and column. `values`: column to what the legend says."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    for tube, rows in table.groupby("tube"):
        for column, says in values.items():
            axes.plot(rows["hour"], rows[column], marker=".", label=label_of(tube, says))
    axes.set_title(title, loc="left")
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    figure.autofmt_xdate()
    if len(table):
        for said in axes.legend(fontsize="small", ncols=3).get_texts():
            said.set_parse_math(False)
    text = io.StringIO()
    # Names stay text: what letters there are is the reader's fonts' business.
    with rc_context({"svg.fonttype": "none"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
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
