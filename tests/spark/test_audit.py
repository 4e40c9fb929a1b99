"""The audit on logs of the real engine: quiet on sound ones, one finding for each planted fault."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from pyspark.sql import functions as F

from benchmarks.logmaker import LogMaker, fill
from tandemq.model import record as rec
from tandemq.pipeline import audit, checks, compact
from tandemq.pipeline.events import read_log
from tandemq.pipeline.judge import outputs
from tandemq.pipeline.judge.rules.catalogue import BY_NAME
from tandemq_server.engine.tube import EngineTube

ONE, TWO = b"1" * 16, b"2" * 16
PUT, TAKE = rec.KIND_PUT, rec.KIND_TAKE
Records = list[tuple[int, Any, Any]]


def test_a_damaged_archive_is_a_finding_not_an_end(spark: Any, tmp_path: Path) -> None:
    maker = LogMaker(tmp_path / "a", segment_bytes=16_384)
    maker.open_term()
    fill(maker, 1200)
    maker.close()
    archive = tmp_path / "archive"
    compact.run(spark, [str(maker.directory)], str(archive))
    paths = [str(archive), str(maker.directory)]
    assert audit.run(spark, paths).ok
    part = sorted(archive.glob("node=*/lsn=*/*.parquet"))[0]
    data = bytearray(part.read_bytes())
    data[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    part.write_bytes(data)
    verdict = audit.run(spark, paths)
    assert verdict.broken["damaged"] == 1
    assert part.name in next(row["evidence"] for row in verdict.rows if row["check"] == "damaged")


def log_of(spark: Any, *paths: Path) -> Any:
    names = list(map(str, paths))
    return read_log(spark, names, audit.columns(), rescue="true", mode="PERMISSIVE")


# -- faults of tasks: each in a tube of its own, all in one log ------------------------------------


def about_a_task(what: str) -> Callable[[EngineTube, int], Records]:
    """Records about task 900 of a plain tube, written as no engine would."""

    def records(tube: EngineTube, now: int) -> Records:
        sid = tube.space.id
        put = (PUT, ONE, (rec.INSERT, sid, [900, "r", b"\x01"]))
        take = (TAKE, ONE, (rec.SET, sid, 900, 1, "t"))
        gone = (rec.DELETE, sid, 900)
        ack = (rec.KIND_ACK, ONE, gone)
        found = {
            "put_twice": [put, put],
            "unknown_task": [take],
            "vanished": [put, (TAKE, ONE, gone)],
            "double_ack": [put, take, ack, ack],
            "revived": [put, (rec.KIND_DELETE, ONE, gone), take],
            "two_holders": [put, take, (TAKE, TWO, take[2])],
            "not_held": [put, ack],
            "ack_by_other": [put, take, (rec.KIND_ACK, TWO, gone)],
        }
        return [(now, kind, session, [op]) for kind, session, op in found[what]]  # type: ignore[misc]

    return records


def expired_early(tube: EngineTube, now: int) -> Records:
    row = [900, "r", now + 60_000_000, 60_000_000, 60_000_000, 0, now, b"\x01"]
    return [
        (now, PUT, None, [(rec.INSERT, tube.space.id, row)]),
        (now + 1, rec.KIND_TTL, None, [(rec.DELETE, tube.space.id, 900)]),
    ]


def two_of_one_host(tube: EngineTube, now: int) -> Records:
    sid = tube.space.id
    rows = [[task, "r", "u", b""] for task in (899, 900)]
    return [
        (now, rec.KIND_PUT_MANY, None, [(rec.INSERT_MANY, sid, rows)]),
        *((now, TAKE, ONE, [(rec.SET, sid, task, 1, "t")]) for task in (899, 900)),
    ]


def second_before_first(tube: EngineTube, now: int) -> Records:
    sid = tube.space.id
    rows = [[task, "r", b""] for task in (900, 901)]
    return [
        (now, rec.KIND_PUT_MANY, None, [(rec.INSERT_MANY, sid, rows)]),
        *((now, TAKE, ONE, [(rec.SET, sid, task, 1, "t")]) for task in (901, 900)),
    ]


OF_TASKS: dict[str, tuple[str, Callable[[EngineTube, int], Records]]] = {
    **{
        name: ("fifo", about_a_task(name))
        for name in (
            "put_twice", "unknown_task", "vanished", "double_ack", "revived", "two_holders",
            "not_held", "ack_by_other",
        )
    },
    "too_early": ("fifottl", expired_early),
    "utube_overlap": ("utube", two_of_one_host),
    "order_break": ("fifo", second_before_first),
}  # fmt: skip
OF_CLIENTS = ("lost_put", "undone_put", "other_payload")


@pytest.fixture(scope="module")
def planted_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """(a log with faults of tasks; the id of a task whose put a rewind undid)."""
    maker = LogMaker(tmp_path_factory.mktemp("planted") / "a")
    maker.open_term()
    fill(maker, 400)
    for name, (kind, make) in OF_TASKS.items():
        opts = {"ttl": 60} if kind == "fifottl" else {}
        maker.write(make(maker.tube(name, kind, **opts), maker.engine.now))
        maker.engine.now += 10
    for _ in range(2):
        maker.put(maker.engine.tubes.get("told") or maker.tube("told"), {"n": 1})
    maker.turn()
    # A put that was answered and then cut off by another node's term.
    fork = maker.log.last_lsn
    tube, parent = maker.engine.tubes["orders"], maker.term.id
    undone = maker.put(tube, "cut")
    maker.turn()
    maker.log.truncate_from(fork + 1)
    maker.open_term(3, "b", parent)
    maker.close()
    return maker.directory, undone


@pytest.fixture(scope="module")
def planted(spark: Any, planted_log: tuple[Path, Any]) -> audit.SparkVerdict:
    directory, undone = planted_log
    right, wrong = (
        hashlib.sha256(msgpack.packb(value)).hexdigest() for value in ({"n": 1}, {"n": 2})
    )
    told = [
        ("orders", 0, None),
        ("orders", 10**6, right),
        ("orders", undone, right),
        ("told", 0, right.upper()),
        ("told", 1, wrong),
    ]
    clients = spark.createDataFrame(
        [("p1", "put", tube, task, "ok", digest) for tube, task, digest in told],
        "process string, f string, tube string, task_id bigint, outcome string, digest string",
    )
    return audit.judge(log_of(spark, directory), clients)


@pytest.mark.parametrize("name", OF_TASKS)
def test_a_fault_of_a_task_is_found_with_its_evidence(
    planted: audit.SparkVerdict, name: str
) -> None:
    (row,) = [row for row in planted.rows if row["check"] == name]
    assert (row["tube"], row["task"]) == (name, 900)
    assert row["lsn"] > 400
    assert row["evidence"]


def test_what_clients_were_told_and_the_log_lacks(planted: audit.SparkVerdict) -> None:
    found = {row["check"]: row for row in planted.rows if row["check"] in OF_CLIENTS}
    assert found["lost_put"]["task"] == 10**6
    assert found["undone_put"]["lsn"] is not None
    assert "p1" in found["undone_put"]["evidence"]
    differs = found["other_payload"]
    assert (differs["tube"], differs["task"], differs["lsn"] > 400) == ("told", 1, True)
    digests = [hashlib.sha256(msgpack.packb({"n": n})).hexdigest() for n in (2, 1)]
    assert differs["evidence"] == f"told to process p1: {digests[0]}, the log has {digests[1]}"


def test_nothing_else_is_found(planted: audit.SparkVerdict) -> None:
    assert planted.broken == dict.fromkeys(
        [name for name in audit.CHECKS if name in (*OF_TASKS, *OF_CLIENTS)], 1
    )
    assert not planted.ok
    assert "two_holders 1" in planted.text()


# -- faults of the log -----------------------------------------------------------------------------


def noops(maker: LogMaker) -> Path:
    """Records about nothing, so many that whole segments hold nothing else; one such segment."""
    before = set(maker.directory.glob("*.wal"))
    while len(set(maker.directory.glob("*.wal")) - before) < 3:
        maker.write([(maker.engine.now, rec.KIND_NOOP, None, [])] * 20)
    return sorted(set(maker.directory.glob("*.wal")) - before)[0]


@pytest.fixture(scope="module")
def damaged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> audit.SparkVerdict:
    """Files changed behind the node's back, and records that no node would write."""
    maker = LogMaker(tmp_path_factory.mktemp("damaged") / "a", segment_bytes=16_384)
    maker.open_term()
    fill(maker, 60)
    missing, flipped = noops(maker), noops(maker)
    now = maker.engine.now
    maker.write([(now - 10**6, rec.KIND_NOOP, None, []), (now, rec.KIND_NOOP, None, [])])
    fork = (rec.TERM, 2, b"f" * 16, b"?" * 16, maker.log.last_lsn + 1, "x", False)
    maker.write([(now, rec.KIND_TERM, None, [fork])])
    # Cut off, and no other term came in its place.
    maker.write([(now, rec.KIND_NOOP, None, [])])
    maker.log.truncate_from(maker.log.last_lsn)
    maker.close()
    missing.unlink()
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(data)
    return audit.judge(log_of(spark, maker.directory))


