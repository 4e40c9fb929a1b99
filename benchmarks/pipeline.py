"""Speed of the Spark pipeline: `python -m benchmarks pipeline --operations 5000000`.

The log is written by the real engine. Every figure is the median of `--rounds` runs in this
process; the first figure of a session pays for compiling. DuckDB and Polars run the aggregation
that ends the table over the same Parquet, and must give equal answers. Goals are those of two
cores; `ok` or `MISS` says whether this run met them.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.logmaker import LogMaker, fill
from tandemq.spark.columns import DEFAULT
from tandemq.spark.decode import Decoder
from tandemq.spark.logs import Wanted, plan

THREE = ("lsn", "tube", "operation")
AGGREGATE = (
    "select tube, operation, count(*) n, min(lsn) first, max(lsn) last "
    "from log where task_id is not null group by tube, operation order by tube, operation"
)


def timed(what: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """(median seconds, last result)."""
    took, result = [], None
    for _ in range(rounds):
        start = time.perf_counter()
        result = what()
        took.append(time.perf_counter() - start)
    return statistics.median(took), result


def decode(path: str, columns: tuple[str, ...]) -> int:
    """Rows of all parts, one core, no Spark."""
    return sum(
        batch.num_rows
        for part in plan([path], Wanted())
        for batch in Decoder(part, columns).batches()
    )


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def row(name: str, seconds: float, rows: int, goal: float | None = None) -> None:
    """A line of the table. goal: millions of rows a second."""
    rate = rows / seconds / 1e6
    told = "" if goal is None else f"{goal:.1f} M rows/s | {'ok' if rate >= goal else 'MISS'}"
    print(f"| {name} | {seconds:.2f} s | {rate:.2f} M rows/s | {told or ' | '} |", flush=True)


def total(name: str, seconds: float, rows: int, goal_s: float) -> None:
    """A line about a whole run; the goal is one for 5 M operations and judged there only."""
    rate = rows / seconds / 1e6
    judged = rows >= 4_900_000
    told = f"{goal_s:.0f} s | {'ok' if seconds <= goal_s else 'MISS'}" if judged else " | "
    print(f"| {name} | {seconds:.2f} s | {rate:.2f} M rows/s | {told} |", flush=True)


def compare(archive: str, spark_rows: list[tuple[Any, ...]], rounds: int, rows: int) -> None:
    """The same aggregation in DuckDB and Polars; ends with an error if an answer differs."""
    import duckdb
    import polars

    files = f"{archive}/*/*/*.parquet"
    query = AGGREGATE.replace("from log", f"from read_parquet('{files}', hive_partitioning=false)")
    seconds, answer = timed(lambda: duckdb.sql(query).fetchall(), rounds)
    row("aggregate, DuckDB", seconds, rows)
    if answer != spark_rows:
        raise SystemExit("DuckDB and Spark differ")

    def polar() -> list[tuple[Any, ...]]:
        context = polars.SQLContext(log=polars.scan_parquet(files))
        return list(context.execute(AGGREGATE).collect().rows())

    seconds, answer = timed(polar, rounds)
    row("aggregate, Polars", seconds, rows)
    if answer != spark_rows:
        raise SystemExit("Polars and Spark differ")


def measure(spark: Any, log: str, home: Path, rows: int, rounds: int) -> None:
    from pipeline import audit, compact, history, report
    from pipeline.events import read_log

    noop(read_log(spark, [log], THREE).limit(1000))
    seconds, _ = timed(lambda: noop(read_log(spark, [log])), rounds)
    row("tandemq_log, all columns", seconds, rows, 1.0)
    seconds, _ = timed(lambda: noop(read_log(spark, [log], THREE)), rounds)
    row("tandemq_log, three columns", seconds, rows, 1.8)
    archive = str(home / "archive")

    def compacted() -> None:
        shutil.rmtree(archive, ignore_errors=True)
        compact.run(spark, [log], archive)

    seconds, _ = timed(compacted, rounds)
    row("compact", seconds, rows, 0.5)

    def stream() -> None:
        out = home / "stream"
        shutil.rmtree(out, ignore_errors=True)
        query = (
            spark.readStream.format("tandemq_log")
            .load(log)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(out / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out / "data"))
        )
        query.awaitTermination()

    seconds, _ = timed(stream, 1)
    row("stream to Parquet, 250 k a batch", seconds, rows, 0.3)
    for name, path, goal in (("archive", [archive, log], 30.0), ("live segments", [log], 60.0)):
        start = time.perf_counter()
        history.run(spark, path, str(home / f"history-{name.split()[0]}"))
        past = time.perf_counter()
        report.run(spark, path, str(home / "report"))
        middle = time.perf_counter()
        frame = read_log(spark, path, audit.columns(), rescue="true", mode="PERMISSIVE")
        verdict = audit.judge(frame)
        end = time.perf_counter()
        if not verdict.ok:
            raise SystemExit(verdict.text())
        row(f"history, {name}", past - start, rows)
        row(f"report, {name}", middle - past, rows)
        row(f"audit, {name}", end - middle, rows)
        total(f"history + report + audit, {name}", end - start, rows, goal)

    def aggregate() -> list[tuple[Any, ...]]:
        spark.read.parquet(f"{archive}/*/*").createOrReplaceTempView("log")
        return [tuple(one) for one in spark.sql(AGGREGATE).collect()]

    seconds, answer = timed(aggregate, rounds)
    row("aggregate, Spark", seconds, rows)
    compare(archive, answer, rounds, rows)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks pipeline", description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--decode-only", action="store_true")
    args = parser.parse_args(argv)
    home = Path(tempfile.mkdtemp(prefix="tandemq-bench-"))
    try:
        maker = LogMaker(home / "log", segment_bytes=32 << 20)
        maker.open_term()
        start = time.perf_counter()
        fill(maker, args.operations, per_turn=384)
        maker.turn()
        # What is sealed can be compacted: a second term seals all of the first.
        maker.open_term(2)
        maker.close()
        log = str(home / "log")
        size = sum(path.stat().st_size for path in (home / "log").glob("*.wal"))
        rows = decode(log, ("lsn",))
        print(f"{rows} rows, {size >> 20} MiB, written in {time.perf_counter() - start:.0f} s\n")
        print(
            f"load {os.getloadavg()[0]:.1f}"
            "\n\n| what | median | rate | goal | |\n|---|---|---|---|---|"
        )
        decode(log, THREE)  # the compiled code is loaded
        for name, columns in (("all columns", DEFAULT), ("three columns", THREE)):
            seconds, _ = timed(lambda chosen=columns: decode(log, chosen), args.rounds)
            row(f"decode to Arrow, one core, {name}", seconds, rows, 1.2)
        if args.decode_only:
            return
        from pipeline.session import build_session

        spark = build_session("local[2]", "benchmark")
        measure(spark, log, home, rows, args.rounds)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        spark.stop()
        peak = max(peak, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
        print(f"\nload {os.getloadavg()[0]:.1f}, largest child process {peak} MiB")
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
