"""Made-up weeks of tubes as a report's tables: history's rows by chance, summed as the jobs do.

Without Spark and without a log: the page is looked at with 500 tubes in a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tandemq.model.units import DAY_US, SECOND_US
from tandemq.pipeline import figures, periods, report_tables, spans
from tandemq.pipeline.exchange import BUCKETS_MIN

if TYPE_CHECKING:
    import pandas as pd

    from tandemq.pipeline.spans import TimeSpan

START_US = 1_750_032_000_000_000
WORDS = ("orders", "mail", "crawl", "thumbnails", "invoices", "search", "export", "billing")


def names(count: int) -> list[str]:
    """Plain ones: orders, mail, ..., orders-2, ..."""
    many = len(WORDS)
    return [WORDS[n % many] + (f"-{n // many + 1}" if n >= many else "") for n in range(count)]


def history(tube: str, count: int, length_us: int, chance: np.random.Generator) -> list[pa.Table]:
    """[tasks, deliveries] of a tube: more by day than at night, some fail, some are there still."""
    day = chance.random(count * 3) * length_us
    kept = chance.random(count * 3) < 0.55 - 0.45 * np.cos(2 * np.pi * day / DAY_US)
    put = START_US + np.sort(day[kept][:count]).astype(np.int64)
    count = len(put)
    slow, bad = chance.uniform(0.3, 20), chance.choice([0.002, 0.03, 0.25], p=[0.7, 0.25, 0.05])
    wait = (chance.lognormal(0, 1.2, count) * slow * SECOND_US).astype(np.int64)
    if chance.random() < 0.1:
        # The last fifth of the time this tube's workers are too few.
        late = np.maximum(put - START_US - length_us * 4 // 5, 0)
        wait += (late * chance.uniform(0.3, 0.8)).astype(np.int64)
    run = (chance.lognormal(0, 0.8, count) * SECOND_US).astype(np.int64)
    failed = chance.random(count) < bad
    ends = put + wait + run
    end = START_US + length_us
    taken, over = put + wait < end, ends < end
    reason = chance.choice(["released", "ttr", "buried", "dead"], count, p=[0.5, 0.3, 0.1, 0.1])
    gone = over & ~(failed & (reason != "dead"))
    outcome = np.where(gone, np.where(failed, "dead", "acked"), "waiting")
    tasks = {
        "tube": [tube] * count,
        "put_us": put,
        "ended_us": pa.array(ends, mask=~gone),
        "outcome": outcome,
        "attempts": np.ones(count, np.int64),
    }
    given = {
        "tube": [tube] * count,
        "consumer": chance.choice([f"{tube[:40]}/worker-{n}" for n in range(3)], count),
        "taken_us": put + wait,
        "waited_us": wait,
        "ran_us": pa.array(run, mask=~over),
        "outcome": np.where(over, np.where(failed, reason, "acked"), "running"),
        "put_lsn": np.arange(count),
    }
    return [pa.table(tasks), pa.table(given).filter(pa.array(taken))]


def scene(
    tubes: Sequence[str], tasks: int = 300, length_us: int = 15 * DAY_US, seed: int = 1
) -> tuple[dict[str, pd.DataFrame], TimeSpan]:
    """(tables, span) of so many tasks by tube."""
    chance = np.random.default_rng(seed)
    parts = [history(tube, tasks, length_us, chance) for tube in tubes]
    whole = [pa.concat_tables(part[n] for part in parts) for n in (0, 1)]
    return tables_of(whole, spans.span([(START_US, START_US + length_us)]))


def tables_of(
    parts: Sequence[pa.Table], span: TimeSpan
) -> tuple[dict[str, pd.DataFrame], TimeSpan]:
    """(tables, span) of [tasks, deliveries]."""
    tasks, given = parts
    found = [*figures.of_tasks(tasks, span.grain_us), *periods.of_tasks(tasks, span)]
    found += figures.of_deliveries(given, BUCKETS_MIN, span.grain_us)
    found += periods.of_deliveries(given, span)
    bins = [one.num_rows > 0 and one["what"][0].as_py() == "bins" for one in found]
    bodies = [one["body"] for one, packed in zip(found, bins, strict=True) if packed]
    rows = [one for one, packed in zip(found, bins, strict=True) if not packed]
    made = [*periods.merged(rows), *figures.quantiles(bodies)]
    return report_tables.tables(pa.Table.from_batches(made, figures.FIGURE), [], span), span