@pytest.fixture(scope="module")
def edited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> audit.SparkVerdict:
    """What neither the log nor its reader would let happen: rows changed on their way."""
    maker = LogMaker(tmp_path_factory.mktemp("edited") / "a")
    maker.open_term()
    fill(maker, 60)
    maker.close()
    log, lsn = log_of(spark, maker.directory), F.col("lsn")
    log = log.withColumn("term", F.when(lsn < 3, 2).otherwise(F.col("term")))
    twice = log.where(lsn == 9).withColumns(
        {"term": F.lit(7), "task_id": F.lit(None), "operation": F.lit("noop")}
    )
    kept = log.where(lsn == 12).withColumn("rescue", F.lit(True))
    return audit.judge(log.unionByName(twice).unionByName(kept))


# Where bytes cannot be read, records are missing as well, and the other way round.
DAMAGED = {"damaged": 2, "lsn_gap": 2, "forked_lineage": 1, "clock": 1, "rescue_unaccounted": 1}
# A term that was not there before is also one that ends again.
EDITED = {"lsn_twice": 1, "term_order": 2, "rescue_kept": 1}


@pytest.mark.parametrize("name", [*DAMAGED, *EDITED])
def test_a_fault_of_the_log_is_found_with_its_evidence(
    request: pytest.FixtureRequest, name: str
) -> None:
    verdict = request.getfixturevalue("damaged" if name in DAMAGED else "edited")
    rows = [row for row in verdict.rows if row["check"] == name]
    assert len(rows) == (DAMAGED | EDITED)[name]
    for row in rows:
        assert row["evidence"]
        # Of a file that is not there nobody can say whose it was.
        assert row["node"] or "are missing" in row["evidence"]


