"""Streams out of a log, and the sink into a queue.

Here: these parts of `python -m benchmarks pipeline`. Must not be here: options, tables.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.logmaker import LogMaker
from benchmarks.pipeline import Bench
from benchmarks.pipeline_read import MILLIONS
from benchmarks.table import Row, at_least, at_most, rate
from demo.nodes import AsyncNodeProcess

BATCH = 250_000
FLOOR_BATCHES = 12
LIVE_RATE, LIVE_SECONDS = 20_000, 20
FRAME_ROWS, WINDOW = 1000, 8
SINK_ROWS_MAX = 500_000
BODY = "x" * 100


def query_of(spark: Any, log: str, out: Path, **trigger: Any) -> Any:
    """A started query of the whole log into Parquet."""
    frame = spark.readStream.format("tandemq_log").option("maxRecordsPerBatch", BATCH).load(log)
    writer = frame.writeStream.format("parquet").trigger(**trigger)
    return writer.option("checkpointLocation", str(out / "checkpoint")).start(str(out / "data"))


def followed(spark: Any, log: str, out: Path, **_: Any) -> Any:
    """The same by `tandemq pipeline follow`, whose files are written where they are decoded."""
    from tandemq.pipeline import follow

    return follow.start(spark, log, str(out), options={"maxRecordsPerBatch": BATCH})


def stream(bench: Bench) -> None:
    """All of a log in batches of 250,000, and what a batch of a few records takes."""
    with bench.spark() as spark:
        for name, start, goal in (
            ("follow", followed, 0.3),
            ("Spark's own Parquet sink", query_of, None),
        ):
            _whole(bench, spark, name, start, goal)
        floor = floor_of(bench, spark)
        bench.samples |= {"floor_ms": floor}
        middle = statistics.median(floor) / 1000
        bench.rows.append(Row("stream", "a batch of a few records", f"{middle:.2f} s"))
        bench.rows[-1].goals = [at_most(middle, 0.4, " s")]


def _whole(bench: Bench, spark: Any, name: str, start: Any, goal: float | None) -> None:
    """Rows a second of the batches of a log, without the query's own start and end."""
    from tandemq.pipeline.events import read_log

    path = bench.log(bench.operations)
    records = read_log(spark, [path], ("lsn",)).count()
    took: list[float] = []
    speeds: list[float] = []
    # The first run compiles and is not counted.
    for number in range(bench.runs + 1):
        started = time.perf_counter()
        query = start(spark, path, bench.home / f"{name[:6]}{number}", availableNow=True)
        query.awaitTermination()
        took.append(time.perf_counter() - started)
        done = [one for one in query.recentProgress if one["numInputRows"]]
        speeds.append(records / sum(one["durationMs"]["triggerExecution"] for one in done) * 1e3)
    bench.samples |= {f"{name} s": took, f"{name} rows/s": speeds}
    speed = statistics.median(speeds[1:]) / 1e6
    row = Row("stream", f"to Parquet, {BATCH:,} a batch, {name}", f"{speed:.2f} M rows/s")
    row.goals = [] if goal is None else [at_least(speed, goal, MILLIONS)]
    row.yardstick = f"{statistics.median(took[1:]):.1f} s with the query's start and end"
    bench.rows.append(row)


def floor_of(bench: Bench, spark: Any) -> list[int]:
    """Milliseconds of small batches, one after the other; the first two are not counted."""
    maker = LogMaker(bench.home / "small")
    maker.open_term()
    tube = maker.tube("q")
    query = query_of(spark, str(maker.directory), bench.home / "floor", processingTime="0 seconds")
    took: list[int] = []
    try:
        for number in range(FLOOR_BATCHES + 2):
            maker.put(tube, number)
            maker.turn()
            maker.commit()
            query.processAllAvailable()
            done = [one for one in query.recentProgress if one["numInputRows"]]
            took.append(int(done[-1]["durationMs"]["triggerExecution"]))
    finally:
        query.stop()
        maker.close()
    return took[2:]


