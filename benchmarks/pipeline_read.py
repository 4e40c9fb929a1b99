"""Reading logs: decoding without Spark, the batch reader, compaction.

Here: these parts of `python -m benchmarks pipeline`. Must not be here: options, tables.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.pipeline import Bench
from benchmarks.table import Row, at_least
from tandemq.spark.columns import ALL, DEFAULT
from tandemq.spark.decode import Decoder
from tandemq.spark.logs import LogQuery, plan

THREE = ("lsn", "tube", "operation")
#: What a record and its task say, without the sub-queue and what only streams have.
SIXTEEN = tuple(name for name in DEFAULT if name not in ("utube", "retracted"))
MILLIONS = " M rows/s"


def timed(what: Callable[[], Any], runs: int) -> tuple[float, list[float], Any]:
    """(median seconds, all of them, last result)."""
    took, result = [], None
    for _ in range(runs):
        start = time.perf_counter()
        result = what()
        took.append(time.perf_counter() - start)
    return statistics.median(took), took, result


def noop(frame: Any) -> None:
    """Compute every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def speed(bench: Bench, name: str, what: Callable[[], Any], rows: int, goal: float | None) -> None:
    """A row about a rate; goal: millions of rows a second."""
    seconds, all_of_them, _ = timed(what, bench.runs)
    bench.samples[name] = all_of_them
    rate = rows / seconds / 1e6
    goals = [] if goal is None else [at_least(rate, goal, MILLIONS)]
    bench.rows.append(Row("log", name, f"{rate:.2f} M rows/s", goals=goals))


def decoded(path: str, columns: tuple[str, ...]) -> int:
    """Rows of all parts, one core, no Spark."""
    parts = plan([path], LogQuery())
    return sum(batch.num_rows for part in parts for batch in Decoder(part, columns).batches())


def decode(bench: Bench) -> None:
    """Frames to Arrow without Spark, on one core."""
    path = bench.log(bench.operations)
    rows = decoded(path, THREE)  # the compiled code is loaded
    for name, columns in (("all columns", ALL), ("three columns", THREE)):
        what = f"decode to Arrow, one core, {name}"
        speed(bench, what, lambda chosen=columns: decoded(path, chosen), rows, 1.2)  # type: ignore[misc]


def read(bench: Bench) -> None:
    """The batch reader through Spark, and compaction."""
    from tandemq.pipeline import compact
    from tandemq.pipeline.events import read_log

    path = bench.log(bench.operations)
    archive = bench.home / "archive"

    def compacted() -> int:
        shutil.rmtree(archive, ignore_errors=True)
        return int(compact.run(spark, [path], str(archive))[path]["records"])

    with bench.spark() as spark:
        rows = read_log(spark, [path], ("lsn",)).count()
        for name, columns, goal in (
            ("three columns", THREE, 1.8),
            (f"the {len(SIXTEEN)} columns of a record and its task", SIXTEEN, 1.0),
            (f"as it comes, {len(DEFAULT)} columns", None, None),
            (f"with all {len(ALL)} columns", ALL, None),
        ):
            frame = read_log(spark, [path], columns)
            noop(frame)  # the first run compiles and is not counted
            speed(bench, f"tandemq_log, {name}", lambda one=frame: noop(one), rows, goal)  # type: ignore[misc]
        compacted()
        speed(bench, "compact", compacted, rows, 0.5)
