"""Appending, rolling, reading back for replicas, trimming, cutting for a rewind."""

from __future__ import annotations

import threading
from random import Random

import pytest

from tandemq.log.blocks import WINDOW_BYTES
from tandemq.log.disk import Disk
from tandemq.log.rescue import read_rescue, rescue_names
from tandemq.log.segment import INDEX_BYTES, SEGMENT_HEADER_SIZE, SegmentReader, segment_names
from tandemq.log.snapshot import SnapshotHeader
from tandemq.model.errors import StorageError
from tandemq.model.record import decode_body, decode_header, encode_frame, frame_body
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
    small_log,
)


def unpacked(frame: bytes, term_id: bytes) -> list[tuple[int, object]]:
    header = decode_header(frame)
    records = decode_body(frame_body(frame, 0, header, term_id), header.count)
    return list(enumerate(map(plain, records), header.first_lsn))


def test_what_is_written_comes_back(disk: Disk) -> None:
    writing = Writing(disk)
    for count in (1, 5, 2, 9, 30, 1, 1):
        writing.frame(count)
    assert writing.log.sync() == 49
    assert writing.log.last_lsn == writing.log.synced_lsn == 49
    writing.log.publish_commit(48)
    writing.log.close()
    found, sink = loaded(disk)
    assert sink.strict == writing.records
    assert found.reports == []
    assert found.lineage == [TERM_1]
    assert (found.last_lsn, found.commit_lsn, found.records) == (49, 48, 49)
    assert found.last_time_us == EPOCH_US + 49_000
    assert len(found.segments) > 1


def test_segments_roll_by_size_and_are_sealed_with_a_footer() -> None:
    writing = Writing(MemoryDisk(), segment_bytes=2_000)
    for _ in range(40):
        writing.frame(3)
    segments = writing.log.segments
    assert len(segments) > 3
    assert [s.sealed for s in segments] == [True] * (len(segments) - 1) + [False]
    assert sum(s.records for s in segments) == 120
    assert writing.log.size_bytes == sum(writing.disk.size(s.name) for s in segments)
    for info in segments[:-1]:
        assert info.size >= 2_000
        reader = SegmentReader(writing.disk, info.name, writing.meta)
        footer = reader.peek_footer()
        assert footer is not None
        assert (footer.first_lsn, footer.last_lsn) == (info.first_lsn, info.last_lsn)
        assert footer.records == info.records
        assert footer.first_time_us <= footer.last_time_us == EPOCH_US + info.last_lsn * 1_000


def test_one_write_for_a_frame_and_three_syncs_for_a_roll() -> None:
    disk = MemoryDisk()
    writing = Writing(disk, segment_bytes=SEGMENT_HEADER_SIZE + 1)
    before = disk.counts.copy()
    writing.frame(100)
    assert disk.counts - before == {"append": 1}
    before = disk.counts.copy()
    writing.frame(100)
    # Footer, header, frame; old segment, new segment; directory.
    assert disk.counts - before == {
        "append": 3,
        "sync": 2,
        "sync_dir": 1,
        "create": 1,
        "close": 1,
    }


def test_a_new_term_starts_a_new_segment_and_the_same_term_goes_on() -> None:
    writing = small_log()
    assert len(segment_names(writing.disk)) == 2
    found, _ = writing.reopen()
    assert [term.number for term in found.lineage] == [1, 2]
    writing.log.open_term(writing.term, writing.next_lsn)
    writing.frame(2)
    assert len(writing.log.segments) == 2
    writing.log.close()
    found, sink = loaded(writing.disk)
    assert sink.strict == writing.records
    assert len(found.segments) == 2


def test_a_term_without_records_leaves_no_trace() -> None:
    writing = Writing(MemoryDisk())
    writing.frame(2)
    empty = next_term(TERM_1, 3)
    writing.log.open_term(empty, 3)
    writing.log.close()
    found, _ = writing.reopen()
    assert found.lineage == [TERM_1]
    other = next_term(TERM_1, 3)._replace(id=b"z" * 16)
    writing.log.open_term(other, 3)
    writing.term = other
    writing.frame(1)
    writing.log.close()
    found, sink = loaded(writing.disk)
    assert found.lineage == [TERM_1, other]
    assert sink.strict == writing.records


