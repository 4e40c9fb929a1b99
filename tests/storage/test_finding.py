"""What is found by bytes alone is what reading every record finds; payload fields; damage."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest

from benchmarks.logmaker import LogMaker
from tandemq.log.meta import read_meta
from tandemq.log.segment import SegmentReader, segment_names
from tandemq.model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    INSERT,
    INSERT_MANY,
    KIND_OTHER,
    SET,
    SET_MANY,
    TRUNCATE,
    Op,
    decode_body,
)
from tandemq_server.storage.past import PastReader
from tandemq_server.storage.sought import SoughtField, Words

IDS = (0, 5, 127, 128, 255, 256, 65_535, 65_536, 70_000, 1 << 32, (1 << 32) + 7)
SPACE, OTHER = 600, 601


def some_op(chance: random.Random) -> Op:
    """One of any kind on either of two tubes; payloads have a frame's magic in them, too."""
    space = chance.choice((SPACE, SPACE, OTHER))
    few = chance.sample(IDS, 3)
    row = [few[0], "r", 0, chance.choice((b"", b"TQf1" * 9, msgpack.packb({"n": few[1]})))]
    return chance.choice(
        [
            (INSERT, space, row),
            (SET, space, few[0], 1, "t"),
            (DELETE, space, few[0]),
            (INSERT_MANY, space, [[number, *row[1:]] for number in few]),
            (SET_MANY, space, few, 1, "t", 2, few[0]),
            (DELETE_MANY, space, few),
            (TRUNCATE, space),
        ]
    )


def names(op: Any, number: int, there: bool) -> bool:
    """Whether an op of the tube is about a task, which is `there` or not: by its shape."""
    if op[1] != SPACE:
        return False
    if op[0] in (INSERT, INSERT_MANY):
        return number in [row[0] for row in ([op[2]] if op[0] == INSERT else op[2])]
    if op[0] == TRUNCATE:
        return there
    return number in (op[2] if op[0] in (SET_MANY, DELETE_MANY) else [op[2]])


@pytest.fixture
def maker(tmp_path: Path) -> LogMaker:
    made = LogMaker(tmp_path / "data", segment_bytes=4_096)
    made.open_term()
    return made


@pytest.mark.parametrize("seed", range(5))
def test_each_record_that_names_a_task_is_found(
    maker: LogMaker, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    # What is sought often stands where two pieces meet.
    monkeypatch.setattr("tandemq_server.storage.finding._PIECE", 140 + seed)
    row = ["jobs", 1, SPACE, "fifo", {}]
    maker.write(
        [(0, KIND_OTHER, None, [(INSERT, 512, row), (CREATE, SPACE, "jobs", "fifo", {}, 0)])]
    )
    for _ in range(60):
        many = range(chance.randrange(1, 4))
        maker.write([(7, KIND_OTHER, None, [some_op(chance)]) for _ in many])
    maker.commit()
    meta = read_meta(maker.disk)
    assert meta is not None
    wanted: dict[int, list[int]] = {number: [] for number in IDS}
    there = dict.fromkeys(IDS, False)
    for name in segment_names(maker.disk):
        for header, body in SegmentReader(maker.disk, name, meta).frames():
            for lsn, record in enumerate(decode_body(body, header.count), header.first_lsn):
                for number in IDS:
                    for op in record[3]:
                        if names(op, number, there[number]):
                            wanted[number].append(lsn)
                            there[number] = op[0] not in (DELETE, DELETE_MANY, TRUNCATE)
    for number in IDS:
        past = PastReader(maker.disk, "jobs", [number])
        assert [step.lsn for step in past] == wanted[number], number
        assert past.problems == []
    both = [step.lsn for step in PastReader(maker.disk, "jobs", IDS)]
    assert sorted(both) == sorted(lsn for found in wanted.values() for lsn in found)


@pytest.mark.parametrize(
    ("field", "value", "found"),
    [
        ("order", "17", {0, 1, 2}),
        ("order", "seventeen", {3}),
        ("paid", "true", {4}),
        ("näme", "Ännchen", {5, 6}),
        ("order", "1", set()),
    ],
)
def test_a_task_is_found_by_a_field(
    maker: LogMaker, field: str, value: str, found: set[int]
) -> None:
    tube = maker.tube("jobs")
    payloads: list[Any] = [
        {"order": 17},
        json.dumps({"order": 17, "n": 1}),
        json.dumps({"n": 1, "order": "17"}, separators=(",", ":")),
        {"order": "seventeen"},
        {"paid": True},
        {"näme": "Ännchen"},
        json.dumps({"näme": "Ännchen"}),
        {"other": {"order": 17}},
        json.dumps({"order": 175}),
        'not JSON: "order": 17',
    ]
    for payload in payloads:
        maker.put(tube, payload)
        maker.turn()
    maker.commit()
    assert {
        step.id for step in PastReader(maker.disk, "jobs", None, SoughtField(field, value))
    } == found


def test_damage_beside_it_harms_nothing_and_damage_in_it_is_told(maker: LogMaker) -> None:
    tube = maker.tube("jobs")
    for word in ("early", "second", "third"):
        maker.put(tube, word)
        maker.turn()
    maker.commit()
    (name,) = segment_names(maker.disk)
    path = maker.directory / name
    path.write_bytes(path.read_bytes().replace(b"early", b"ear\x00y"))
    past = PastReader(maker.disk, "jobs", None, Words("second"))
    assert [step.id for step in past] == [1]
    broken = PastReader(maker.disk, "jobs", None, Words("ear\x00y"))
    assert list(broken) == []
    assert "it is in no whole frame" in broken.problems[0]
