"""The compiled walk gives plain Python's rows, one for one, and leaves to it what is strange."""

from __future__ import annotations

import random
import zlib
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from benchmarks.logmaker import LogMaker, fill
from tandemq.model.errors import StorageError
from tandemq.model.record import DELETE_MANY, INSERT, SET, SET_MANY, FrameHeader
from tandemq.spark import buffers, compiled, kernel
from tandemq.spark import heads as heads_of
from tandemq.spark import lines as lines_of
from tandemq.spark.columns import ALL, BY_NAME
from tandemq.spark.decode import Decoder
from tandemq.spark.groups import LAYOUTS
from tandemq.spark.logs import LogQuery, Part, plan
from tandemq_server.drivers import BUILT_IN
from tandemq_server.engine import batches

EVERY = tuple(BY_NAME)


def test_kept_machine_code_is_of_the_sources_that_are_there() -> None:
    """Numba keeps it by the file of its entry; what else goes into it must change that file."""
    folder = Path(compiled.__file__).parent
    heads, lines = ((folder / name).read_bytes() for name in ("heads.py", "lines.py"))
    # What these and the entries have from elsewhere is in the machine code as numbers.
    named = [
        f"{name}={value}"
        for module in (kernel, buffers, lines_of, heads_of)
        for name, value in sorted(vars(module).items())
        if name.isupper() and isinstance(value, int) and name != "MADE_OF"
    ]
    numbers = " ".join(named).encode()
    say = "set MADE_OF, so that machine code of older sources is not used again"
    assert zlib.crc32(heads + lines + numbers) == kernel.MADE_OF, say
    assert zlib.crc32(lines + numbers) == buffers.MADE_OF, say


def rows(
    path: Path,
    walk: bool,
    columns: tuple[str, ...] = EVERY,
    wanted: LogQuery | None = None,
    **how: Any,
) -> list[dict[str, Any]]:
    """In order of LSN; the tasks of one record in an order of their own."""
    found: list[dict[str, Any]] = []
    for part in plan([str(path)], wanted or LogQuery()):
        assert part.damage is None
        for batch in Decoder(part, columns, compiled=walk, **how).batches():
            batch.validate(full=True)
            found += pa.Table.from_batches([batch]).to_pylist()
    return sorted(found, key=lambda row: (row["lsn"], str(row.get("tube")), row.get("task_id", 0)))


def busy(maker: LogMaker, kinds: list[str], turns: int = 21) -> None:
    """Tubes of all these drivers, used in every way; deadlines pass in between."""
    choose = random.Random(7)
    options = {"limfifottl": {"capacity": 100_000}}
    tubes = [maker.tube(f"{kind}-tube", kind, **options.get(kind, {})) for kind in kinds]
    for turn in range(turns):
        for kind, tube in zip(kinds, tubes, strict=True):
            opts: dict[str, Any] = {}
            if "ttl" in LAYOUTS.get(kind, {}):
                opts = {
                    "ttl": choose.choice([1, 5, 10**9]),
                    "ttr": 2,
                    "pri": choose.choice([0, 9, 2**64 - 1]),
                }
                if choose.random() < 0.4:
                    opts["delay"] = choose.randrange(4)
            if kind.startswith("utube"):
                opts["utube"] = choose.choice(["a", "Ünïcode", ""])
            for value in (turn, "x" * turn * 10, [1.5, None, {"a": b"\xff"}]):
                maker.put(tube, value, choose.randrange(4), **opts)
            maker.put_many(tube, [turn] * choose.randrange(1, 40))
            held = [maker.take(tube, 1) for _ in range(4)]
            for task in held:
                if task is None:
                    continue
                owner = maker.clients[1]
                way = choose.randrange(6)
                if way == 0:
                    tube.release(owner, task)
                elif way == 1:
                    tube.bury(owner, task)
                elif way == 2 and "ttl" in LAYOUTS.get(kind, {}):
                    tube.touch(owner, task, 1)
                elif way < 5:
                    tube.ack(owner, task)
            many = batches.take_many(tube, maker.clients[2], None, 20)
            if isinstance(many, list):
                batches.ack_many(tube, maker.clients[2], [row[0] for row in many][:10])
            if turn % 7 == 3:
                tube.kick(maker.clients[0], 3)
            if turn % 20 == 19:
                tube.truncate(maker.clients[0])
        maker.turn(700_000)


@pytest.fixture(scope="module")
def busy_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maker = LogMaker(tmp_path_factory.mktemp("busy") / "log", segment_bytes=1 << 20)
    maker.open_term()
    busy(maker, sorted(BUILT_IN))
    maker.open_term(2, "a")
    maker.close()
    return maker.directory


@pytest.mark.parametrize("how", [{}, {"operations": frozenset({"put", "ack"})}])
def test_columns_that_need_no_look_into_tasks(busy_log: Path, how: dict[str, Any]) -> None:
    columns = tuple(sorted(compiled.LIGHT))
    walked, plain = rows(busy_log, True, columns, **how), rows(busy_log, False, columns, **how)
    assert len(walked) > 100
    assert sorted(map(str, walked)) == sorted(map(str, plain))