def test_no_other_fault_of_the_log_is_found(
    damaged: audit.SparkVerdict, edited: audit.SparkVerdict
) -> None:
    assert damaged.broken == DAMAGED
    assert edited.broken == EDITED


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of nodes a, b and c; c's differs in one record."""
    home = tmp_path_factory.mktemp("three")
    for name in "abc":
        maker = LogMaker(home / name, node=ord(name), seed=1)
        maker.open_term()
        fill(maker, 300)
        maker.put(maker.engine.tubes["orders"], "same" if name != "c" else "another")
        maker.turn()
        maker.close()
    return home


def test_two_equal_logs_are_sound_and_every_task_is_counted(spark: Any, three: Path) -> None:
    clean = audit.judge(log_of(spark, three / "a", three / "b"))
    assert clean.ok, clean.rows
    counts = clean.counts
    assert (counts["nodes"], counts["acked"] > 80) == (2, True)
    ends = [
        "acked",
        "deleted",
        "expired",
        "dead",
        "finished",
        "moved",
        "still_there",
        "buried",
        "taken",
        "other",
    ]
    assert counts["tasks"] == sum(counts[name] for name in ends)


def test_tasks_whose_puts_left_the_log_are_not_taken_for_one_sub_queue(
    spark: Any, tmp_path: Path
) -> None:
    maker = LogMaker(tmp_path / "a")
    maker.open_term()
    tube = maker.tube("hosts", "utube")
    for number in range(3):
        maker.put(tube, number, utube=f"u{number}")
    maker.turn()
    puts = maker.log.last_lsn
    assert [maker.take(tube) for _ in range(3)] == [0, 1, 2]
    maker.turn()
    maker.close()
    verdict = audit.judge(log_of(spark, maker.directory).where(F.col("lsn") > puts))
    assert (verdict.counts["tasks"], verdict.broken) == (3, {})


def test_a_log_is_judged_alike_as_files_and_as_rows_and_however_takes_are_sorted(
    spark: Any,
    planted: audit.SparkVerdict,
    planted_log: tuple[Path, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [row for row in planted.rows if row["check"] not in OF_CLIENTS]
    assert {"order_break", "utube_overlap"} < {row["check"] for row in rows}
    for most in (checks.SORTED_ROWS, 0):
        monkeypatch.setattr(checks, "SORTED_ROWS", most)
        verdict = audit.run(spark, [str(planted_log[0])])
        assert verdict.rows == rows
        assert verdict.counts == planted.counts


def test_two_unequal_logs_are_told_apart_below_the_commit_lsn(spark: Any, three: Path) -> None:
    log = log_of(spark, three / "a", three / "c")
    found = audit.judge(log)
    assert found.broken == {"nodes_differ": 1}
    (row,) = found.rows
    assert checks.check_nodes(log, row["lsn"] - 1).count() == 0


def test_every_check_is_planted_here() -> None:
    assert {*OF_TASKS, *OF_CLIENTS, *DAMAGED, *EDITED, "nodes_differ"} == set(audit.CHECKS)


def test_it_says_nothing_of_rules_it_does_not_know(tmp_path: Path) -> None:
    """No Spark: JUnit and metrics of a verdict that this engine gave."""
    verdict = audit.SparkVerdict()
    assert set(verdict.judged) < set(BY_NAME)
    assert verdict.text().endswith(f"(by {len(audit.CHECKS)} of {len(BY_NAME)} rules)")
    outputs.write_junit(verdict, tmp_path / "junit")  # type: ignore[arg-type]
    outputs.write_prometheus(verdict, tmp_path / "metrics", 0.0)  # type: ignore[arg-type]
    told = (tmp_path / "junit").read_text() + (tmp_path / "metrics").read_text()
    assert {name for name in BY_NAME if f'"{name}"' in told} == set(audit.CHECKS)
