"""Power cuts at any moment of any history: whatever was synced is recovered, and only prefixes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tandemq.log.meta import open_meta
from tandemq.log.segment import SEGMENT_HEADER_SIZE
from tandemq.log.snapshot import SnapshotHeader, prune
from tandemq.model.errors import StorageError
from tandemq.model.record import encode_frame
from tandemq.model.terms import Term
from tandemq_server.storage.inspection import verify
from tandemq_server.storage.log import Log
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import open_log, recover
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_samples import (
    CLUSTER,
    EPOCH_US,
    NODE,
    TERM_1,
    Collect,
    Writing,
    loaded,
    plain,
    record,
    term_record,
)

STEPS = st.one_of(
    st.tuples(st.just("frame"), st.integers(1, 12)),
    st.tuples(st.just("frame"), st.integers(1, 12)),
    st.tuples(st.just("sync"), st.just(0)),
    st.tuples(st.just("term"), st.just(0)),
    st.tuples(st.just("snapshot"), st.integers(0, 3)),
    st.tuples(st.just("begin_snapshot"), st.just(0)),
    st.tuples(st.just("trim"), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, 9)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("crash"), st.integers(0, 2**32)),
)


class Machine:
    """A log on a disk that crashes, and the list of what it must hold."""

    def __init__(self, segment_bytes: int) -> None:
        self.disk = MemoryDisk()
        self.segment_bytes = segment_bytes
        self.records: list[Any] = []
        self.durable = 0
        self.terms = 0
        self.lineage: list[Term] = []
        self.writer: SnapshotWriter | None = None
        self.snapshot_lsns: list[int] = []
        meta = open_meta(self.disk, CLUSTER, NODE, EPOCH_US)
        self.log = Log(self.disk, meta, segment_bytes)
        self.term(0)

    def term(self, _: int) -> None:
        self.terms += 1
        start = len(self.records) + 1
        self.lineage = [term for term in self.lineage if term.start_lsn < start]
        parent = self.lineage[-1].id if self.lineage else None
        term = TERM_1._replace(
            number=self.terms, id=self.terms.to_bytes(16, "big"), parent=parent, start_lsn=start
        )
        self.lineage.append(term)
        self.log.open_term(term, start)
        self.writer = None

    def frame(self, count: int) -> None:
        first, term = len(self.records) + 1, self.lineage[-1]
        records = [record(number) for number in range(first, first + count)]
        if first == term.start_lsn:
            records[0] = term_record(term)
        frame = encode_frame(records, term.number, term.id, first, self.durable)
        self.log.append(frame, first, first + count - 1, records[-1][0])
        self.records += [plain(one) for one in records]
        if self.writer is not None:
            self.writer.add_frames(frame)

    def sync(self, _: int) -> None:
        self.durable = max(self.durable, self.log.sync())
        self.log.publish_commit(self.durable)

    def begin_snapshot(self, _: int) -> None:
        lsn = len(self.records)
        lineage = tuple(term for term in self.lineage if term.start_lsn <= lsn)
        if self.lineage[-1] in lineage:
            self.writer = SnapshotWriter(self.disk, SnapshotHeader(CLUSTER, NODE, lineage, lsn))
            self.writer.add_rows(1, [[lsn, one] for lsn, one in enumerate(self.records, 1)])

    def snapshot(self, frames: int) -> None:
        if self.writer is None:
            self.begin_snapshot(0)
        for _ in range(frames):
            self.frame(1)
        if self.writer is not None:
            lsn = len(self.records)
            self.writer.finish(lsn, EPOCH_US)
            self.writer = None
            self.durable = max(self.durable, lsn)
            self.snapshot_lsns.append(lsn)
            prune(self.disk)

    def trim(self, _: int) -> None:
        if len(self.snapshot_lsns) > 1:
            self.log.trim(self.snapshot_lsns[-2] + 1)

    def cut(self, back: int) -> None:
        """A rewind to a point no snapshot has passed."""
        lsn = max(len(self.records) - back, self.log.first_lsn, *self.snapshot_lsns[-2:], 0) + 1
        if lsn > len(self.records):
            return
        self.log.truncate_from(lsn)
        del self.records[lsn - 1 :]
        self.durable = min(self.durable, lsn - 1)
        self.term(0)

    def restart(self, _: int) -> None:
        """A kill: what was written stays, synced or not."""
        self.recovered(len(self.records))

    def crash(self, seed: int) -> None:
        self.disk.crash(Random(seed))
        self.recovered(self.durable)

    def recovered(self, at_least: int) -> None:
        verification = verify(self.disk)
        list(verification)
        assert verification.ok, verification.problems
        sink = Collect()
        found = recover(self.disk, sink)
        state = [row[1] for _, row in sink.row_list]
        for lsn, one in sink.lenient + sink.strict:
            assert lsn == len(state) + 1
            state.append(one)
        assert state == self.records[: len(state)]
        assert len(state) >= at_least
        assert found.last_lsn == len(state)
        assert found.lineage == [t for t in self.lineage if t.start_lsn <= len(state)]
        self.records = state
        self.durable = len(state)
        self.snapshot_lsns = [lsn for lsn in self.snapshot_lsns if lsn <= found.snapshot_lsn]
        self.log = open_log(self.disk, found, self.segment_bytes)
        self.writer = None
        self.term(0)


@given(
    st.integers(SEGMENT_HEADER_SIZE + 1, SEGMENT_HEADER_SIZE + 2_000),
    st.lists(STEPS, min_size=5, max_size=60),
    st.integers(0, 2**32),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_was_synced_is_recovered(
    segment_bytes: int, steps: list[tuple[str, int]], seed: int
) -> None:
    machine = Machine(segment_bytes)
    for name, argument in steps:
        getattr(machine, name)(argument)
    machine.crash(seed)
    machine.frame(1)
    machine.restart(0)


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_found_after_a_kill_survives_a_later_power_cut(seed: int) -> None:
    """Killed between the creation of a segment and the sync of its directory entry."""
    writing = Writing(MemoryDisk(), SEGMENT_HEADER_SIZE + 1)
    writing.frame(2)
    writing.disk.fail("sync_dir")
    with pytest.raises(StorageError):
        writing.frame(2)
    writing.reopen(1 << 20)
    writing.log.open_term(writing.term, writing.next_lsn)
    writing.frame(2)
    synced = writing.log.sync()
    writing.disk.crash(Random(seed))
    assert loaded(writing.disk)[0].last_lsn >= synced
