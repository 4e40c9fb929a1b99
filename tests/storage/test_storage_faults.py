"""Each named disk operation fails once, at every call: the log stops, nothing acknowledged goes."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from tandemq.log.disk import OPERATIONS
from tandemq.log.meta import open_meta
from tandemq.log.snapshot import SnapshotHeader, prune
from tandemq.model.errors import StorageError
from tandemq.model.record import encode_frame
from tandemq_server.storage.log import Log
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import open_log
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_samples import (
    CLUSTER,
    EPOCH_US,
    NODE,
    TERM_1,
    Writing,
    loaded,
    next_term,
    plain,
    record,
    term_record,
)


class Scenario:
    """A busy little life of a log. `acked` is what a client was told is durable."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.meta = open_meta(disk, CLUSTER, NODE, EPOCH_US)
        self.log = Log(disk, self.meta, 1_400)
        self.tried: list[tuple[int, Any]] = []
        self.acked = 0
        self.term = TERM_1

    def run(self) -> None:
        self.log.open_term(self.term, 1)
        for turn in range(9):
            if turn == 5:
                self.term = next_term(TERM_1, self.log.last_lsn + 1)
                self.log.open_term(self.term, self.term.start_lsn)
            self._turn(2 + turn % 2)
            if turn == 3:
                self._snapshot()
        self._snapshot()
        prune(self.disk, 1)
        self.log.trim(10)
        assert list(self.log.read_from(self.log.first_lsn))
        self.log.close()

    def _turn(self, count: int) -> None:
        first = self.log.last_lsn + 1
        records = [record(number) for number in range(first, first + count)]
        if first == self.term.start_lsn:
            records[0] = term_record(self.term)
        self.tried += enumerate((plain(one) for one in records), first)
        frame = encode_frame(records, self.term.number, self.term.id, first, self.acked)
        self.log.append(frame, first, first + count - 1, records[-1][0])
        assert self.log.sync() == first + count - 1
        self.acked = first + count - 1
        self.log.publish_commit(self.acked)

    def _snapshot(self) -> None:
        """Every record as a row: what is recovered can be compared to what was written."""
        lineage = (TERM_1,) if self.term is TERM_1 else (TERM_1, self.term)
        header = SnapshotHeader(CLUSTER, NODE, lineage, self.log.last_lsn)
        writer = SnapshotWriter(self.disk, header)
        writer.add_rows(1, [list(one) for one in self.tried])
        writer.finish(self.log.last_lsn, EPOCH_US)


def check(scenario: Scenario, disk: MemoryDisk) -> None:
    """Re-open: all that was acknowledged is there, in order, and the log can go on."""
    found, sink = loaded(disk)
    records = [(row[0], row[1]) for _, row in sink.row_list] + sink.strict
    assert records == scenario.tried[: len(records)]
    assert found.last_lsn == len(records) >= scenario.acked
    log = open_log(disk, found, 1_400)
    parent = found.lineage[-1].id if found.lineage else None
    term = TERM_1._replace(number=9, id=b"9" * 16, parent=parent, start_lsn=found.next_lsn)
    log.open_term(term, found.next_lsn)
    frame = encode_frame([record(1)], 9, term.id, found.next_lsn, 0)
    log.append(frame, found.next_lsn, found.next_lsn, EPOCH_US)
    log.close()
    assert loaded(disk)[0].last_lsn == found.last_lsn + 1


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize(
    ("operation", "error"),
    [(name, error) for name in OPERATIONS for error in (errno.EIO, errno.ENOSPC)] + [("append", 0)],
)
def test_any_operation_may_fail(operation: str, error: int, power_cut: bool) -> None:
    """`error` 0 is a short write."""
    calls = 0
    while True:
        calls += 1
        disk = MemoryDisk()
        scenario = Scenario(disk)
        if error:
            disk.fail(operation, calls, error)
        else:
            disk.short_write(calls)
        try:
            scenario.run()
        except StorageError as failure:
            assert str(failure)
            _refuses_from_now_on(scenario, operation)
        else:
            if disk._faults:
                break
            assert operation == "append", "the failure of an operation went unnoticed"
        if power_cut:
            disk.crash(Random(calls))
        disk._faults.clear()
        check(scenario, disk)
    assert calls > 1 or operation in ("truncate", "settle", "free", "open", "size")


def _refuses_from_now_on(scenario: Scenario, operation: str) -> None:
    """Once a write or a sync of the log failed, it takes nothing more, and says why."""
    log, term = scenario.log, scenario.term
    if log.failure is None:
        # It failed beside the log: in a snapshot, a removal, a reading.
        return
    first = log.last_lsn + 1
    frame = encode_frame([record(first)], term.number, term.id, first, 0)
    counts = scenario.disk.counts.copy()
    for _ in range(2):
        with pytest.raises(StorageError, match=f"stopped at its first error: .*{operation}"):
            log.append(frame, first, first, EPOCH_US)
        with pytest.raises(StorageError, match="stopped at its first error"):
            log.sync()
        with pytest.raises(StorageError, match="stopped at its first error"):
            log.publish_commit(first)
        with pytest.raises(StorageError, match="stopped at its first error"):
            log.open_term(term, first)
    assert scenario.disk.counts == counts, "the disk was touched after it failed"
    log.close()
    assert scenario.disk.counts["sync"] == counts["sync"], "a failed sync was repeated"


def test_a_disk_that_takes_nothing_at_all_is_given_up() -> None:
    class Stuck(MemoryDisk):
        stuck = False

        def append(self, handle: int, data: bytes) -> int:
            return 0 if self.stuck else super().append(handle, data)

    disk = Stuck()
    writing = Writing(disk)
    writing.frame(1)
    disk.stuck = True
    with pytest.raises(StorageError, match="takes no more bytes"):
        writing.frame(1)
    assert writing.log.failure is not None


@pytest.mark.parametrize("operation", ["read", "list", "size", "settle", "truncate", "remove"])
def test_recovery_that_fails_can_be_run_again(operation: str) -> None:
    calls = 0
    while True:
        calls += 1
        writing = Writing(MemoryDisk())
        for _ in range(6):
            writing.frame(4)
        writing.log.close()
        writing.disk.create("rubbish.inprogress")
        name = writing.log.segments[-1].name
        writing.disk.truncate(name, writing.disk.size(name) - 1)
        writing.disk.fail(operation, calls)
        try:
            loaded(writing.disk)
        except StorageError as failure:
            assert operation in str(failure)
        if writing.disk._faults:
            break
        _, sink = loaded(writing.disk)
        assert sink.strict == writing.records[:20]
    assert calls > 1