def test_what_recovery_would_refuse_is_not_written() -> None:
    writing = Writing(MemoryDisk())
    log = writing.log
    frame = encode_frame([record(1), record(2)], 1, TERM_1.id, 1, 0)
    for first, last in ((2, 3), (1, 3), (0, 1)):
        with pytest.raises(StorageError, match="does not continue"):
            log.append(frame, first, last, EPOCH_US)
    with pytest.raises(StorageError, match="does not continue"):
        log.append(encode_frame([record(1)], 2, TERM_1.id, 1, 0), 1, 1, EPOCH_US)
    with pytest.raises(StorageError, match="LSN 5 does not follow 0"):
        log.open_term(TERM_1, 5)
    writing.frame(2)
    with pytest.raises(StorageError, match="cannot follow"):
        log.open_term(TERM_1._replace(number=2, id=b"2" * 16), 3)
    with pytest.raises(StorageError, match="cannot follow"):
        log.open_term(next_term(TERM_1, 2), 3)
    # Refusing a frame is the caller's mistake, not the disk's: the log goes on.
    assert log.failure is None
    writing.frame(2)


def test_append_before_open_term_and_after_close_is_refused() -> None:
    writing = small_log()
    frame = encode_frame([record(11)], 2, writing.term.id, 11, 0)
    with pytest.raises(StorageError, match="not open for a term"):
        writing.log.append(frame, 11, 11, EPOCH_US)
    disk = MemoryDisk()
    with pytest.raises(StorageError, match="not open for a term"):
        Log(disk, Writing(disk).meta).append(frame, 11, 11, EPOCH_US)


def test_commit_is_published_beside_the_log_and_never_goes_back() -> None:
    writing = Writing(MemoryDisk())
    writing.frame(5)
    writing.log.publish_commit(4)
    before = writing.disk.contents()["commit"]
    writing.log.publish_commit(3)
    assert writing.disk.contents()["commit"] == before
    with pytest.raises(AssertionError, match="commit 6 is past the last record 5"):
        writing.log.publish_commit(6)


def test_sync_in_another_thread_outlives_a_roll() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class SlowDisk(MemoryDisk):
        slow = False

        def sync(self, handle: int) -> None:
            if self.slow:
                self.slow = False
                entered.set()
                assert go_on.wait(10)
                assert handle in self._handles, "the handle was closed under a running sync"
            super().sync(handle)

    disk = SlowDisk()
    writing = Writing(disk, segment_bytes=SEGMENT_HEADER_SIZE + 1)
    writing.frame(3)
    disk.slow = True
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(writing.log.sync()))
    thread.start()
    assert entered.wait(10)
    writing.frame(3)
    assert len(writing.log.segments) == 2
    go_on.set()
    thread.join(10)
    assert results == [3]
    assert writing.log.sync() == 6
    assert len(disk._handles) == 1
    writing.log.close()
    assert not disk._handles


