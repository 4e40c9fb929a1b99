"""The same two questions to Spark, DuckDB and Polars over the same Parquet: equal answers, times.

The table says from which size on an engine that is made for many machines pays on one.
Here: this part of `python -m benchmarks pipeline`. Must not be here: options, tables.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.pipeline import Bench
from benchmarks.pipeline_read import timed
from benchmarks.table import Row

#: Parts of one archive are linked so many times: sizes grow, the answers stay comparable.
COPIES = (1, 4, 16)
COUNTS = (
    "select tube, operation, count(*) as n, min(lsn) as first, max(lsn) as last "
    "from log where task_id is not null group by tube, operation order by tube, operation"
)
#: How many operations passed between a task's put and its first take, by tube.
WAITS = (
    "select tube, count(*) as tasks, sum(taken - put) as waited, max(taken - put) as longest from ("
    "select tube, task_id, min(case when operation = 'put' then lsn end) as put, "
    "min(case when operation = 'take' then lsn end) as taken "
    "from log where task_id is not null group by tube, task_id) as tasks "
    "where taken is not null group by tube order by tube"
)
QUERIES = {"counts by tube and operation": COUNTS, "waiting by task, then by tube": WAITS}
Answer = list[tuple[Any, ...]]


def plain(rows: Any) -> Answer:
    """Rows with plain integers: engines differ in the type of a sum."""
    return [tuple(int(v) if not isinstance(v, str) else v for v in row) for row in rows]


def engines_over(spark: Any, files: list[str]) -> dict[str, Callable[[str], Answer]]:
    """A function of a query for each engine."""
    import duckdb
    import polars

    spark.read.parquet(*files).createOrReplaceTempView("log")
    duck = duckdb.connect()
    duck.execute("set threads = 2")
    duck.execute(
        f"create view log as select * from read_parquet({files!r}, hive_partitioning = false)"
    )
    context = polars.SQLContext(log=polars.scan_parquet(files, hive_partitioning=False))
    return {
        "DuckDB": lambda query: plain(duck.execute(query).fetchall()),
        "Polars": lambda query: plain(context.execute(query).collect().rows()),
        "Spark": lambda query: plain(spark.sql(query).collect()),
    }


def copies(archive: str, home: Path, count: int) -> list[str]:
    """The archive's files `count` times, each under a name of its own."""
    found: list[str] = []
    for number in range(count):
        for part, path in enumerate(sorted(Path(archive).rglob("*.parquet"))):
            link = home / f"{count}" / f"{number}-{part}.parquet"
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
            found.append(str(link))
    return found


def engines(bench: Bench) -> None:
    """Every engine, every query, every size; ends with an error when answers differ."""
    # Hard links: on the archive's own file system.
    links = bench.logs / f"links-{os.getpid()}"
    try:
        with bench.spark() as spark:
            archive = bench.archive(spark, bench.operations)
            for count in COPIES:
                asked = engines_over(spark, copies(archive, links, count))
                for name, query in QUERIES.items():
                    ask(bench, f"{count * bench.operations:,} rows, {name}", query, asked)
        # All three engines are in it.
        bench.rows[-1].goals = []
    finally:
        shutil.rmtree(links, ignore_errors=True)


def ask(bench: Bench, name: str, query: str, asked: dict[str, Callable[[str], Answer]]) -> None:
    """One row: Spark's median, the others' beside it."""
    seconds: dict[str, float] = {}
    answers: list[Answer] = []
    for engine, run in asked.items():
        seconds[engine], bench.samples[f"{name}, {engine}"], answer = timed(
            lambda one=run: one(query),
            bench.runs,  # type: ignore[misc]
        )
        answers.append(answer)
    if any(answer != answers[0] for answer in answers):
        raise RuntimeError(f"{name}: the engines' answers differ")
    spark = seconds.pop("Spark")
    beside = ", ".join(f"{who} {s:.2f} s ({spark / s:.1f}x)" for who, s in seconds.items())
    bench.rows.append(Row("engines", name, f"Spark {spark:.2f} s", yardstick=beside))
