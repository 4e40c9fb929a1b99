"""The stream: offsets without Spark over rolls, rewinds and trims; a real query to the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from benchmarks.logmaker import LogMaker, fill
from tandemq.model.errors import StorageError
from tandemq.spark import options as opt
from tandemq.spark.columns import ALL
from tandemq.spark.stream import LogStreamReader


def reader(path: Path, **more: str) -> LogStreamReader:
    values = opt.parse("tandemq_log", opt.LOG_OPTIONS, {"path": str(path), **more})
    return LogStreamReader(values, ALL)


def rows_between(one: LogStreamReader, start: Any, end: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in one.partitions(start, end):
        for batch in one.read(partition):
            found += batch.to_pylist()
    return found


def drain(one: LogStreamReader, start: Any, limit: int = 100) -> tuple[Any, list[dict[str, Any]]]:
    """Micro-batches until nothing is new, each planned twice as after a restart."""
    rows: list[dict[str, Any]] = []
    while (end := one.latestOffset(start, ReadMaxRows(limit))) != start:
        end = json.loads(json.dumps(end))
        batch = rows_between(one, start, end)
        again = reader(Path(one.paths[0]))
        assert rows_between(again, start, end) == batch
        assert len({row["lsn"] for row in batch if not row["retracted"]}) <= limit
        rows += batch
        start = end
    return start, rows


def keyed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["term"], row["lsn"], row["task_id"], row["operation"]) for row in rows]


def whole(path: Path) -> list[dict[str, Any]]:
    one = reader(path)
    return rows_between(one, {"term": "", "lsn": 0}, one._newest() if one.files.live else _end(one))


def _end(one: LogStreamReader) -> Any:
    one.files.refresh()
    return one._newest()


def test_a_growing_log_is_read_once_over_rolls(maker: LogMaker) -> None:
    one = reader(maker.directory)
    start = one.initialOffset()
    rows: list[dict[str, Any]] = []
    for number in range(3):
        tube = maker.tube(f"q{number}")
        for value in range(120):
            maker.put(tube, {"n": value, "body": "x" * 100})
            maker.turn()
        start, more = drain(one, start)
        rows += more
    assert len(list(maker.directory.glob("*.wal"))) > 2
    assert keyed(rows) == keyed(whole(maker.directory))
    assert len({row["lsn"] for row in rows}) == maker.log.last_lsn
    assert not any(row["retracted"] for row in rows)


def test_a_rewind_retracts_what_was_emitted_and_follows_the_winner(maker: LogMaker) -> None:
    tube = maker.tube("q")
    for value in range(50):
        maker.put(tube, value)
        maker.turn()
    one = reader(maker.directory)
    start, rows = drain(one, one.initialOffset())
    fork = maker.log.last_lsn - 9
    parent = maker.term.id
    maker.log.truncate_from(fork + 1)
    assert one.latestOffset(start, ReadMaxRows(100)) == start, "what wins is not here yet"
    maker.open_term(3, "b", parent)
    for value in range(1000, 1020):
        maker.put(tube, value)
        maker.turn()
    _, more = drain(one, start)
    retracted = [row for row in more if row["retracted"]]
    assert keyed(retracted) == keyed(rows[-9:])
    assert all(row["rescue"] for row in retracted)
    left = [row for row in rows if row["lsn"] <= fork]
    assert keyed(left + [row for row in more if not row["retracted"]]) == keyed(
        whole(maker.directory)
    )
    for path in (maker.directory / "rescue").iterdir():
        path.unlink()
    with pytest.raises(StorageError, match=r"LSN \d+ is of term 03.*, and no rescue file has it"):
        fresh = reader(maker.directory)
        fresh.files.refresh()
        fresh.latestOffset(start, ReadMaxRows(100))


def test_a_trimmed_log_names_the_gap(maker: LogMaker) -> None:
    fill(maker, 2000)
    one = reader(maker.directory)
    start = one.initialOffset()
    start = one.latestOffset(start, ReadMaxRows(50))
    first = sorted(maker.directory.glob("*.wal"))[3]
    maker.log.trim(int(first.stem))
    with pytest.raises(
        StorageError, match=rf"LSN 51 up to {int(first.stem) - 1} were trimmed before"
    ):
        one.latestOffset(start, ReadMaxRows(50))
    begun = reader(maker.directory)
    assert begun.initialOffset()["lsn"] == int(first.stem) - 1
    late = reader(maker.directory, startingLsn="latest")
    assert late.initialOffset()["lsn"] == maker.log.last_lsn


def test_a_query_is_restarted_from_its_checkpoint(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 1500)

    def run() -> None:
        query = (
            spark.readStream.format("tandemq_log")
            .option("maxRecordsPerBatch", "700")
            .option("columns", "lsn,term,tube,task_id,operation,retracted")
            .load(str(maker.directory))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(120)

    run()
    tube = maker.engine.tubes["orders"]
    for value in range(300):
        maker.put(tube, value)
        maker.turn()
    run()
    out = spark.read.parquet(str(tmp_path / "out"))
    log = spark.read.format("tandemq_log").load(str(maker.directory))
    columns = ["lsn", "term", "tube", "task_id", "operation", "retracted"]
    assert out.count() == log.count()
    assert out.exceptAll(log.select(*columns)).count() == 0
