"""Planning and decoding without Spark: every operation, splits, filters, damage by name."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from benchmarks.logmaker import START_US, LogMaker, fill
from tandemq.model.errors import StorageError
from tandemq.spark.columns import ALL, check_columns
from tandemq.spark.decode import Decoder
from tandemq.spark.logs import LogQuery, plan
from tandemq_server.engine import batches


def read(
    *paths: Path | str, columns: tuple[str, ...] = ALL, wanted: LogQuery | None = None, **how: Any
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for part in plan([str(path) for path in paths], wanted or LogQuery()):
        assert part.damage is None
        for batch in Decoder(part, columns, **how).batches():
            rows += pa.Table.from_batches([batch]).to_pylist()
    return rows


def brief(rows: list[dict[str, Any]], tube: str) -> list[tuple[Any, ...]]:
    return [
        (row["operation"], row["task_id"], row["state_from"], row["state_to"])
        for row in rows
        if row["tube"] == tube and row["task_id"] is not None
    ]


def test_every_operation_of_a_plain_tube(maker: LogMaker) -> None:
    tube = maker.tube("q")
    worker = maker.clients[1]
    for number in range(4):
        maker.put(tube, {"n": number})
    maker.turn()
    for _ in range(3):
        maker.take(tube)
    tube.ack(worker, 0)
    tube.release(worker, 1)
    tube.bury(worker, 2)
    maker.turn()
    tube.kick(worker, 1)
    tube.delete(worker, 3)
    maker.turn()
    maker.close()
    rows = read(maker.directory)
    assert brief(rows, "q") == [
        ("put", 0, None, "r"),
        ("put", 1, None, "r"),
        ("put", 2, None, "r"),
        ("put", 3, None, "r"),
        ("take", 0, "r", "t"),
        ("take", 1, "r", "t"),
        ("take", 2, "r", "t"),
        ("ack", 0, "t", "-"),
        ("release", 1, "t", "r"),
        ("bury", 2, None, "!"),
        ("kick", 2, "!", "r"),
        ("delete", 3, None, "-"),
    ]
    assert [row["lsn"] for row in rows] == list(range(1, len(rows) + 1))
    first = next(row for row in rows if row["operation"] == "put")
    assert msgpack.unpackb(first["payload"]) == {"n": 0}
    assert first["time"] == datetime.datetime.fromtimestamp(
        START_US / 1e6, datetime.UTC
    ) + datetime.timedelta(milliseconds=2)
    assert first["term"] == 1
    assert first["node"] == "01010101-0101-0101-0101-010101010101"
    term, created = rows[0], rows[1]
    assert term["operation"] == "term"
    assert json.loads(term["detail"])["parent"] is None
    assert created["operation"] == "create_tube"
    assert json.loads(created["detail"])["type"] == "fifo"
    taken = next(row for row in rows if row["operation"] == "take")
    assert len(taken["session"]) == 36


def test_options_of_ttl_tubes_and_what_deadlines_do(maker: LogMaker) -> None:
    tube = maker.tube("t", "utubettl", ttl=100, ttr=10)
    maker.put(tube, 1, pri=3, utube="a")
    maker.put(tube, 2, delay=5, utube="b")
    maker.put(tube, 3, ttl=1, utube="c")
    maker.take(tube)
    maker.turn(2_000_000)
    maker.turn(4_000_000)
    maker.turn(6_000_000)
    maker.turn()
    maker.close()
    rows = read(maker.directory)
    puts = [row for row in rows if row["operation"] == "put"]
    assert [row["priority"] for row in puts] == [3, 0, 0]
    assert [row["ttl"] for row in puts] == [100_000_000, 105_000_000, 1_000_000]
    assert [row["ttr"] for row in puts] == [10_000_000] * 3
    assert [row["delay"] for row in puts] == [None, 5_000_000, None]
    assert [row["utube"] for row in puts] == ["a", "b", "c"]
    happened = [one for one in brief(rows, "t") if one[0] in ("ttl", "ttr", "delay")]
    assert ("delay", 1, "~", "r") in happened
    assert ("ttr", 2, "t", "r") in happened or ("ttr", 0, "t", "r") in happened


def test_batches_give_a_row_for_every_task(maker: LogMaker) -> None:
    tube = maker.tube("q")
    ids = maker.put_many(tube, [{"n": n} for n in range(300)])
    taken = batches.take_many(tube, maker.clients[1], None, 300)
    assert isinstance(taken, list)
    batches.ack_many(tube, maker.clients[1], ids)
    maker.turn()
    maker.close()
    rows = [row for row in read(maker.directory) if row["task_id"] is not None]
    assert len(rows) == 900
    assert {(row["kind"], row["operation"]) for row in rows} == {
        ("put_many", "put"),
        ("take_many", "take"),
        ("ack_many", "ack"),
    }
    assert [row["task_id"] for row in rows] == ids * 3


def test_splits_segments_and_batches_change_nothing(maker: LogMaker) -> None:
    fill(maker, 3000)
    maker.close()
    whole = read(maker.directory)
    assert len(list(maker.directory.glob("*.wal"))) > 5
    for split, batch in ((2048, 100), (5000, 7), (1 << 20, 100_000)):
        parts = read(maker.directory, wanted=LogQuery(split_bytes=split), batch_rows=batch)
        assert parts == whole
    assert read(maker.directory, columns=("lsn", "payload_json"))[-1].keys() == {
        "lsn",
        "payload_json",
    }


def test_bounds_and_choices_leave_out_whole_segments(maker: LogMaker) -> None:
    fill(maker, 3000)
    maker.close()
    whole = read(maker.directory)
    middle = whole[len(whole) // 2]["lsn"]
    assert [
        row["lsn"] for row in read(maker.directory, wanted=LogQuery(middle, middle + 9))
    ] == list(range(middle, middle + 10))
    assert len(plan([str(maker.directory)], LogQuery(first_lsn=middle))) < len(
        plan([str(maker.directory)], LogQuery())
    )
    late = plan([str(maker.directory)], LogQuery(first_us=START_US + 10**12))
    assert len(late) <= 1
    mail = read(maker.directory, tubes=frozenset({"mail"}), operations=frozenset({"ack"}))
    assert mail == [row for row in whole if row["tube"] == "mail" and row["operation"] == "ack"]


def test_damage_is_named_with_file_byte_and_reason(maker: LogMaker) -> None:
    fill(maker, 3000)
    maker.close()
    segments = sorted(maker.directory.glob("*.wal"))
    victim = segments[2]
    data = bytearray(victim.read_bytes())
    data[5000] ^= 1
    victim.write_bytes(data)
    with pytest.raises(StorageError, match=rf"{victim}: byte \d+: CRC is"):
        read(maker.directory)
    victim.unlink()
    with pytest.raises(StorageError, match=r"byte 0: LSN \d+ up to \d+ are missing"):
        read(maker.directory)
    segments[3].write_bytes(b"something else" * 200)
    with pytest.raises(StorageError, match=rf"{segments[3]}: byte 0: segment header: magic is"):
        read(maker.directory)
    with pytest.raises(StorageError, match="nothing: byte 0: list: "):
        read(maker.directory / "nothing")


def test_a_torn_tail_is_left_out_and_a_newer_format_refused(maker: LogMaker) -> None:
    fill(maker, 500)
    maker.close()
    whole = read(maker.directory)
    newest = sorted(maker.directory.glob("*.wal"))[-1]
    data = newest.read_bytes()
    newest.write_bytes(data[:-7])
    torn = read(maker.directory)
    assert torn == whole[: len(torn)]
    assert 0 < len(torn) < len(whole)
    newest.write_bytes(data[:100])
    assert read(maker.directory) == whole[: len(read(maker.directory))]


def test_unknown_columns_are_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="has no column 'nope'; its columns are term, lsn"):
        check_columns(["lsn", "nope"])
