"""Rescue files: there and back, damage by name, and what of them is worth putting again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemq.model.record import (
    CREATE,
    DELETE,
    DELETE_MANY,
    DROP,
    INSERT,
    INSERT_MANY,
    KIND_ACK,
    KIND_CREATE_TUBE,
    KIND_PUT,
    KIND_PUT_MANY,
    KIND_RELEASE,
    KIND_TAKE,
    SET,
    SET_MANY,
    TERM,
    TRUNCATE,
    Op,
    Record,
    encode_frame,
)
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.replay import replay_plan
from tandemq_server.replication.rescue import (
    RescueError,
    RescueNote,
    decode_note,
    decode_rescue,
    encode_rescue,
)

A, B = b"a" * 16, b"b" * 16
LINEAGE = Lineage([(1, A, None, 1, "a", False), (3, B, A, 12, "a", True)])
TUBES = {1024: ("jobs", "fifo"), 1025: ("mail", "utube")}
NOTE = RescueNote(A, B, LINEAGE, 10, 14, 12, 77, "rewind to the term of b", TUBES)


def record(kind: int, *ops: Op) -> Record:
    return (5, kind, None, list(ops))


FRAMES = [
    encode_frame([record(1, (INSERT, 1024, [n, "r", b"x"])) for n in (0, 1)], 1, A, 10, 9),
    encode_frame([record(18, (TERM, *LINEAGE.terms[1]))], 3, B, 12, 9),
    encode_frame([record(3, (DELETE, 1024, n)) for n in (0, 9)], 3, B, 13, 12),
]
FILE = encode_rescue(NOTE, FRAMES)


def test_there_and_back() -> None:
    note, frames = decode_rescue(FILE)
    assert note == NOTE
    found = list(frames)
    assert [data for _, data, _ in found] == FRAMES
    assert [header.first_lsn for header, _, _ in found] == [10, 12, 13]
    assert NOTE.summary == (
        "LSN 10..14 of term 3: 5 records, 3 acknowledged; rewind to the term of b"
    )


def test_a_note_may_stand_alone() -> None:
    data = encode_rescue(NOTE, [])
    note, end = decode_note(data)
    assert (note, end) == (NOTE, len(data))
    with pytest.raises(RescueError, match=r"records 10\.\.14 are missing"):
        list(decode_rescue(data)[1])


@given(st.integers(0, len(FILE) - 1), st.integers(1, 255))
def test_no_flipped_byte_passes(at: int, flip: int) -> None:
    data = bytearray(FILE)
    data[at] ^= flip
    with pytest.raises(RescueError):
        list(decode_rescue(bytes(data))[1])


@pytest.mark.parametrize("size", range(len(FILE)))
def test_no_missing_byte_passes(size: int) -> None:
    with pytest.raises(RescueError):
        list(decode_rescue(FILE[:size])[1])


@pytest.mark.parametrize(
    "frames", [FRAMES[1:], [FRAMES[0], FRAMES[2]], FRAMES[:2], [*FRAMES, FRAMES[2]]]
)
def test_no_missing_or_repeated_frame_passes(frames: list[bytes]) -> None:
    with pytest.raises(RescueError):
        list(decode_rescue(encode_rescue(NOTE, frames))[1])


def test_malformed_notes_are_refused_by_name() -> None:
    for bad in (replace(NOTE, cluster=b"short"), replace(NOTE, tubes={1: ("x",)})):  # type: ignore[dict-item]
        with pytest.raises(RescueError, match="the note is malformed"):
            decode_note(encode_rescue(bad, []))


def planned(*records: Record) -> tuple[list[tuple[str, int, tuple[object, ...]]], list[object]]:
    plan = replay_plan(enumerate(records, 10), TUBES)
    return [(t.tube, t.task_id, t.row) for t in plan.tasks], list(plan.finished)


def put(task: int, space: int = 1024) -> Record:
    return record(KIND_PUT, (INSERT, space, [task, "r", b"p%d" % task]))


def test_what_was_put_and_not_finished() -> None:
    tasks, finished = planned(
        put(0),
        put(1),
        record(KIND_ACK, (DELETE, 1024, 0), (DELETE, 514, [1, 0])),
        record(KIND_ACK, (DELETE, 1024, 77)),
    )
    assert tasks == [("jobs", 1, (1, "r", b"p1"))]
    assert finished == [(1024, 77)]


def test_rows_follow_their_changes_and_keep_their_put() -> None:
    plan = replay_plan(
        enumerate(
            [
                put(4),
                record(KIND_TAKE, (SET, 1024, 4, 1, "t"), (INSERT, 514, [1, 4, 0, b"s", 5])),
                record(KIND_RELEASE, (INSERT, 1024, [4, "~", b"p4"])),
                # A row from before the fork that somebody took.
                record(KIND_TAKE, (SET, 1024, 2, 1, "t")),
            ],
            10,
        ),
        TUBES,
    )
    [task] = plan.tasks
    assert (task.lsn, task.time_us, task.row, task.payload) == (10, 5, (4, "~", b"p4"), b"p4")
    assert plan.finished == ()
    assert plan.changed == {(1024, 2): {1: "t"}}
    assert plan.calls == {"put": 1, "take": 2, "release": 1}


def test_batches_and_whole_tubes() -> None:
    many = record(KIND_PUT_MANY, (INSERT_MANY, 1025, [[n, "r", "key", b"x"] for n in range(5)]))
    tasks, finished = planned(
        many,
        record(KIND_TAKE, (SET_MANY, 1025, [0, 3], 1, "t")),
        record(KIND_ACK, (DELETE_MANY, 1025, [0, 1, 8])),
    )
    assert [(task, row[1]) for _, task, row in tasks] == [(2, "r"), (3, "t"), (4, "r")]
    assert finished == [(1025, 8)]
    assert planned(many, record(12, (TRUNCATE, 1025)))[0] == []
    assert planned(many, put(1), record(15, (DROP, 1025)))[0] == [("jobs", 1, (1, "r", b"p1"))]


def test_tubes_made_in_the_cut_and_tubes_nobody_knows() -> None:
    tasks, _ = planned(
        record(KIND_CREATE_TUBE, (CREATE, 1030, "new", "fifo", {}, 0)), put(0, 1030), put(1, 1099)
    )
    assert [(tube, task) for tube, task, _ in tasks] == [("new", 0), ("", 1)]


def test_a_tube_dropped_in_the_cut_has_its_name() -> None:
    """The note is written when it is gone: its row in the catalogue told it."""
    plan = replay_plan(
        enumerate((record(15, (DELETE, 512, "old"), (DROP, 1031)),), 1), {1025: ("jobs", "fifo")}
    )
    assert plan.names == {1025: "jobs", 1031: "old"}
    assert plan.emptied == (1031,)
