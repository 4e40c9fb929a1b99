"""History, audit and compaction over logs of the real engine, and violations planted one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.logmaker import START_US, LogMaker, fill
from engine.tube import Tube
from model import record as rec
from pipeline import audit, checks, compact, history, report
from pipeline.events import NEEDED, events, one_lineage, read_log


def judged(spark: Any, *paths: Path, clients: Any = None) -> audit.Verdict:
    log = read_log(spark, list(map(str, paths)), audit.columns(), rescue="true", mode="PERMISSIVE")
    return audit.judge(log, clients)


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
    happened = events(one_lineage(read_log(spark, [str(maker.directory)], NEEDED)))
    rows = [
        (row["task"], row["attempt"], row["waited_us"], row["ran_us"], row["outcome"])
        for row in history.deliveries(happened).orderBy("task", "attempt").collect()
    ]
    assert rows == [
        (0, 1, 5_000, 7_000, "released"),
        (0, 2, 11_000, 13_000, "acked"),
        (1, 1, 23_000, 13_000, "buried"),
    ]
    tasks = {row["task"]: row for row in history.tasks(happened).collect()}
    assert tasks[0]["outcome"] == "acked"
    assert (tasks[0]["attempts"], tasks[0]["retries"], tasks[0]["ran_us"]) == (2, 1, 20_000)
    assert tasks[0]["put_us"] >= START_US
    assert tasks[1]["outcome"] == "buried"


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


def plant(maker: LogMaker, tube: Tube, what: str) -> None:
    """One violation, written as no engine would."""
    sid, now = tube.space.id, maker.engine.now
    one, two = b"1" * 16, b"2" * 16
    put = (rec.INSERT, sid, [900, "r", b"\x01"])
    take = (rec.SET, sid, 900, 1, "t")
    gone = (rec.DELETE, sid, 900)
    records: dict[str, list[tuple[int, Any, Any]]] = {
        "put_twice": [(rec.KIND_PUT, one, put), (rec.KIND_PUT, one, put)],
        "unknown_task": [(rec.KIND_TAKE, one, take)],
        "vanished": [(rec.KIND_PUT, one, put), (rec.KIND_TAKE, one, gone)],
        "double_ack": [
            (rec.KIND_PUT, one, put),
            (rec.KIND_TAKE, one, take),
            (rec.KIND_ACK, one, gone),
            (rec.KIND_ACK, one, gone),
        ],
        "revived": [
            (rec.KIND_PUT, one, put),
            (rec.KIND_DELETE, one, gone),
            (rec.KIND_TAKE, one, take),
        ],
        "two_holders": [
            (rec.KIND_PUT, one, put),
            (rec.KIND_TAKE, one, take),
            (rec.KIND_TAKE, two, take),
        ],
        "not_held": [(rec.KIND_PUT, one, put), (rec.KIND_ACK, one, gone)],
        "ack_by_other": [
            (rec.KIND_PUT, one, put),
            (rec.KIND_TAKE, one, take),
            (rec.KIND_ACK, two, gone),
        ],
    }
    maker.write([(now, kind, session, [op]) for kind, session, op in records[what]])


def test_audit_finds_each_planted_violation_and_nothing_else(spark: Any, tmp_path: Path) -> None:
    """Each fault in a tube of its own, all in one log; then those that are about the log itself."""
    maker = LogMaker(tmp_path / "a", segment_bytes=9_000)
    maker.open_term()
    fill(maker, 600)
    names = [
        "put_twice", "unknown_task", "vanished", "double_ack", "revived", "two_holders",
        "not_held", "ack_by_other",
    ]  # fmt: skip
    for name in names:
        plant(maker, maker.tube(name), name)
    ttl = maker.tube("too_early", "fifottl", ttl=60)
    sub = maker.tube("utube_overlap", "utube")
    plain = maker.tube("order_break")
    now = maker.engine.now
    row = [5, "r", now + 60_000_000, 60_000_000, 60_000_000, 0, now, b"\x01"]
    maker.write([
        (now, rec.KIND_PUT, None, [(rec.INSERT, ttl.space.id, row)]),
        (now + 1, rec.KIND_TTL, None, [(rec.DELETE, ttl.space.id, 5)]),
    ])  # fmt: skip
    one = b"1" * 16
    in_sub = [[0, "r", "u", b""], [1, "r", "u", b""]]
    in_plain = [[0, "r", b""], [1, "r", b""]]
    sid = sub.space.id
    maker.write([
        (now + 2, rec.KIND_PUT_MANY, None, [(rec.INSERT_MANY, sid, in_sub)]),
        (now + 2, rec.KIND_TAKE, one, [(rec.SET, sid, 0, 1, "t")]),
        (now + 2, rec.KIND_TAKE, one, [(rec.SET, sid, 1, 1, "t")]),
    ])  # fmt: skip
    sid = plain.space.id
    maker.write([
        (now + 3, rec.KIND_PUT_MANY, None, [(rec.INSERT_MANY, sid, in_plain)]),
        (now + 3, rec.KIND_TAKE, one, [(rec.SET, sid, 1, 1, "t")]),
        (now + 3, rec.KIND_TAKE, one, [(rec.SET, sid, 0, 1, "t")]),
        (now + 2, rec.KIND_NOOP, None, []),
    ])  # fmt: skip
    # A term whose parent is nobody: written into a log that had forgotten the one before.
    maker.engine.now += 1000
    number, term_id = maker.term[0], maker.term[1]
    fork = (rec.TERM, number + 1, b"f" * 16, b"?" * 16, maker.log.last_lsn + 1, "x", False)
    maker.write([(maker.engine.now, rec.KIND_TERM, None, [fork])])
    assert term_id != fork[2]
    maker.close()
    clients = spark.createDataFrame(
        [("p1", "put", "orders", 0, "ok"), ("p1", "put", "orders", 10**6, "ok")],
        "process string, f string, tube string, task_id bigint, outcome string",
    )
    found = judged(spark, maker.directory, clients=clients)
    names += ["too_early", "utube_overlap", "order_break", "clock", "forked_lineage", "lost_put"]
    assert found.broken == dict.fromkeys([name for name in audit.CHECKS if name in names], 1)
    for row in found.rows:
        assert row["tube"] in (row["check"], None) or row["check"] == "lost_put"
        assert row["evidence"]
    middle = sorted(maker.directory.glob("*.wal"))[1]
    middle.unlink()
    kept = read_log(spark, [str(maker.directory)], audit.columns(), mode="PERMISSIVE")
    assert [row["check"] for row in checks.check_lsns(kept).collect()].count("lsn_gap") == 1
    told = kept.where("operation = 'damaged'").collect()
    assert [row["detail"] for row in told if "are missing" in row["detail"]]


def test_nodes_that_differ_are_told_apart(spark: Any, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 1)):
        maker = LogMaker(tmp_path / name, node=ord(name), seed=seed)
        maker.open_term()
        fill(maker, 300)
        tube = maker.engine.tubes["orders"]
        maker.put(tube, "same" if name != "c" else "another")
        maker.turn()
        maker.close()
    clean = judged(spark, tmp_path / "a", tmp_path / "b")
    assert clean.ok, clean.rows
    counts = clean.counts
    assert counts["acked"] > 80
    assert counts["tasks"] == sum(
        counts[name]
        for name in ("acked", "deleted", "expired", "dead", "finished", "moved", "still_there")
    ) + sum(counts[name] for name in ("buried", "taken", "other"))
    found = judged(spark, tmp_path / "a", tmp_path / "c")
    assert found.broken == {"nodes_differ": 1}


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
    counts = report.run(spark, [str(maker.directory)], str(tmp_path / "out"), "kind")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<svg") == 5
    assert "src=" not in page
    assert "<link" not in page
    rates = pq.read_table(tmp_path / "out" / "throughput.parquet").to_pandas()
    assert rates["puts"].sum() == 20
    assert rates["takes"].sum() == 10
    assert rates["run_p50_ms"].max() == 1000
    stock = pq.read_table(tmp_path / "out" / "backlog.parquet").to_pandas()
    assert list(stock["backlog"]) == [6, 12, 18, 15]
    failing = pq.read_table(tmp_path / "out" / "failing.parquet").to_pylist()
    assert failing == [{"tube": "q", "key": "odd", "failures": 5, "tasks": 5}]
    assert counts["workers"] == 1


def test_an_archive_and_the_live_log_read_as_one(
    spark: Any, maker: LogMaker, tmp_path: Path
) -> None:
    fill(maker, 1200)
    before = sorted(map(str, read_log(spark, [str(maker.directory)]).drop("segment").collect()))
    archive = tmp_path / "archive"
    done = compact.run(spark, [str(maker.directory)], str(archive))
    assert done[str(maker.directory)]["records"] > 500
    maker.log.trim(done[str(maker.directory)]["to_lsn"] + 1)
    both = read_log(spark, [str(archive), str(maker.directory)])
    assert sorted(map(str, both.drop("segment").collect())) == before
    fill_more = maker.engine.tubes["orders"]
    for number in range(300):
        maker.put(fill_more, "x" * 100 + str(number))
        maker.turn()
    maker.close()
    again = compact.run(spark, [str(maker.directory)], str(archive))
    assert again[str(maker.directory)]["records"] > 0
    both = read_log(spark, [str(archive), str(maker.directory)])
    assert both.select("lsn").distinct().count() == maker.log.last_lsn
    narrow = read_log(spark, [str(archive)], ["lsn"], fromLsn=10, toLsn=19, tubes="orders")
    wanted = both.where("lsn between 10 and 19 and tube = 'orders'")
    assert narrow.count() == wanted.count() > 0