@pytest.mark.parametrize("start", [1, 2, 7, 11, 24, 59, 60])
def test_read_from_gives_the_very_frames(disk: Disk, start: int) -> None:
    writing = Writing(disk)
    for _ in range(20):
        writing.frame(3)
    read = list(writing.log.read_from(start))
    assert [frame for _, frame in read] == writing.frames[(start - 1) // 3 :]
    assert read[0][0].first_lsn <= start <= read[0][0].last_lsn
    assert list(writing.log.read_from(61)) == []


def test_read_from_sees_what_is_appended_meanwhile() -> None:
    writing = Writing(MemoryDisk())
    for _ in range(4):
        writing.frame(4)
    reading = writing.log.read_from(5)
    assert next(reading)[0].first_lsn == 5
    writing.new_term()
    for _ in range(8):
        writing.frame(4)
    assert [header.first_lsn for header, _ in reading] == list(range(9, 49, 4))


def test_read_from_begins_near_the_wanted_frame() -> None:
    writing = Writing(MemoryDisk(), segment_bytes=64 << 20)
    while writing.log.size_bytes < 4 * WINDOW_BYTES:
        writing.frame(2_000)
    writing.log.close()
    writing.reopen(64 << 20)
    read_bytes = 0

    class CountingDisk(MemoryDisk):
        def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
            nonlocal read_bytes
            data = super().read(name, position, length)
            read_bytes += len(data)
            return data

    counting = CountingDisk(writing.disk.contents())
    log = Log(counting, writing.meta, 64 << 20, writing.log.segments, writing.next_lsn)
    wanted = writing.next_lsn - 1
    assert [header.last_lsn for header, _ in log.read_from(wanted)] == [wanted]
    assert 0 < read_bytes < 2 * INDEX_BYTES
    read_bytes = 0
    assert next(log.read_from(1))[0].first_lsn == 1
    assert 0 < read_bytes <= WINDOW_BYTES + SEGMENT_HEADER_SIZE


def test_trim_removes_whole_segments_below_and_never_the_newest() -> None:
    writing = Writing(MemoryDisk())
    for _ in range(30):
        writing.frame(3)
    first, second, *_ = writing.log.segments
    assert writing.log.trim(first.last_lsn) == []
    assert writing.log.trim(second.last_lsn) == [first.name]
    assert writing.log.first_lsn == second.first_lsn
    with pytest.raises(StorageError, match=f"LSN 1 is gone, the log starts at {second.first_lsn}"):
        next(writing.log.read_from(1))
    writing.log.trim(1_000)
    assert len(writing.log.segments) == 1
    assert segment_names(writing.disk) == [writing.log.segments[0].name]
    writing.frame(1)


def test_an_interrupted_trim_leaves_no_gap() -> None:
    for seed in range(20):
        writing = Writing(MemoryDisk(), SEGMENT_HEADER_SIZE + 1)
        for _ in range(8):
            writing.frame(1)
        writing.log.sync()
        SnapshotWriter(writing.disk, SnapshotHeader(CLUSTER, NODE, (TERM_1,), 8)).finish(8, 1)
        writing.disk.fail("sync_dir", 4)
        with pytest.raises(StorageError, match="sync_dir"):
            writing.log.trim(8)
        writing.disk.crash(Random(seed))
        found, _ = loaded(writing.disk)
        assert [s.first_lsn for s in found.segments] in ([4, 5, 6, 7, 8], [5, 6, 7, 8])


def test_after_a_trim_that_failed_half_way_the_log_is_read_and_trimmed_again() -> None:
    writing = Writing(MemoryDisk(), SEGMENT_HEADER_SIZE + 1)
    for _ in range(8):
        writing.frame(1)
    writing.disk.fail("sync_dir", 2)
    with pytest.raises(StorageError, match="sync_dir"):
        writing.log.trim(6)
    first = writing.log.first_lsn
    assert [header.first_lsn for header, _ in writing.log.read_from(first)] == list(range(first, 9))
    assert writing.log.trim(6)
    assert [header.first_lsn for header, _ in writing.log.read_from(6)] == [6, 7, 8]


@pytest.mark.parametrize("lsn", range(1, 12))
def test_a_cut_at_any_record_saves_the_rest_and_the_log_goes_on(lsn: int) -> None:
    writing = small_log()
    all_records, terms = writing.records, [TERM_1, writing.term]
    writing.reopen()
    cut = writing.log.truncate_from(lsn)
    assert (cut.first_lsn, cut.last_lsn, cut.records) == (lsn, 10, 11 - lsn)
    assert cut.rescue == rescue_names(writing.disk)
    saved = []
    for name in cut.rescue:
        for header, frame, records in read_rescue(writing.disk, writing.meta, name):
            assert unpacked(frame, terms[header.term - 1].id) == list(
                enumerate(map(plain, records), header.first_lsn)
            )
            saved += unpacked(frame, terms[header.term - 1].id)
    assert saved == all_records[lsn - 1 :]
    writing.records = all_records[: lsn - 1]
    kept = TERM_1 if lsn <= 6 else terms[1]
    winner = kept._replace(number=7, id=b"w" * 16, parent=kept.id if lsn > 1 else None)
    writing.term = winner._replace(start_lsn=lsn)
    writing.log.open_term(writing.term, lsn)
    writing.frame(2)
    writing.log.close()
    found, sink = loaded(writing.disk)
    assert sink.strict == writing.records
    assert found.lineage[-1] == writing.term
    assert found.reports == []


def test_a_cut_takes_the_commit_down_with_it_and_refuses_what_is_gone() -> None:
    writing = small_log()
    writing.reopen()
    writing.log.publish_commit(9)
    assert writing.log.truncate_from(11).records == 0
    writing.log.truncate_from(8)
    assert writing.log.commit_lsn == 7
    assert loaded(writing.disk)[0].commit_lsn == 7
    writing.log.trim(7)
    with pytest.raises(StorageError, match="LSN 3 is gone"):
        writing.log.truncate_from(3)


def many_segments() -> Writing:
    """Three segments of one term, ten records, all committed."""
    writing = Writing(MemoryDisk(), SEGMENT_HEADER_SIZE + 200)
    for count in (3, 2, 4, 1):
        writing.frame(count)
    writing.log.publish_commit(10)
    writing.log.close()
    assert len(segment_names(writing.disk)) == 3
    return writing


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize("lsn", [2, 3, 5, 6, 7, 8])
def test_a_cut_interrupted_after_each_operation_loses_nothing(
    lsn: int, terms: int, power_cut: bool
) -> None:
    original = many_segments() if terms == 1 else small_log((3, 2, 4, 1), (1, 2))
    step = 0
    while True:
        step += 1
        disk = MemoryDisk(original.disk.contents())
        found, _ = loaded(disk)
        log = open_log(disk, found)
        if not _fails_at(disk, step, lambda log=log: log.truncate_from(lsn)):
            break
        assert log.failure is not None
        if power_cut:
            disk.crash(Random(step))
        found, sink = loaded(disk)
        assert sink.strict == original.records[: found.last_lsn]
        assert found.last_lsn >= lsn - 1
        open_log(disk, found).truncate_from(lsn)
        assert loaded(disk)[0].last_lsn == lsn - 1
        saved: list[object] = []
        for name in rescue_names(disk):
            for header, _frame, records in read_rescue(disk, found.meta, name):
                saved += enumerate(map(plain, records), header.first_lsn)
        assert saved == original.records[lsn - 1 :]
    assert step > 5


def _fails_at(disk: MemoryDisk, step: int, action: object) -> bool:
    """Run `action` with its `step`th changing operation failing; False if it had fewer."""
    left = step

    def count(operation: str, name: str) -> int:
        nonlocal left
        if operation in ("append", "sync", "rename", "remove", "truncate", "sync_dir", "create"):
            left -= 1
            if left == 0:
                raise StorageError(name, 0, f"{operation}: failed on purpose")
        return 0

    disk._enter = count  # type: ignore[method-assign]
    try:
        action()  # type: ignore[operator]
    except StorageError as error:
        assert "on purpose" in error.reason
        return True
    finally:
        del disk._enter
    return False


def test_a_frame_that_leaves_a_gap_is_refused() -> None:
    writing = Writing(MemoryDisk())
    writing.frame(2)
    ahead = encode_frame([record(4)], 1, TERM_1.id, 4, 0)
    with pytest.raises(StorageError, match="does not continue term 1 at LSN 3"):
        writing.log.append(ahead, 4, 4, EPOCH_US)
    writing.frame(1)
    assert writing.log.last_lsn == 3


def test_a_footer_that_says_other_counts_is_refused() -> None:
    writing = Writing(MemoryDisk(), segment_bytes=20_000)
    writing.frame(2)
    writing.frame(2)
    [info] = writing.log.segments
    info.frames += 1
    writing.new_term()
    writing.log.sync()
    reader = SegmentReader(writing.disk, segment_names(writing.disk)[0], writing.meta)
    with pytest.raises(StorageError, match="footer says"):
        list(reader.frames())