def test_every_driver_and_operation(busy_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gave_up: list[compiled.GaveUp] = []
    monkeypatch.setattr(compiled.GaveUp, "__init__", lambda self: gave_up.append(self))
    walked, plain = rows(busy_log, True), rows(busy_log, False)
    assert walked == plain
    assert not gave_up
    happened = {row["operation"] for row in walked}
    assert happened >= {"put", "take", "ack", "release", "bury", "kick", "ttr", "ttl", "delay"}
    assert happened >= {"truncate", "create_tube", "term", "touch"}
    assert {row["kind"] for row in walked} >= {"put_many", "take_many", "ack_many"}
    assert {row["utube"] for row in walked} >= {"Ünïcode", "", None}
    assert any(row["delay"] for row in walked if row["operation"] == "put")


def test_splits_bounds_columns_and_choices(busy_log: Path) -> None:
    plain = rows(busy_log, False)
    middle = plain[len(plain) // 2]["lsn"]
    for wanted, how in (
        (LogQuery(split_bytes=3000), {"batch_rows": 100}),
        (LogQuery(first_lsn=middle, last_lsn=middle + 40), {}),
        (LogQuery(), {"tubes": frozenset({"utubettl-tube"})}),
        (LogQuery(), {"operations": frozenset({"ack", "term", "dead"}), "batch_rows": 64}),
    ):
        found = rows(busy_log, True, wanted=wanted, **how)
        assert found
        assert found == rows(busy_log, False, wanted=wanted, **how)
    for columns in (("lsn",), ("lsn", "tube", "operation"), ("lsn", "payload_json", "time")):
        assert rows(busy_log, True, columns) == rows(busy_log, False, columns)


def test_what_the_walk_does_not_know_is_left_to_python(maker: LogMaker) -> None:
    tube = maker.tube("u", "utube")
    space = tube.space.id
    maker.put(tube, 1, utube="fine")
    maker.turn()
    now = maker.engine.now
    row = [5, "r", "b\udcffd", msgpack.packb(1)]
    maker.write([(now, 1, b"x" * 16, [(INSERT, space, row)])])
    maker.write([(now, 1, b"short", [(INSERT, space, [6, "r", "a", 7])])])
    maker.write([(now, 26, None, [(SET, space, 5, 1, "long")])])
    maker.write([(now, 26, None, [(SET_MANY, 99_999, [1, 2], 1, "t"), (DELETE_MANY, space, [5])])])
    maker.write([(now, 200, None, [])])
    maker.close()
    walked = rows(maker.directory, True)
    assert walked == rows(maker.directory, False)
    assert [one["utube"] for one in walked if one["operation"] == "put"] == [
        "fine",
        "b\\xffd",
        "a",
    ]
    assert [one["state_to"] for one in walked if one["tube"] == "#99999"] == ["t", "t"]
    assert [one["state_to"] for one in walked if one["kind"] == "other"].count("long") == 1


def test_damage_is_named_alike_and_what_stands_before_it_is_read(maker: LogMaker) -> None:
    fill(maker, 2000)
    tube = maker.tube("q")
    maker.write([(maker.engine.now, 1, None, [(INSERT, tube.space.id)])])
    maker.close()
    found: list[tuple[int, str]] = []
    for walk in (True, False):
        part = plan([str(maker.directory)], LogQuery())[-1]
        rows_before = 0
        with pytest.raises(StorageError, match=r"LSN \d+: no record") as told:
            for batch in Decoder(part, ALL, compiled=walk).batches():
                rows_before += batch.num_rows
        found.append((rows_before, str(told.value)))
    assert found[0] == found[1]
    assert found[0][0] > 0
    victim = sorted(maker.directory.glob("*.wal"))[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    found.clear()
    for walk in (True, False):
        part = plan([str(maker.directory)], LogQuery(permissive=True))[0]
        rows_before = 0
        with pytest.raises(StorageError, match="CRC is") as told:
            for batch in Decoder(part, ALL, compiled=walk).batches():
                rows_before += batch.num_rows
        found.append((rows_before, str(told.value)))
    assert found[0] == found[1]
    assert found[0][0] > 0


def test_values_of_every_messagepack_type_are_stepped_over() -> None:
    values = [
        0, 127, 128, 255, 256, 65535, 65536, 2**32, 2**63 - 1, -1, -32, -33, -129, -40000, -(2**40),
        None, True, False, 1.5, "", "a" * 40, "b" * 300, "c" * 70000, b"", b"d" * 300,
        b"e" * 70000, [], [1, [2, [3]]], list(range(20)), list(range(70000)), {}, {"a": {"b": [1]}},
        {n: n for n in range(20)}, msgpack.ExtType(5, b"x"), msgpack.ExtType(5, b"y" * 16),
        msgpack.ExtType(5, b"z" * 300),
    ]  # fmt: skip
    walker = compiled.Walker(Part("", "", spaces={2000: ("q", "fifo")}), {})
    for value in values:
        record = (5, 1, None, [(INSERT, 2000, [9, "r", b"here", value])])
        body = msgpack.packb([record, record])
        header = FrameHeader(len(body), 0, 1, 1, 2, 0)
        found = walker.columns([(header, body)], (1, 9))
        payloads = found.array(pa.field("payload", pa.binary())).to_pylist()
        assert payloads == [b"here", b"here"], value
        for wrong in (body[:-1], body[: len(body) // 2], body + b"x"):
            with pytest.raises(compiled.GaveUp):
                walker.columns([(header, wrong)], (1, 9))
    for value in (0, 127, 128, 256, 65536, 2**32, 2**63 - 1, -1, -33, -129, -40000, -(2**40)):
        body = msgpack.packb([(value, 1, None, [(INSERT, 2000, [value, "r", b""])])])
        found = walker.columns([(FrameHeader(len(body), 0, 1, 1, 1, 0), body)], (1, 9))
        assert found.array(pa.field("task_id", pa.int64())).to_pylist() == [value]
