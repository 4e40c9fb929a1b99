"""The tables of a report: pure functions of the figures that `figures.py` made of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tandemq.model.units import SECOND_US
from tandemq.pipeline import figures as fig
from tandemq.pipeline import periods as per
from tandemq.pipeline.spans import EARLIER, TimeSpan

if TYPE_CHECKING:
    import pandas as pd

WORKERS = 1000


def tables(
    made: pa.Table, worst: Sequence[Mapping[str, Any]], span: TimeSpan
) -> dict[str, pd.DataFrame]:
    """All tables by name, of rows of `figures.FIGURE` and of what failed most."""
    import pandas as pd

    found = made.drop(["bucket", "body"]).to_pandas()
    tables = {
        "throughput": throughput(found),
        "backlog": backlog(found, span),
        "workers": workers(found),
        "outcomes": outcomes(found),
        "failing": pd.DataFrame(worst, columns=["tube", "key", "failures", "tasks"]),
        "reasons": reasons(found),
        "times": times(found),
        "periods": periods(found, span),
        "consumers": consumers(found, span),
        "distribution": distribution(found),
    }
    for table in tables.values():
        if "slot" in table:
            moments = pd.to_datetime(table["slot"] * span.grain_us, unit="us", utc=True)
            table.insert(list(table).index("slot"), "time", moments)
            del table["slot"]
    return tables


def throughput(found: pd.DataFrame) -> pd.DataFrame:
    """tube, slot: puts, takes, ended, retries, wait and run quantiles in ms."""
    import pandas as pd

    key = ["tube", "slot"]
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


def backlog(found: pd.DataFrame, span: TimeSpan) -> pd.DataFrame:
    """tube, slot: tasks there at its end, and the age of the oldest of them in seconds.

    What is there when the log ends was there in its last slot, whatever happened last.
    """
    stays, grain, last = _of(found, "stay"), span.grain_us, span.last_us
    until = stays["a"].where(stays["a"] != fig.OPEN, last // grain)
    slots = (until - stays["slot"] + 1).to_numpy("int64")
    at = np.repeat(np.arange(len(stays)), slots)
    there = stays.iloc[at][["tube", "slot", "b", "c"]]
    there["slot"] += np.arange(len(at)) - np.repeat(np.cumsum(slots) - slots, slots)
    table = there.groupby(["tube", "slot"]).agg({"b": "sum", "c": "min"}).reset_index()
    moment = np.minimum((table["slot"] + 1) * grain, last)
    table["oldest_s"] = ((moment - table["c"]) / SECOND_US).round(3)
    return table.rename(columns={"b": "backlog"})[["tube", "slot", "backlog", "oldest_s"]]


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
    whole = [name for name in ("slot", *"abcde") if rows[name].notna().all()]
    return rows.astype(dict.fromkeys(whole, "int64"))


def reasons(found: pd.DataFrame) -> pd.DataFrame:
    """tube, slot, reason: deliveries that failed."""
    table = _of(found, "reason").groupby(["tube", "slot", "text"])[["a"]].sum().reset_index()
    return table.rename(columns={"text": "reason", "a": "deliveries"})


def times(found: pd.DataFrame) -> pd.DataFrame:
    """slot, measure (wait or run): quantiles of all tubes in ms, to a tenth of their value."""
    import pandas as pd

    table = _of(found, "over").groupby(["text", "slot", "c"])[["a", "b"]].sum().reset_index()
    rows = []
    for (measure, slot), bins in table.groupby(["text", "slot"]):
        n, total = bins["a"].to_numpy("int64"), bins["b"].to_numpy("int64")
        values = [per.quantile(n, total, q) for q in fig.QUANTILES]
        rows.append([slot, measure, *(None if us is None else us / 1000 for us in values)])
    names = [f"p{int(q * 100)}_ms" for q in fig.QUANTILES]
    return pd.DataFrame(rows, columns=["slot", "measure", *names]).astype({"slot": "int64"})


def periods(found: pd.DataFrame, span: TimeSpan) -> pd.DataFrame:
    """period (0 is the one reported, 1 the one before), tube: tasks that came and left, deliveries
    and failed ones, tasks there at its begin and end."""
    import pandas as pd

    key = ["slot", "tube"]
    rows = {what: _of(found, what) for what in ("came", "left", "given", "there")}
    acked = rows["left"][rows["left"]["text"] == "acked"]
    failed = rows["given"][rows["given"]["text"].isin(fig.FAILED)]
    before = rows["there"].assign(slot=rows["there"]["slot"] - 1)
    columns = [
        of.groupby(key)["a"].sum().rename(name)
        for name, of in (
            ("puts", rows["came"]),
            ("left", rows["left"]),
            ("acked", acked),
            ("takes", rows["given"]),
            ("failed", failed),
            ("there_before", before),
            ("there_after", rows["there"]),
        )
    ]
    table = pd.concat(columns, axis=1).fillna(0).astype("int64").sort_index().reset_index()
    chosen = table["slot"].between(0, len(span.periods) - 1)
    return table[chosen].rename(columns={"slot": "period"}).reset_index(drop=True)


def consumers(found: pd.DataFrame, span: TimeSpan) -> pd.DataFrame:
    """period: from, to, consumers seen, seconds they were there and at work."""
    import pandas as pd

    how = {"c": "sum", "d": "min", "e": "max"}
    table = _of(found, "present").groupby(["slot", "text"]).agg(how).reset_index()
    rows = []
    for period in span.periods if len(found) else ():
        there = table[table["slot"] == period]
        present = float((there["e"] - there["d"]).sum()) / SECOND_US
        moments = [pd.Timestamp(us, unit="us", tz="UTC") for us in span.bounds(period)]
        busy = float(there["c"].sum()) / SECOND_US
        rows.append([period, *moments, len(there), round(present, 3), round(busy, 3)])
    names = ["period", "from", "to", "consumers", "present_s", "busy_s"]
    return pd.DataFrame(rows, columns=names)


def distribution(found: pd.DataFrame) -> pd.DataFrame:
    """tube, period, measure, from_ms, to_ms: deliveries that took so long, and their sum in ms.

    The last bin has no upper end."""
    key = ["tube", "slot", "text", "c"]
    table = _of(found, "spread").groupby(key)[["a", "b"]].sum().reset_index()
    table = table[table["slot"] < EARLIER]
    edges = np.concatenate(([0], per.EDGES_US, [np.inf])) / 1000
    at = table["c"].to_numpy("int64")
    table["from_ms"], table["to_ms"] = edges[at], edges[at + 1]
    table["total_ms"] = table["b"] / 1000
    names = {"slot": "period", "text": "measure", "a": "deliveries"}
    columns = ["tube", "period", "measure", "from_ms", "to_ms", "deliveries", "total_ms"]
    return table.rename(columns=names)[columns].reset_index(drop=True)
