"""The figures of a report: sums, quantiles and stays, of tasks and deliveries by the million.

Pure functions of Arrow tables. Each part of history gives sums; distributions travel as counts by
bin and meet where their tube and slot of time do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.model.units import HOUR_US
from tandemq.pipeline.arrays import Ints, encoded, numbers
from tandemq.pipeline.exchange import bucket_in_tube, packed, unpacked

QUANTILES = (0.5, 0.95, 0.99)
#: Outcomes of a delivery that make another one necessary.
FAILED = ("released", "ttr", "buried", "dead")
#: One figure of a part, or packed counts by bin. What the numbers mean, by `what`:
#: slot: number of a stretch of time, as long as the report's grain, since 1970. Others are told in
#: `periods.py`.
#: puts, ended: a = tasks · outcome: text, a = tasks, b = deliveries · takes: a = deliveries,
#: b = failed ones · stay: put in `slot`, there until the end of slot a (OPEN: still there), b =
#: tasks, c = first put · worker: text = consumer, a =
#: deliveries, b = acked, c = µs at work, d, e = its first take and its last end · wait, run: a, b,
#: c = quantiles in µs · failed: body = packed LSNs of puts, one for each delivery that failed.
FIGURE = pa.schema(
    [("what", pa.string()), ("tube", pa.string()), ("text", pa.string()), ("slot", pa.int64())]
    + [(name, pa.int64()) for name in "abcde"]
    + [("bucket", pa.int32()), ("body", pa.binary())]
)
OPEN = -1
#: Values below 2 ** EXACT have bins of their own; above, as many bins share each power of two.
EXACT = 11
OF_TASKS = ("tube", "put_us", "ended_us", "outcome", "attempts")
OF_DELIVERIES = ("tube", "consumer", "taken_us", "waited_us", "ran_us", "outcome", "put_lsn")


def bins(values: Ints) -> Ints:
    """The bin of each value, none below 0; a bin is as wide as a thousandth of its values."""
    bits = np.maximum(np.frexp(values.astype(np.float64))[1] - EXACT, 0).astype(np.int64)
    found: Ints = (bits << EXACT) + (values >> bits)
    return found


def _rows(what: str, **columns: pa.Array) -> pa.RecordBatch:
    count = len(next(iter(columns.values())))
    found = {field.name: pa.nulls(count, field.type) for field in FIGURE}
    found |= {name: column.cast(FIGURE.field(name).type) for name, column in columns.items()}
    found["what"] = pa.repeat(pa.scalar(what), count)
    return pa.table(found, FIGURE).combine_chunks().to_batches()[0] if count else _nothing()


def _nothing() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], FIGURE)


def sums(table: pa.Table, by: list[str], **wanted: tuple[str, str]) -> pa.Table:
    """Grouped; wanted: column to (column, function), as Arrow calls it."""
    made = table.group_by(by).aggregate([*wanted.values()])
    return made.select([*by, *(f"{of}_{how}" for of, how in wanted.values())]).rename_columns(
        [*by, *wanted]
    )


def as_rows(what: str, table: pa.Table) -> pa.RecordBatch:
    """The columns of a table as rows of FIGURE."""
    return _rows(what, **_columns(table))


def of_tasks(rows: pa.Table, grain: int = HOUR_US) -> Iterator[pa.RecordBatch]:
    """Figures of tasks; columns OF_TASKS."""
    rows = rows.append_column("n", pa.repeat(1, rows.num_rows))
    for what, column in (("puts", "put_us"), ("ended", "ended_us")):
        there = rows.filter(rows[column].is_valid())
        slots = pa.table(
            {"tube": there["tube"], "slot": _slot(there[column], grain), "n": there["n"]}
        )
        yield as_rows(what, sums(slots, ["tube", "slot"], a=("n", "sum")))
    ends = sums(rows, ["tube", "outcome"], a=("n", "sum"), b=("attempts", "sum"))
    yield as_rows("outcome", ends.rename_columns(["tube", "text", "a", "b"]))
    put = rows.filter(rows["put_us"].is_valid())
    if not put.num_rows:
        return
    ended, put_us = numbers(put["ended_us"], -1), numbers(put["put_us"])
    begun, until = put_us // grain, np.where(ended < 0, OPEN, ended // grain - 1)
    stays = {"tube": put["tube"], "slot": begun, "a": until, "n": put["n"], "put_us": put_us}
    stayed = pa.table(stays).filter(pa.array((until == OPEN) | (until >= begun)))
    by = ["tube", "slot", "a"]
    yield as_rows("stay", sums(stayed, by, b=("n", "sum"), c=("put_us", "min")))


def of_deliveries(rows: pa.Table, buckets: int, grain: int = HOUR_US) -> Iterator[pa.RecordBatch]:
    """Figures of deliveries, columns OF_DELIVERIES, and packed counts of waits and runs."""
    slot = _slot(rows["taken_us"], grain)
    n = pa.repeat(1, rows.num_rows)
    bad = pc.is_in(rows["outcome"], pa.array(FAILED))
    yield from _lsns(rows["put_lsn"].filter(bad).drop_null())
    failed = bad.cast(pa.int64())
    given = pa.table({"tube": rows["tube"], "slot": slot, "n": n, "failed": failed})
    takes = sums(given, ["tube", "slot"], a=("n", "sum"), b=("failed", "sum"))
    yield as_rows("takes", takes)
    ran = pc.fill_null(rows["ran_us"], 0)
    columns = {"text": rows["consumer"], "n": n, "ran": ran, "from": rows["taken_us"]}
    columns["acked"] = pc.fill_null(pc.equal(rows["outcome"], "acked"), False).cast(pa.int64())
    columns["until"] = pc.add(rows["taken_us"], ran)
    known = pa.table(columns).filter(rows["consumer"].is_valid())
    wanted = {"a": ("n", "sum"), "b": ("acked", "sum"), "c": ("ran", "sum")}
    wanted |= {"d": ("from", "min"), "e": ("until", "max")}
    yield as_rows("worker", sums(known, ["text"], **wanted))
    tables = []
    for run, column in enumerate(("waited_us", "ran_us")):
        there = rows[column].is_valid()
        values = numbers(rows[column].filter(there))
        counted = {"tube": rows["tube"].filter(there), "slot": slot.filter(there)}
        counted |= {"run": np.full(len(values), run), "bin": bins(values), "value": values}
        by = ["tube", "slot", "run", "bin"]
        wanted = {"n": ("value", "count"), "sum": ("value", "sum")}
        tables.append(sums(pa.table(counted), by, **wanted))
    yield from _packed(pa.concat_tables(tables), buckets)


def _lsns(lsns: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    """An Arrow stream of numbers, as it is packed elsewhere."""
    _, bodies = packed(pa.table({"lsn": lsns}), np.zeros(len(lsns), np.int64), 1)
    if len(bodies):
        yield _rows("failed", body=bodies)


def failed(bodies: Iterable[pa.Array], most: int) -> tuple[Ints, Ints]:
    """(LSNs of puts, ascending; how often deliveries of each failed): those that did most often."""
    lsns = [numbers(table["lsn"]) for table in unpacked(bodies)]
    found, counts = np.unique(np.concatenate(lsns or [np.empty(0, np.int64)]), return_counts=True)
    if len(found) > most:
        chosen = np.sort(np.argsort(-counts, kind="stable")[:most])
        found, counts = found[chosen], counts[chosen]
    return found, counts


def _packed(counts: pa.Table, buckets: int) -> Iterator[pa.RecordBatch]:
    bucket = bucket_in_tube(counts["tube"], counts["slot"], buckets)
    there, bodies = packed(counts, bucket, buckets)
    if there:
        yield _rows("bins", bucket=pa.array(there), body=bodies)


def quantiles(bodies: Iterable[pa.Array]) -> Iterator[pa.RecordBatch]:
    """Quantiles of packed counts: all of a tube and slot are here."""
    tables = list(unpacked(bodies))
    if not tables:
        return
    by = ["run", "tube", "slot", "bin"]
    texts = pa.concat_tables(
        [one.set_column(0, "tube", one["tube"].cast("string")) for one in tables]
    )
    counts = sums(texts, by, n=("n", "sum"), sum=("sum", "sum"))
    counts = counts.sort_by([(name, "ascending") for name in by])
    tube, _ = encoded(counts["tube"])
    run, slot, n, total = (numbers(counts[name]) for name in ("run", "slot", "n", "sum"))
    edge = (np.diff(run) != 0) | (np.diff(tube) != 0) | (np.diff(slot) != 0)
    starts = np.concatenate(([0], np.flatnonzero(edge) + 1))
    so_far = np.cumsum(n)
    before, there = so_far[starts] - n[starts], np.add.reduceat(n, starts)
    columns: dict[str, pa.Array] = {}
    for name, q in zip("abc", QUANTILES, strict=True):
        at = np.searchsorted(so_far, before + np.maximum(np.ceil(there * q), 1))
        # All values of a bin are about the same; of one value it is that value.
        columns[name] = pa.array(np.rint(total[at] / n[at]).astype(np.int64))
    columns |= {"tube": counts["tube"].take(pa.array(starts)), "slot": pa.array(slot[starts])}
    for kind, what in enumerate(("wait", "run")):
        chosen = pa.array(run[starts] == kind)
        yield _rows(what, **{name: column.filter(chosen) for name, column in columns.items()})


def _slot(us: pa.ChunkedArray, grain: int) -> pa.Array:
    return pa.array(numbers(us) // grain)


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return {name: table[name] for name in table.column_names}
