"""History, audit and compaction over logs of the real engine, and violations planted one by one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from benchmarks.logmaker import START_US, LogMaker, fill
from tandemq.pipeline import compact, history
from tandemq.pipeline.events import read_log, survey, survey_frame
from tandemq.pipeline.packing import NEEDED
from tandemq.pipeline.session import build_session
from tandemq.spark.logs import ARCHIVE_MARK
from tests.spark.report_engines import report_by_both


def test_history_tells_how_each_delivery_went(spark: Any, maker: LogMaker) -> None:
    tube = maker.tube("q", "fifottl", ttr=60)
    worker = maker.clients[1]
    maker.put(tube, "a", pri=1)
    maker.put(tube, "b", pri=2)
    maker.turn(5_000)
    maker.take(tube)
    maker.turn(7_000)
    tube.release(worker, 0)
    maker.turn(11_000)
    maker.take(tube)
    maker.take(tube)
    maker.turn(13_000)
    tube.ack(worker, 0)
    tube.bury(worker, 1)
    maker.turn()
    maker.close()
    log = read_log(spark, [str(maker.directory)], NEEDED)
    for surveyed in (survey(spark, [str(maker.directory)]), survey_frame(log)):
        with surveyed as seen:
            given = history.deliveries(seen).orderBy("task", "attempt").collect()
            tasks = {row["task"]: row for row in history.tasks(seen).collect()}
        rows = [
            (row["task"], row["attempt"], row["waited_us"], row["ran_us"], row["outcome"])
            for row in given
        ]
        assert rows == [
            (0, 1, 5_000, 7_000, "released"),
            (0, 2, 11_000, 13_000, "acked"),
            (1, 1, 23_000, 13_000, "buried"),
        ]
        assert tasks[0]["outcome"] == "acked"
        assert (tasks[0]["attempts"], tasks[0]["retries"], tasks[0]["ran_us"]) == (2, 1, 20_000)
        assert tasks[0]["put_us"] >= START_US
        assert tasks[1]["outcome"] == "buried"


def test_a_connect_server_that_is_not_there_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"sc://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(RuntimeError, match=f"no Spark Connect server at {url}: .* refused"):
            build_session(url)


def test_history_run_by_run_equals_history_at_once(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 900)
    first = history.run(spark, [str(maker.directory)], str(tmp_path / "steps"))
    tube = maker.engine.tubes["orders"]
    for number in range(60):
        maker.put(tube, number)
        task = maker.take(tube)
        tube.ack(maker.clients[1], task)
        maker.turn()
    tube.truncate(maker.clients[0])
    maker.turn()
    maker.close()
    second = history.run(spark, [str(maker.directory)], str(tmp_path / "steps"))
    once = history.run(spark, [str(maker.directory)], str(tmp_path / "once"))
    assert second["from_lsn"] == first["to_lsn"] + 1
    assert first["tasks"] + second["tasks"] == once["tasks"] > 300
    for table in ("tasks", "deliveries"):
        steps, whole = (
            sorted(
                str({key: value for key, value in row.items() if key != "run"})
                for row in pq.read_table(tmp_path / run / table).to_pylist()
            )
            for run in ("steps", "once")
        )
        assert steps == whole
    idle = history.run(spark, [str(maker.directory)], str(tmp_path / "steps"))
    assert idle["tasks"] == 0


def test_report_is_one_page_with_the_numbers(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    tube = maker.tube("q")
    worker = maker.clients[1]
    for number in range(20):
        maker.put(tube, {"kind": "odd" if number % 2 else "even"})
        maker.turn(600_000_000)
    for number in range(10):
        task = maker.take(tube)
        maker.turn(1_000_000)
        if number % 2:
            tube.bury(worker, task)
        else:
            tube.ack(worker, task)
        maker.turn(1_000_000)
    maker.close()
    out, log = str(tmp_path / "out"), [str(maker.directory)]
    counts = report_by_both(spark, log, out, "kind")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.html",
        *(f"{name}.{kind}" for name in set(counts) - {"page"} for kind in ("csv", "parquet")),
    }
    # From a history's tables: brought up to date, and kept.
    home = tmp_path / "history"
    assert report_by_both(spark, log, str(tmp_path / "again"), "kind", str(home))["workers"] == 1
    assert history.run(spark, log, str(home))["tasks"] == 0
    for name in ("throughput", "backlog", "workers", "outcomes", "failing"):
        again = pq.read_table(tmp_path / "again" / f"{name}.parquet")
        assert again.equals(pq.read_table(tmp_path / "out" / f"{name}.parquet"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "data-figure='puts' data-value='5'" in page
    assert "<link" not in page
    rates = pq.read_table(tmp_path / "out" / "throughput.parquet").to_pandas()
    assert rates["puts"].sum() == 20
    assert rates["takes"].sum() == 10
    assert rates["run_p50_ms"].max() == 1000
    stock = pq.read_table(tmp_path / "out" / "backlog.parquet").to_pandas()
    # One put in ten minutes, told by five of them; then ten tasks in half a minute, five stay.
    assert list(stock["backlog"][:6]) == [1, 1, 2, 2, 3, 3]
    assert stock["backlog"].iloc[-1] == 15
    made = pq.read_table(tmp_path / "out" / "periods.parquet").to_pandas().set_index("period")
    assert made.loc[0, ["puts", "left", "failed", "there_before", "there_after"]].tolist() == [
        *(5, 5, 5, 15, 15)
    ]
    failing = pq.read_table(tmp_path / "out" / "failing.parquet").to_pylist()
    assert failing == [{"tube": "q", "key": "odd", "failures": 5, "tasks": 5}]
    assert counts["workers"] == 1


def test_a_log_without_a_record_has_an_empty_report(spark: Any, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / ARCHIVE_MARK).write_text('{"version": 1}')
    counts = report_by_both(spark, [str(archive)], str(tmp_path / "out"))
    assert {count for name, count in counts.items() if name != "page"} == {0}
    assert "The log has no task." in (tmp_path / "out" / "report.html").read_text()


def test_a_report_of_two_nodes_counts_what_failed_once(spark: Any, tmp_path: Path) -> None:
    paths = []
    for node in "ab":
        maker = LogMaker(tmp_path / node, node=ord(node), seed=1)
        maker.open_term()
        tube = maker.tube("q")
        maker.put(tube, "bad")
        maker.turn()
        tube.release(maker.clients[1], maker.take(tube), None)
        maker.turn()
        maker.close()
        paths.append(str(maker.directory))
    report_by_both(spark, paths, str(tmp_path / "out"))
    failing = pq.read_table(tmp_path / "out" / "failing.parquet").to_pylist()
    assert failing == [{"tube": "q", "key": '"bad"', "failures": 1, "tasks": 1}]


def test_an_archive_and_the_live_log_read_as_one(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 1200)
    before = sorted(map(str, read_log(spark, [str(maker.directory)]).drop("segment").collect()))
    archive = tmp_path / "archive"
    done = compact.run(spark, [str(maker.directory)], str(archive))
    node, records, _, sealed = done[str(maker.directory)].values()
    assert records > 500
    files = sorted(archive.glob("node=*/lsn=*/*"))
    assert [path.suffix for path in files] == [".parquet"] * len(files)
    written = sum(pq.read_metadata(path).num_rows for path in files)
    assert written == done[str(maker.directory)]["rows"] > 500
    # The jobs read them as one, too; what is archived is not looked at where it was.
    texts = []
    for name, paths in (("log", [maker.directory]), ("both", [archive, maker.directory])):
        home = tmp_path / name
        report_by_both(spark, list(map(str, paths)), str(home), history=str(home / "history"))
        texts.append([path.read_text() for path in sorted(home.glob("*.csv"))])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 10
    maker.log.trim(done[str(maker.directory)]["to_lsn"] + 1)
    both = read_log(spark, [str(archive), str(maker.directory)])
    assert sorted(map(str, both.drop("segment").collect())) == before
    fill_more = maker.engine.tubes["orders"]
    maker.commit()
    committed = maker.log.last_lsn
    for number in range(300):
        maker.put(fill_more, "x" * 100 + str(number))
        maker.turn()
        if number == 0:
            # Of the open segment what is committed, and not again what is there.
            for records in (committed - sealed, 0):
                done = compact.run(spark, [str(maker.directory)], str(archive), include_open=True)
                found = done[str(maker.directory)]
                assert (found["node"], found["records"]) == (node, records)
                assert found["to_lsn"] == committed
    maker.close()
    again = compact.run(spark, [str(maker.directory)], str(archive))
    assert again[str(maker.directory)]["records"] > 0
    both = read_log(spark, [str(archive), str(maker.directory)])
    lsns = both.agg(F.count_distinct("lsn"), F.max("lsn")).first()
    assert tuple(lsns) == (maker.log.last_lsn, maker.log.last_lsn)
    alone = read_log(spark, [str(maker.directory)], fromLsn=committed)
    assert both.where(f"lsn >= {committed}").count() == alone.count() == 301
    narrow = read_log(spark, [str(archive)], ["lsn"], fromLsn=10, toLsn=19, tubes="orders")
    wanted = both.where("lsn between 10 and 19 and tube = 'orders'")
    assert narrow.count() == wanted.count() > 0


def test_an_archive_of_two_nodes_has_each_ones_rows_once(spark: Any, tmp_path: Path) -> None:
    paths = []
    for node in "ab":
        maker = LogMaker(tmp_path / node, node=ord(node), seed=1)
        maker.open_term()
        maker.put(maker.tube("q"), "x")
        maker.turn()
        # What is sealed can be compacted.
        maker.open_term(2)
        maker.close()
        paths.append(str(maker.directory))
    archive = tmp_path / "archive"
    compact.run(spark, paths, str(archive))
    for file in archive.rglob("*.parquet"):
        nodes = {row["node"] for row in pq.ParquetFile(file).read(["node"]).to_pylist()}
        assert nodes == {file.parts[-3].removeprefix("node=")}
    rows = read_log(spark, [str(archive)], ["lsn", "node"])
    assert rows.count() == rows.distinct().count() > 0
