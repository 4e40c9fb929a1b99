"""`format("tandemq_log")` in a real session: same rows as the decoder, filters, options, damage."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.spark.columns import ALL
from tandemq.spark.decode import Decoder
from tandemq.spark.logs import LogQuery, plan
from tandemq.spark.options import LOG_OPTIONS, parse
from tandemq.spark.source import settle


def decoded(path: Path) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for part in plan([str(path)], LogQuery()):
        for batch in Decoder(part, ALL).batches():
            rows += [(row["lsn"], row["task_id"], row["payload"]) for row in batch.to_pylist()]
    return rows


def test_all_rows_arrive_and_filters_leave_out_segments(spark: Any, maker: LogMaker) -> None:
    fill(maker, 2000)
    maker.close()
    log = spark.read.format("tandemq_log").load(str(maker.directory))
    rows = log.select("lsn", "task_id", "payload").collect()
    key = [(row[0], row[1], bytes(row[2]) if row[2] is not None else None) for row in rows]
    assert sorted(key, key=str) == sorted(decoded(maker.directory), key=str)
    last = max(row[0] for row in rows)
    late = log.where(f"lsn > {last - 10}")
    assert late.count() == len([row for row in rows if row[0] > last - 10])
    assert log.count() == len(rows), "a filtered use of a DataFrame leaves the others alone"
    acks = log.where("tube = 'mail' and operation in ('ack', 'bury')")
    counts = {row[0]: row[1] for row in acks.groupBy("operation").count().collect()}
    everything = log.groupBy("tube", "operation").count().collect()
    assert counts == {row[1]: row[2] for row in everything if row[0] == "mail" and row[1] in counts}
    for option, value in (("pushdown", "true"), ("fromLsn", str(last - 9))):
        few = spark.read.format("tandemq_log").option(option, value).load(str(maker.directory))
        found = few.where(f"lsn > {last - 10}")
        assert found.count() == late.count()
        assert found.rdd.getNumPartitions() < log.rdd.getNumPartitions()
    assert log.where("time < '2001-01-01'").count() == 0
    narrow = (
        spark.read.format("tandemq_log")
        .option("columns", "lsn,operation")
        .option("payloadJson", "true")
        .load(str(maker.directory))
    )
    assert narrow.columns == ["lsn", "operation", "payload_json"]
    put = narrow.where("operation = 'put'").first()
    assert json.loads(put["payload_json"])["body"] == "x" * 40


def test_what_is_not_known_is_refused_with_what_is(spark: Any, maker: LogMaker) -> None:
    maker.close()
    reader = spark.read.format("tandemq_log")
    names = ", ".join(option.name for option in LOG_OPTIONS)
    with pytest.raises(ValueError, match=f"has no option 'nope'; its options are {names}"):
        parse("tandemq_log", LOG_OPTIONS, {"nope": "1"})
    with pytest.raises(Exception, match="has no option 'nope'; its options are path, paths"):
        reader.option("nope", "1").load(str(maker.directory)).count()
    with pytest.raises(Exception, match="has no column 'lns'; its columns are term, lsn"):
        spark.read.format("tandemq_log").option("columns", "lns").load(str(maker.directory)).count()
    with pytest.raises(Exception, match="needs a path"):
        spark.read.format("tandemq_log").load().count()


def test_damage_fails_by_name_or_becomes_a_row(spark: Any, maker: LogMaker, tmp_path: Path) -> None:
    fill(maker, 2000)
    maker.close()
    victim = sorted(maker.directory.glob("*.wal"))[1]
    data = bytearray(victim.read_bytes())
    data[9000] ^= 1
    victim.write_bytes(data)
    reader = spark.read.format("tandemq_log")
    with pytest.raises(Exception, match=rf"{victim}: byte \d+: CRC is"):
        reader.load(str(maker.directory)).count()
    bad = tmp_path / "bad"
    kept = (
        spark.read.format("tandemq_log")
        .option("mode", "permissive")
        .option("badRecordsPath", str(bad))
        .load(str(maker.directory))
    )
    rows = kept.where("operation = 'damaged'").select("segment", "detail").collect()
    assert [row[0] for row in rows] == [victim.name]
    assert json.loads(rows[0][1])["reason"].startswith("CRC is")
    written = [json.loads(path.read_text()) for path in bad.iterdir()]
    assert {one["file"] for one in written} == {victim.name}
    assert kept.where("operation != 'damaged'").count() > 500


def test_only_a_worker_hides_its_modules_from_the_collector(spark: Any) -> None:
    def look(_: Iterable[int]) -> Iterator[int]:
        settle()
        yield gc.get_freeze_count()

    hidden = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert hidden[0] > 10_000
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
