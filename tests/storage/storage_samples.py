"""Small logs and snapshots with every kind of record, and a sink that remembers what it got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandemq.log.disk import Disk
from tandemq.log.meta import Meta, open_meta
from tandemq.log.snapshot import SnapshotHeader
from tandemq.model.record import (
    CREATE,
    DELETE,
    DROP,
    INSERT,
    KIND_ACK,
    KIND_CREATE_TUBE,
    KIND_DROP_TUBE,
    KIND_PUT,
    KIND_TAKE,
    KIND_TERM,
    KIND_TRUNCATE,
    MARK,
    SET,
    TERM,
    TRUNCATE,
    Op,
    Record,
    encode_frame,
)
from tandemq.model.terms import Term, plain_term
from tandemq_server.storage.log import Log
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import Recovered, open_log, recover
from tandemq_server.storage.snapshot_writer import SnapshotWriter

CLUSTER = bytes(range(16))
NODE = bytes(range(16, 32))
SESSION = bytes(range(200, 216))
EPOCH_US = 1_700_000_000_000_000
TERM_1 = Term(1, b"\x11" * 16, None, 1, "alpha", False)


def next_term(before: Term, start_lsn: int, solo: bool = False) -> Term:
    number = before.number + 1
    return Term(number, bytes((number,)) * 16, before.id, start_lsn, "beta", solo)


class Collect:
    """A sink that keeps everything in the order it came."""

    def __init__(self) -> None:
        self.ops: list[Any] = []
        self.row_list: list[tuple[int, Any]] = []
        self.lenient: list[tuple[int, Record]] = []
        self.strict: list[tuple[int, Record]] = []
        self.terms: list[Term] = []

    def catalogue(self, ops: Sequence[Op]) -> None:
        self.ops += ops

    def rows(self, space_id: int, rows: Sequence[Sequence[Any]]) -> None:
        self.row_list += [(space_id, row) for row in rows]

    def records(self, first_lsn: int, records: Sequence[Record], lenient: bool, term: Term) -> None:
        into = self.lenient if lenient else self.strict
        into += enumerate((plain(record) for record in records), first_lsn)
        self.terms.append(term)


def plain(record: Any) -> Any:
    """Lists all the way down: how a record comes back from MessagePack."""
    if isinstance(record, list | tuple):
        return [plain(item) for item in record]
    return record


def record(number: int) -> Record:
    """The `number`th of a series in which every op and many kinds of value occur."""
    time_us = EPOCH_US + number * 1_000
    payload = bytes([0xC4, number % 200]) + bytes(number % 7)
    choices: list[tuple[int, bytes | None, list[Op]]] = [
        (KIND_PUT, None, [(INSERT, 1024, [number, "r", payload])]),
        (
            KIND_TAKE,
            SESSION,
            [(SET, 1024, number, 1, "t", 3, -number), (SET, 514, [1, number], 0, 2)],
        ),
        (KIND_ACK, SESSION, [(DELETE, 1024, number), (DELETE, 514, [1, number])]),
        (KIND_CREATE_TUBE, None, [(CREATE, 1024 + number, "té\udcff", "fifo", {"ttl": 1.5}, 1)]),
        (KIND_TRUNCATE, None, [(TRUNCATE, 1024), (MARK, 1024, 2**63)]),
        (KIND_DROP_TUBE, None, [(DROP, 1024 + number)]),
    ]
    kind, session, ops = choices[number % len(choices)]
    return (time_us, kind, session, ops)


def term_record(term: Term) -> Record:
    return (EPOCH_US, KIND_TERM, None, [(TERM, *plain_term(term))])


class Writing:
    """A log being written in frames of chosen sizes, and what went into it."""

    def __init__(self, disk: Disk, segment_bytes: int = 1_500, term: Term = TERM_1) -> None:
        self.disk = disk
        self.meta = open_meta(disk, CLUSTER, NODE, EPOCH_US)
        self.log = Log(disk, self.meta, segment_bytes)
        self.term = term
        self.records: list[tuple[int, Any]] = []
        self.frames: list[bytes] = []
        self.log.open_term(term, 1)

    @property
    def next_lsn(self) -> int:
        return len(self.records) + 1

    def frame(self, count: int) -> bytes:
        """Append one frame of `count` records; kept only if the log took it."""
        first = self.next_lsn
        records = [record(number) for number in range(first, first + count)]
        if first == self.term.start_lsn:
            records[0] = term_record(self.term)
        frame = encode_frame(records, self.term.number, self.term.id, first, first - 1)
        self.log.append(frame, first, first + count - 1, records[-1][0])
        self.records += enumerate((plain(one) for one in records), first)
        self.frames.append(frame)
        return frame

    def new_term(self) -> Term:
        self.term = next_term(self.term, self.next_lsn)
        self.log.open_term(self.term, self.next_lsn)
        return self.term

    def reopen(self, segment_bytes: int = 1_500) -> tuple[Recovered, Collect]:
        """Recover from the disk as it is, and go on writing there."""
        found, sink = loaded(self.disk)
        self.log = open_log(self.disk, found, segment_bytes)
        self.records = list(sink.strict)
        return found, sink


def loaded(disk: Disk, strict_commit: bool = True) -> tuple[Recovered, Collect]:
    sink = Collect()
    return recover(disk, sink, strict_commit), sink


def small_log(frames: Sequence[int] = (3, 2, 4, 1), new_terms: Sequence[int] = (2,)) -> Writing:
    """A closed log; a new term, hence a new segment, begins before each frame of `new_terms`."""
    writing = Writing(MemoryDisk(), 1 << 20)
    for number, count in enumerate(frames):
        if number in new_terms:
            writing.new_term()
        writing.frame(count)
    writing.log.close()
    return writing


def small_snapshot(disk: Disk, meta: Meta, start_lsn: int = 0) -> str:
    """A snapshot with every kind of block, its frames of two terms."""
    header = SnapshotHeader(meta.cluster, meta.node, (TERM_1,), start_lsn)
    writer = SnapshotWriter(disk, header)
    writer.add_catalogue([(CREATE, 1024, "jobs", "fifo", {}, 0), (MARK, 1024, 7)])
    writer.add_rows(1024, [[1, "r", b"\xc0"], [2, "t", b"\xc4\x01x"]])
    first = start_lsn + 1
    records = [record(number) for number in range(first, first + 3)]
    writer.add_frames(encode_frame(records, 1, TERM_1.id, first, first - 1))
    second = next_term(TERM_1, first + 3)
    writer.add_term(second)
    writer.add_rows(1024, [[3, "r", b"\xc3"]])
    more = [term_record(second), record(first + 4)]
    writer.add_frames(encode_frame(more, 2, second.id, first + 3, first + 2))
    return writer.finish(first + 4, EPOCH_US)