def write_live(directory: Path, operations: int, seconds: float) -> None:
    """Write so many operations a second, as a process of its own; ends with a line of JSON."""
    maker = LogMaker(directory, segment_bytes=32 << 20)
    maker.open_term()
    began = time.monotonic()
    for step in range(1, int(seconds * 20) + 1):
        fill_more(maker, operations // 20)
        maker.log.sync()
        time.sleep(max(0.0, began + step / 20 - time.monotonic()))
    took = time.monotonic() - began
    maker.close()
    print(json.dumps({"lsn": maker.log.last_lsn, "seconds": took}))


def fill_more(maker: LogMaker, operations: int) -> None:
    """Puts, takes and acks in equal parts, in turns of 100 tasks."""
    tube = maker.engine.tubes.get("orders") or maker.tube("orders")
    for start in range(0, operations // 3, 100):
        count = min(100, operations // 3 - start)
        for number in range(count):
            maker.put(tube, {"n": number, "body": "x" * 40})
        maker.turn()
        taken = [maker.take(tube) for _ in range(count)]
        maker.turn()
        for task in taken:
            assert task is not None
            tube.ack(maker.clients[1], task)
        maker.turn()


def live(bench: Bench) -> None:
    """Follow a log that grows by 20,000 operations a second; how far behind at its end."""
    directory = bench.home / "live"
    words = [str(directory), str(LIVE_RATE), str(LIVE_SECONDS)]
    with bench.spark() as spark:
        warm = bench.log(20_000)
        query_of(spark, warm, bench.home / "warm", availableNow=True).awaitTermination()
        command = [sys.executable, "-m", "benchmarks.pipeline_stream", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            while not list(directory.glob("*.wal")):
                time.sleep(0.05)
            query = query_of(spark, str(directory), bench.home / "out", processingTime="0 seconds")
            written = json.loads(writer.communicate()[0])
        ended = time.perf_counter()
        last = written["lsn"]
        seen = [one for one in query.recentProgress if one["numInputRows"]]
        there = seen[-1]["sources"][0]["endOffset"] if seen else '{"lsn": 0}'
        behind = last - json.loads(there)["lsn"] if isinstance(there, str) else last - there["lsn"]
        query.processAllAvailable()
        caught_up = time.perf_counter() - ended
        query.stop()
        rows = spark.read.parquet(str(bench.home / "out" / "data")).select("lsn").distinct().count()
    if rows != last:
        raise RuntimeError(f"{last} records were written and {rows} came out of the stream")
    written_rate = last / written["seconds"]
    bench.samples["live"] = {"behind": behind, "caught_up_s": caught_up, **written}
    name = f"{LIVE_SECONDS} s of a growing log"
    row = Row("stream", name, f"{behind / written_rate:.1f} s behind at its end")
    row.yardstick = f"written at {rate(written_rate)}, all read {caught_up:.1f} s later"
    # A reader slower than the writer would be behind by a part of all the time.
    row.goals = [at_most(caught_up, 3.0, " s to the end")]
    bench.rows.append(row)


async def put_alone(port: int, tube: str, rows: int) -> float:
    """Tasks a second of one process that only puts: the same payloads, frames and window."""
    import asynctnt

    connection = asynctnt.Connection(host="127.0.0.1", port=port, fetch_schema=False)
    await connection.connect()
    waiting: deque[asyncio.Future[Any]] = deque()
    started = time.perf_counter()
    for start in range(0, rows, FRAME_ROWS):
        frame = [[{"n": n, "body": BODY}, {}] for n in range(start, start + FRAME_ROWS)]
        call = connection.call(f"queue.tube.{tube}:put_many", [frame])
        waiting.append(asyncio.ensure_future(call))
        if len(waiting) >= WINDOW:
            await waiting.popleft()
    await asyncio.gather(*waiting)
    taken = time.perf_counter() - started
    await connection.disconnect()
    return rows / taken


def sink(bench: Bench) -> None:
    """Rows of a DataFrame into a tube beside put_many alone, in turns, against one node."""
    asyncio.run(_sink(bench))


async def _sink(bench: Bench) -> None:
    # The node keeps them all: what is put in every run stays there.
    rows = max(min(bench.operations // 2, SINK_ROWS_MAX) // FRAME_ROWS, 1) * FRAME_ROWS
    ours: list[float] = []
    alone: list[float] = []
    with bench.spark() as spark:
        async with AsyncNodeProcess(bench.home / "node", wal_mode="write") as node:
            await _create(node.port, "warm")
            _write(spark, rows // 10, node, "warm")
            for number in range(bench.runs):
                await _create(node.port, f"alone{number}")
                alone.append(await put_alone(node.port, f"alone{number}", rows))
                await _create(node.port, f"sink{number}")
                ours.append(_write(spark, rows, node, f"sink{number}"))
    bench.samples["sink"], bench.samples["put_many alone"] = ours, alone
    us, them = statistics.median(ours), statistics.median(alone)
    row = Row("sink", f"{rows:,} rows to one tube", rate(us))
    row.yardstick = f"put_many alone {rate(them)}"
    row.goals = [at_least(us / them, 0.5, "x of put_many")]
    bench.rows.append(row)


async def _create(port: int, tube: str) -> None:
    import asynctnt

    connection = asynctnt.Connection(host="127.0.0.1", port=port, fetch_schema=False)
    await connection.connect()
    await connection.call("queue.create_tube", [tube, "fifo"])
    await connection.disconnect()


def _write(spark: Any, rows: int, node: AsyncNodeProcess, tube: str) -> float:
    """Tasks a second of the sink, with the job's start in it."""
    frame = spark.range(rows, numPartitions=2).selectExpr("id as n", f"'{BODY}' as body")
    writer = frame.write.format("tandemq").mode("append").option("tube", tube)
    writer = writer.option("frameRows", FRAME_ROWS).option("window", WINDOW)
    started = time.perf_counter()
    writer.option("servers", f"127.0.0.1:{node.port}").save()
    return rows / (time.perf_counter() - started)


if __name__ == "__main__":
    write_live(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
