"""The tables of a report: pure functions of the figures that `figures.py` made of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tandemq.model.units import HOUR_US, SECOND_US
from tandemq.pipeline import figures as fig

if TYPE_CHECKING:
    import pandas as pd

WORKERS = 1000


def tables(made: pa.Table, worst: Sequence[Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """All tables by name, of rows of `figures.FIGURE` and of what failed most."""
    import pandas as pd

    found = made.drop(["bucket", "body"]).to_pandas()
    tables = {
        "throughput": throughput(found),
        "backlog": backlog(found),
        "workers": workers(found),
        "outcomes": outcomes(found),
        "failing": pd.DataFrame(worst, columns=["tube", "key", "failures", "tasks"]),
    }
    for name in ("throughput", "backlog"):
        hours = pd.to_datetime(tables[name]["hour"] * 3600, unit="s", utc=True)
        tables[name]["hour"] = hours
    return tables


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
