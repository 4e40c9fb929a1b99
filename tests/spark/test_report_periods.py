"""The periods of a report and their figures, against sums made row by row."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tandemq.model.units import DAY_US, HOUR_US, SECOND_US
from tandemq.pipeline import figures, periods, report_tables, spans
from tandemq.pipeline.spans import MINUTE_US, TimeSpan
from tests.spark.report_scenes import tables_of

TASKS = pa.schema(
    {"tube": "string", "put_us": "int64", "ended_us": "int64", "outcome": "string"}
    | {"attempts": "int64"}
)
DELIVERIES = pa.schema(
    {"tube": "string", "consumer": "string", "taken_us": "int64", "waited_us": "int64"}
    | {"ran_us": "int64", "outcome": "string", "put_lsn": "int64"}
)
START = 1_750_000_000_000_000
P = HOUR_US
SPAN = TimeSpan(START, START + 3 * P, 5 * MINUTE_US, P)


@pytest.mark.parametrize(
    ("length", "grain", "period"),
    [
        (90 * MINUTE_US, MINUTE_US, 10 * MINUTE_US),
        (SECOND_US, SECOND_US, 0),
        (DAY_US, 15 * MINUTE_US, 6 * HOUR_US),
        (2 * DAY_US, HOUR_US, DAY_US),
        (20 * DAY_US, 6 * HOUR_US, 7 * DAY_US),
        (90 * DAY_US, DAY_US, 30 * DAY_US),
        (1000 * DAY_US, 28 * DAY_US, 30 * DAY_US),
    ],
)
def test_the_grain_follows_the_span_and_a_period_needs_one_before(
    length: int, grain: int, period: int
) -> None:
    found = spans.span([(START + 5, START + length), (START, START + 7)])
    assert found == TimeSpan(START, START + length, grain, period)
    assert length <= grain * spans.SLOTS
    assert found.compared == (2 * period <= length and period > 0)


def test_a_moment_is_in_the_period_that_it_begins() -> None:
    ago = np.array([0, 1, P - 1, P, P + 1, 2 * P, 2 * P + 1, 3 * P])
    assert SPAN.of(SPAN.last_us - ago).tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert SPAN.bounds(1) == (START + P, START + 2 * P)


def tasks(choose: random.Random) -> list[dict[str, Any]]:
    found = []
    for _ in range(400):
        put = START + choose.randrange(19) * P // 6
        ended = put + choose.randrange(19) * P // 6
        over = ended <= SPAN.last_us and choose.random() < 0.8
        found.append(
            {
                "tube": choose.choice("ab"),
                "put_us": put if choose.random() < 0.95 else None,
                "ended_us": ended if over else None,
                "outcome": choose.choice(("acked", "ttl")) if over else "waiting",
                "attempts": 1,
            }
        )
    return [row for row in found if row["put_us"] or row["ended_us"]]


def test_what_is_there_is_what_was_there_and_came_and_did_not_leave() -> None:
    rows = [row for row in tasks(random.Random(1)) if row["put_us"]]
    made = pa.Table.from_batches(
        periods.merged(periods.of_tasks(pa.Table.from_pylist(rows), SPAN)), figures.FIGURE
    )
    table = report_tables.periods(made.to_pandas(), SPAN)
    came = Counter((int(SPAN.of(np.array([r["put_us"]]))[0]), r["tube"]) for r in rows)
    for row in table.to_dict("records"):
        assert row["puts"] == came[row["period"], row["tube"]]
        assert row["there_after"] == row["there_before"] + row["puts"] - row["left"]
    still = Counter(row["tube"] for row in rows if row["ended_us"] is None)
    now = table[table["period"] == 0].set_index("tube")["there_after"]
    assert now.to_dict() == still


def test_what_is_there_at_the_logs_end_is_there_in_its_last_slot() -> None:
    """The last that happened was a delivery, hours after the last task came or left."""
    task = {"tube": "a", "put_us": START, "ended_us": None, "outcome": "waiting", "attempts": 0}
    taken = {"tube": "a", "consumer": "w", "taken_us": SPAN.last_us, "waited_us": 3 * P}
    taken |= {"ran_us": None, "outcome": "running", "put_lsn": 1}
    tasks = pa.Table.from_pylist([task], schema=TASKS)
    given = pa.Table.from_pylist([taken], schema=DELIVERIES)
    found, _ = tables_of([tasks, given], SPAN)
    there = found["backlog"]
    first, last = START // SPAN.grain_us, SPAN.last_us // SPAN.grain_us
    assert there["backlog"].tolist() == [1] * (last - first + 1)
    assert there["oldest_s"].iloc[-1] == 3 * P / SECOND_US


def test_a_quantile_of_bins_is_that_of_the_values_to_a_tenth() -> None:
    values = np.array([int(10 ** random.Random(n).uniform(1, 12)) for n in range(3000)])
    at = np.searchsorted(periods.EDGES_US, values, "right")
    n = np.bincount(at)
    total = np.bincount(at, values)
    there = n > 0
    for q in figures.QUANTILES:
        exact = np.sort(values)[int(np.ceil(q * len(values))) - 1]
        found = periods.quantile(n[there], total[there], q)
        assert found == pytest.approx(exact, rel=0.1)
    assert periods.quantile(n[:0], total[:0], 0.5) is None
    assert (np.diff(periods.EDGES_US) / periods.EDGES_US[:-1]).max() < 0.13
