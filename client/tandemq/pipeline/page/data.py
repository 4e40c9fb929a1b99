"""What the page's script draws: the tables as few numbers, by tube and slot of time.

Counts are sparse: slots in which nothing happened are left out, and drawn as nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tandemq.pipeline.page import markup
from tandemq.pipeline.page.charts import REASONS
from tandemq.pipeline.page.summary import Flow, Tables, durations
from tandemq.pipeline.periods import EDGES_US, STEPS
from tandemq.pipeline.spans import TimeSpan

if TYPE_CHECKING:
    import pandas as pd

#: Bounds in ms of the bars of a distribution: every STEPS-th bound of its bins.
BARS_MS = EDGES_US[::STEPS] / 1000
MEASURES = ("wait", "run")
NONE: list[dict[str, float | None]] = [{"p50": None, "p95": None}] * 2


def of_page(
    tables: Tables, span: TimeSpan, names: list[str], flows: dict[str, Flow]
) -> dict[str, Any]:
    """All of it; tubes in the order of their names' list."""
    first = span.first_us // span.grain_us
    groups = {name: _by_tube(tables[name]) for name in ("throughput", "backlog", "reasons")}
    spreads = _by_tube(tables["distribution"])
    tubes = []
    for name in names:
        of = {what: group.get(name) for what, group in groups.items()}
        one = _series(of, span, first)
        one["bars"] = _bars(spreads.get(name), span)
        flow = flows.get(name, Flow())
        one |= {"name": name, "state": flow.state, "says": flow.says}
        one["now"] = [flow.puts, flow.left, flow.failed, flow.there_after]
        took = [durations(spreads[name], 0, measure) for measure in MEASURES if name in spreads]
        one["took"] = [
            markup.duration(one_took[p]) for one_took in took or NONE for p in ("p50", "p95")
        ]
        tubes.append(one)
    return {
        "first": first * span.grain_us // 1000,
        "grain": span.grain_us // 1000,
        "slots": span.last_us // span.grain_us - first + 1,
        "begins": span.begins_us // 1000 if span.compared else None,
        "bars": [*map(_label, range(len(BARS_MS) + 1))],
        "reasons": [*REASONS],
        "all": _total(tables, span, first),
        "tubes": tubes,
    }


def _by_tube(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return dict(iter(table.groupby("tube"))) if len(table) else {}


def _slots(times: pd.Series, span: TimeSpan, first: int) -> list[int]:
    us = times.to_numpy("datetime64[us]").astype("int64")
    return [int(one) for one in us // span.grain_us - first]


def _short(values: pd.Series, by: float = 1.0) -> list[float | int | None]:
    """Four digits, None for what is not there."""
    found: list[float | int | None] = []
    for one in values.to_numpy("float64"):
        short = None if np.isnan(one) else float(f"{one * by:.4g}")
        found.append(int(short) if short is not None and short == int(short) else short)
    return found


def _series(of: dict[str, pd.DataFrame | None], span: TimeSpan, first: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rates, stock, reasons = of["throughput"], of["backlog"], of["reasons"]
    if rates is not None:
        found["i"] = _slots(rates["time"], span, first)
        found["put"], found["gone"] = rates["puts"].tolist(), rates["ended"].tolist()
        for measure in MEASURES:
            names = [f"{measure}_{p}_ms" for p in ("p50", "p95", "p99")]
            found[measure] = [_short(rates[name], 0.001) for name in names]
    if stock is not None:
        found["si"] = _slots(stock["time"], span, first)
        found["stock"], found["oldest"] = stock["backlog"].tolist(), _short(stock["oldest_s"])
    if reasons is not None:
        found["failed"] = _reasons(reasons, span, first)
    return found


def _reasons(table: pd.DataFrame, span: TimeSpan, first: int) -> list[list[int]]:
    """[slot, number of the reason, deliveries]."""
    numbers = [[*REASONS].index(reason) for reason in table["reason"]]
    slots = _slots(table["time"], span, first)
    return [[*one] for one in zip(slots, numbers, table["deliveries"].tolist(), strict=True)]


def _bars(table: pd.DataFrame | None, span: TimeSpan) -> dict[str, list[list[int]]]:
    """By measure: [bar, deliveries of the period, of the one before]."""
    found: dict[str, list[list[int]]] = {}
    for measure in MEASURES if table is not None else ():
        assert table is not None
        rows = table[table["measure"] == measure]
        # The bar of a bin is the one its lower end is in; that of the first bin is 0.
        bar = np.searchsorted(BARS_MS, rows["from_ms"].to_numpy() * (1 + 1e-9), "right")
        sums: dict[int, list[int]] = {}
        for at, period, count in zip(bar, rows["period"], rows["deliveries"], strict=True):
            sums.setdefault(int(at), [0] * len(span.periods))[int(period)] += int(count)
        found[measure] = [[at, *counts] for at, counts in sorted(sums.items())]
    return found


def _label(bar: int) -> str:
    if bar == 0:
        return f"< {markup.duration(BARS_MS[0])}"
    if bar == len(BARS_MS):
        return f"≥ {markup.duration(BARS_MS[-1])}"
    return f"{markup.duration(BARS_MS[bar - 1])} {markup.NONE} {markup.duration(BARS_MS[bar])}"


def _total(tables: Tables, span: TimeSpan, first: int) -> dict[str, Any]:
    """The same of all tubes together; of the oldest task it is the oldest."""
    rates, stock, times = (tables[name] for name in ("throughput", "backlog", "times"))
    sums = rates.groupby("time")[["puts", "ended"]].sum().reset_index()
    found: dict[str, Any] = {"i": _slots(sums["time"], span, first)}
    found["put"], found["gone"] = sums["puts"].tolist(), sums["ended"].tolist()
    for measure in MEASURES:
        rows = times[times["measure"] == measure].set_index("time").reindex(sums["time"])
        found[measure] = [_short(rows[name], 0.001) for name in ("p50_ms", "p95_ms", "p99_ms")]
    there = stock.groupby("time").agg({"backlog": "sum", "oldest_s": "max"}).reset_index()
    found["si"] = _slots(there["time"], span, first)
    found["stock"], found["oldest"] = there["backlog"].tolist(), _short(there["oldest_s"])
    reasons = tables["reasons"].groupby(["time", "reason"])[["deliveries"]].sum().reset_index()
    found["failed"] = _reasons(reasons, span, first)
    found["bars"] = _bars(tables["distribution"], span)
    return found
