"""The folder of a report: its tables and its page, out of a history, whichever engine sums it up.

An engine brings a history up to date, makes figures of its files and finds the payloads that failed
most; what it runs on files and parts of a log is here, too. Tables of figures are made in
`report_tables.py`, the page of the tables in `page`. No Spark here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.pipeline import figures as fig
from tandemq.pipeline import page, periods, report_tables, spans
from tandemq.pipeline.arrays import Ints
from tandemq.pipeline.exchange import BUCKETS_MIN
from tandemq.pipeline.history_files import files, node_of, rows_of
from tandemq.pipeline.packing import stretches
from tandemq.pipeline.spans import TimeSpan
from tandemq.spark.groups import json_of

TOP, TOP_BY_FIELD = 20, 100_000
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
#: Called with the batches of one part of a log (columns PUTS) and the number of parts there are.
FailingWork = Callable[[Iterator[pa.RecordBatch], int], Iterable[pa.RecordBatch]]
#: Called with such work, the first and the last LSN to look at and how many rows of FAILING are
#: wanted: those that failed most often, then by tube and payload.
Worst = Callable[[FailingWork, int, int, int], Iterable[Mapping[str, Any]]]


def of_file(table: str, file: str, span: TimeSpan) -> Iterator[pa.RecordBatch]:
    """Figures of one of a history's files; table: tasks or deliveries."""
    columns = fig.OF_TASKS if table == "tasks" else fig.OF_DELIVERIES
    for stretch in stretches(rows_of(file, columns)):
        rows = stretch.unify_dictionaries().combine_chunks()
        if table == "tasks":
            yield from fig.of_tasks(rows, span.grain_us)
            yield from periods.of_tasks(rows, span)
        else:
            yield from fig.of_deliveries(rows, BUCKETS_MIN, span.grain_us)
            yield from periods.of_deliveries(rows, span)


def failing(
    failed: tuple[Ints, Ints], node: str | None, field: str | None, worst: Worst
) -> list[dict[str, Any]]:
    """The payloads (or the values of one field of them) whose deliveries failed most often.

    failed: see `tandemq.pipeline.figures.failed`; node: whose log is meant, if not any.
    """
    lsns, failures = failed
    if not len(lsns):
        return []
    work = partial(payloads, lsns, failures, node)
    most = TOP if field is None else TOP_BY_FIELD
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in worst(work, int(lsns[0]), int(lsns[-1]), most):
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


def payloads(
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
            yield from summed(pa.table(columns, FAILING)).to_batches()


def summed(rows: pa.Table) -> pa.Table:
    """Rows of FAILING, those of one tube and payload as one."""
    sums = rows.group_by(["tube", "payload"])
    made = sums.aggregate([("failures", "sum"), ("tasks", "sum")])
    return made.rename_columns(FAILING.names).cast(FAILING)


def write(
    out: str,
    history: str | None,
    field: str | None,
    advance: Callable[[str], object],
    figures: Callable[[Sequence[tuple[str, str]], TimeSpan], pa.Table],
    worst: Worst,
) -> dict[str, Any]:
    """Write report.html and, beside it, every table as Parquet and CSV. Counts by name.

    history: the folder of one, which is brought up to the log's end and kept; else one below `out`
    that is removed at the end. field: of payloads, to tell failures by. advance: brings a folder up
    to the log's end. figures: rows of `figures.FIGURE` of its files; counts by bin are quantiles.
    """
    home = Path(out)
    home.mkdir(parents=True, exist_ok=True)
    aside = home / "_history"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder = history or str(aside)
        advance(folder)
        there = files(folder)
        span = spans.of_files(file for _, file in there)
        made = figures(there, span)
        bodies = made.filter(pc.equal(made["what"], "failed"))["body"].chunks
        found = failing(fig.failed(bodies, FAILED_MAX), node_of(folder), field, worst)
        tables = report_tables.tables(made, found, span)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    for name, table in tables.items():
        # Spark Connect leaves its measurements there, which no format knows how to write.
        table.attrs.clear()
        table.to_parquet(home / f"{name}.parquet", index=False)
        table.to_csv(home / f"{name}.csv", index=False)
    (home / "report.html").write_text(page.page(tables, span), encoding="utf-8")
    return {"page": str(home / "report.html"), **{name: len(t) for name, t in tables.items()}}
