"""The figures of a report by its periods: what came, left and failed, and how long things took.

Pure functions of Arrow tables, as those of `figures.py`, and rows of the same schema: sums of a
part of history, which are added up wherever they meet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tandemq.pipeline import figures as fig
from tandemq.pipeline.arrays import Ints, numbers
from tandemq.pipeline.spans import CURRENT, EARLIER, TimeSpan

#: Between these two, in µs, durations are counted: by STEPS bins from each of 1, 2, 5, 10, ... to
#: the next; a bin is a tenth wide.
SHORTEST_US, DECADES, STEPS = 100, 10, 8
#: What rows of this module's `what` mean, beside those of `figures.FIGURE`; slot is a period:
#: came: a = tasks put · left: text = outcome, a = tasks · given: text = outcome of deliveries, a =
#: deliveries · there: a = tasks in the tube when the period ended, or, of the one after the last,
#: before any · reason: slot is one of time,
#: text = outcome of deliveries that failed, a = deliveries · spread: text = wait or run, c = number
#: of a bin, a = deliveries, b = µs of all · over: the same of all tubes, slot is one of time ·
#: present: text = consumer, c = µs at work, d, e = its first take and its last end.
SUMS = ("came", "left", "given", "there", "reason", "spread", "over")


def _edges() -> Ints:
    bounds = [SHORTEST_US * 10**k * n for k in range(DECADES) for n in (1, 2, 5)]
    bounds.append(SHORTEST_US * 10**DECADES)
    found = [
        int(low * (high / low) ** (step / STEPS))
        for low, high in itertools.pairwise(bounds)
        for step in range(STEPS)
    ]
    return np.array([*found, bounds[-1]], np.int64)


#: Bin n is from EDGES_US[n - 1], and below EDGES_US[n].
EDGES_US = _edges()


def of_tasks(rows: pa.Table, span: TimeSpan) -> Iterator[pa.RecordBatch]:
    """Figures of tasks; columns `figures.OF_TASKS`."""
    put = rows["put_us"].is_valid()
    put_us, ended_us = numbers(rows["put_us"], -1), numbers(rows["ended_us"], -1)
    n = pa.repeat(1, rows.num_rows)
    for what, there, us, more in (
        ("came", put, put_us, {}),
        ("left", rows["ended_us"].is_valid(), ended_us, {"text": rows["outcome"]}),
    ):
        table = pa.table({"tube": rows["tube"], "slot": span.of(us), "a": n, **more})
        yield _summed(what, table.filter(there))
    known = put.to_numpy()
    for period in (*span.periods, span.periods[-1] + 1):
        if period == CURRENT:
            stays = known & (ended_us < 0)
        elif span.compared:
            # What is put or leaves at the very moment belongs to the period that begins.
            moment = span.bounds(period)[1]
            stays = known & (put_us < moment) & ((ended_us < 0) | (ended_us >= moment))
        else:
            break
        table = pa.table({"tube": rows["tube"], "slot": np.full(rows.num_rows, period), "a": n})
        yield _summed("there", table.filter(pa.array(stays)))


def of_deliveries(rows: pa.Table, span: TimeSpan) -> Iterator[pa.RecordBatch]:
    """Figures of deliveries; columns `figures.OF_DELIVERIES`."""
    taken = numbers(rows["taken_us"])
    period, slot = span.of(taken), taken // span.grain_us
    n = pa.repeat(1, rows.num_rows)
    text = rows["outcome"]
    given = {"tube": rows["tube"], "text": text, "slot": period, "a": n}
    yield _summed("given", pa.table(given))
    bad = pc.is_in(text, pa.array(fig.FAILED))
    yield _summed("reason", pa.table(given | {"slot": slot}).filter(bad))
    ran = numbers(rows["ran_us"], -1)
    ran = np.where(ran < 0, np.maximum(span.last_us - taken, 0), ran)
    columns = {"text": rows["consumer"], "slot": period, "c": ran, "d": rows["taken_us"]}
    known = pa.table(columns | {"e": taken + ran}).filter(rows["consumer"].is_valid())
    sums = {"c": ("c", "sum"), "d": ("d", "min"), "e": ("e", "max")}
    yield fig.as_rows("present", fig.sums(known, ["text", "slot"], **sums))
    for name, column in (("wait", "waited_us"), ("run", "ran_us")):
        there = rows[column].is_valid()
        values = numbers(rows[column].filter(there))
        counted = {
            "text": pa.repeat(name, len(values)),
            "c": np.searchsorted(EDGES_US, values, "right"),
            "a": pa.repeat(1, len(values)),
            "b": values,
        }
        chosen = there.to_numpy()
        tubes = {"tube": rows["tube"].filter(there), "slot": period[chosen]}
        of_tubes = pa.table(counted | tubes)
        yield _summed("spread", of_tubes.filter(pc.less(of_tubes["slot"], EARLIER)))
        yield _summed("over", pa.table(counted | {"slot": slot[chosen]}))


def _summed(what: str, table: pa.Table) -> pa.RecordBatch:
    by = [name for name in ("tube", "text", "slot", "c") if name in table.column_names]
    sums = {name: (name, "sum") for name in ("a", "b") if name in table.column_names}
    return fig.as_rows(what, fig.sums(table, by, **sums))


def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same figures in fewer rows: sums of all batches that are together here."""
    alike: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        if batch["what"][0].as_py() in SUMS:
            alike.append(batch)
        else:
            yield batch
    if alike:
        by = ["what", "tube", "text", "slot", "c"]
        table = fig.sums(pa.Table.from_batches(alike), by, a=("a", "sum"), b=("b", "sum"))
        for what in SUMS:
            chosen = table.filter(pc.equal(table["what"], what))
            yield fig.as_rows(what, chosen.drop(["what"]))


def quantile(counts: Ints, sums: Ints, q: float) -> float | None:
    """The value below which a share of q lies, of counts and sums by ascending bins."""
    total = int(counts.sum())
    if not total:
        return None
    at = int(np.searchsorted(np.cumsum(counts), max(int(np.ceil(total * q)), 1)))
    return float(sums[at] / counts[at])
