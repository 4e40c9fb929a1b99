"""History, report and audit: cold over archive and live segments, and how time grows with size.

Here: these parts of `python -m benchmarks pipeline`. Must not be here: options, tables.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.pipeline import FULL, Bench
from benchmarks.table import Row, at_most

#: Seconds for 5 million operations, without the start of the session.
ARCHIVE_SECONDS_MAX, LIVE_SECONDS_MAX = 30.0, 60.0
TIMES = 4
GROWTH_MAX = 1.2 * TIMES


def one_after_the_other(spark: Any, paths: list[str], out: Path) -> dict[str, float]:
    """Seconds of each job, fresh output. Raises `RuntimeError` when the log is not sound."""
    from tandemq.pipeline import audit, history, report

    took: dict[str, float] = {}

    def lap(name: str, started: float) -> float:
        now = time.perf_counter()
        took[name] = now - started
        return now

    now = time.perf_counter()
    history.run(spark, paths, str(out / "history"))
    now = lap("history", now)
    report.run(spark, paths, str(out / "report"), history=str(out / "history"))
    now = lap("report", now)
    verdict = audit.run(spark, paths)
    lap("audit", now)
    if not verdict.ok:
        raise RuntimeError(f"the audit of a sound log: {verdict.text()}")
    return took


def jobs(bench: Bench) -> None:
    """All three jobs, each kind of source cold: in a session of its own."""
    path = bench.log(bench.operations)
    with bench.spark() as spark:
        archive = bench.archive(spark, bench.operations)
    del bench.rows[:]
    sources = (
        ("archive", [archive, path], ARCHIVE_SECONDS_MAX),
        ("live segments", [path], LIVE_SECONDS_MAX),
    )
    for name, paths, most in sources:
        bench.say(f"history, report, audit from {name}")
        with bench.spark(lean=True) as spark:
            took = one_after_the_other(spark, paths, bench.home / name)
        bench.samples[name] = took
        what = f"{bench.operations:,} operations, cold, {name}"
        for job, seconds in took.items():
            bench.rows.append(Row(what, job, f"{seconds:.1f} s"))
        total = sum(took.values())
        whole = Row(what, "history + report + audit", f"{total:.1f} s")
        whole.goals = [at_most(total, most, " s")] if bench.operations >= FULL else []
        bench.rows.append(whole)


def linear(bench: Bench) -> None:
    """The three jobs warm, over a quarter of the operations and over all of them."""
    sizes = (bench.operations // TIMES, bench.operations)
    paths = {size: bench.log(size) for size in sizes}
    totals: dict[int, float] = {}
    with bench.spark(lean=True) as spark:
        bench.say("warming up")
        one_after_the_other(spark, [paths[sizes[0]]], bench.home / "warm")
        for size in sizes:
            took = one_after_the_other(spark, [paths[size]], bench.home / str(size))
            totals[size] = sum(took.values())
            bench.samples[str(size)] = took
    growth = totals[sizes[1]] / totals[sizes[0]]
    for size, seconds in totals.items():
        each = f"{seconds / size * 1e6:.1f} us an operation"
        name = f"{size:,} operations, warm, live segments"
        bench.rows.append(
            Row(name, "history + report + audit", f"{seconds:.1f} s", None, None, each)
        )
    goal = at_most(growth, GROWTH_MAX, "x")
    bench.rows.append(
        Row("growth", f"{TIMES} times the operations", f"{growth:.2f}x", goals=[goal])
    )
