"""Every length and every flipped bit of a small directory: a reported clean prefix, or a refusal.

The promise: never silently wrong. What comes back equals what was written, or is a prefix of it
with the cut reported and only the end of the newest file damaged; or the file is named.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tandemq.log.meta import encode_commit
from tandemq.log.segment import SEGMENT_HEADER_SIZE, segment_names
from tandemq.model.errors import StorageError
from tandemq_server.storage.inspection import verify
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import Recovered, recover
from tests.storage.storage_samples import Collect, Writing, small_log, small_snapshot


@pytest.fixture(scope="module")
def writing() -> Writing:
    """Two segments of two terms, six frames, ten records; the newest is open."""
    return small_log((2, 1, 2, 2, 1, 2), (3,))


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(byte position, data with one bit of it flipped), for every bit."""
    flipped = bytearray(data)
    for position in range(len(data)):
        for bit in range(8):
            flipped[position] ^= 1 << bit
            yield position, bytes(flipped)
            flipped[position] ^= 1 << bit


def outcome(
    files: dict[str, bytes], name: str, data: bytes
) -> tuple[Recovered, Collect] | StorageError:
    sink = Collect()
    try:
        return recover(MemoryDisk({**files, name: data}), sink), sink
    except StorageError as error:
        assert error.file == name or name in str(error), f"{error} does not name {name}"
        assert "\n" not in str(error)
        return error


def frame_starts(writing: Writing, first_frame: int) -> list[int]:
    """Where the frames of a segment begin, and where the last one ends."""
    starts = [SEGMENT_HEADER_SIZE]
    for frame in writing.frames[first_frame:]:
        starts.append(starts[-1] + len(frame))
    return starts


def test_every_length_of_the_newest_segment_is_a_reported_prefix(writing: Writing) -> None:
    files = writing.disk.contents()
    name = segment_names(writing.disk)[-1]
    starts = frame_starts(writing, 3)
    counts = [5, 7, 8, 10]
    for size in range(len(files[name])):
        result = outcome(files, name, files[name][:size])
        assert not isinstance(result, StorageError), f"refused at {size}: {result}"
        found, sink = result
        whole = sum(start <= size for start in starts) - 1 if size >= starts[0] else 0
        assert sink.strict == writing.records[: counts[whole]]
        clean = starts[whole] if size >= starts[0] else 0
        assert found.cut_bytes == size - clean
        assert bool(found.reports) == (size not in starts), size
        assert all(name in report for report in found.reports)


def test_every_length_is_refused_where_the_lost_records_were_committed(writing: Writing) -> None:
    files = {**writing.disk.contents(), "commit": encode_commit(10)}
    name = segment_names(writing.disk)[-1]
    for size in range(len(files[name])):
        assert isinstance(outcome(files, name, files[name][:size]), StorageError), size


def test_every_length_of_a_sealed_segment_is_refused(writing: Writing) -> None:
    files = writing.disk.contents()
    name = segment_names(writing.disk)[0]
    for size in range(len(files[name])):
        assert isinstance(outcome(files, name, files[name][:size]), StorageError), size


def test_every_flip_in_a_sealed_segment_is_refused(writing: Writing) -> None:
    files = writing.disk.contents()
    name = segment_names(writing.disk)[0]
    for position, data in flips(files[name]):
        assert isinstance(outcome(files, name, data), StorageError), position


def test_every_flip_in_the_newest_segment_is_refused_or_a_reported_cut_of_its_last_frame(
    writing: Writing,
) -> None:
    """A flip in the last frame looks like a torn write; it is cut, and said."""
    files = writing.disk.contents()
    name = segment_names(writing.disk)[-1]
    last = frame_starts(writing, 3)[-2]
    for position, data in flips(files[name]):
        result = outcome(files, name, data)
        if position < last:
            assert isinstance(result, StorageError), position
            continue
        assert not isinstance(result, StorageError), f"{position}: {result}"
        found, sink = result
        assert sink.strict == writing.records[:8]
        assert found.cut_bytes == len(files[name]) - last
        assert len(found.reports) == 1
        assert (
            f"{name}: cut {found.cut_bytes} bytes of torn tail at byte {last}" in found.reports[0]
        )


def test_every_flip_in_committed_records_is_refused(writing: Writing) -> None:
    files = {**writing.disk.contents(), "commit": encode_commit(9)}
    name = segment_names(writing.disk)[-1]
    last = frame_starts(writing, 3)[-2]
    for position, data in flips(files[name]):
        if position >= last:
            assert isinstance(outcome(files, name, data), StorageError), position


def test_every_flip_in_the_footer_of_a_sealed_newest_segment_loses_no_record() -> None:
    """A crash between the seal of one segment and the creation of the next."""
    writing = small_log((2, 1, 2), (2,))
    names = segment_names(writing.disk)
    files = writing.disk.contents()
    del files[names[1]]
    _, last, first = frame_starts(writing, 0)[:3]
    committed = {**files, "commit": encode_commit(3)}
    for position, data in flips(files[names[0]]):
        result = outcome(files, names[0], data)
        if position < last:
            assert isinstance(result, StorageError), position
            continue
        if position < first:
            # Its last frame, which nothing in the file proves to be synced.
            if position % 8 == 0:
                assert isinstance(outcome(committed, names[0], data), StorageError), position
            assert not isinstance(result, StorageError)
            assert result[1].strict == writing.records[:2]
            continue
        assert not isinstance(result, StorageError)
        assert result[1].strict == writing.records[:3]
        assert result[0].cut_bytes > 0
        assert len(result[0].reports) == 1


def test_every_flip_in_a_snapshot_falls_back_to_the_whole_log_or_is_refused() -> None:
    base = Writing(MemoryDisk())
    base.frame(5)
    base.log.close()
    name = small_snapshot(base.disk, base.meta, 0)
    files = base.disk.contents()
    alone = {key: data for key, data in files.items() if not key.endswith(".wal")}
    for position, data in flips(files[name]):
        result = outcome(files, name, data)
        assert not isinstance(result, StorageError), f"{position}: {result}"
        assert result[0].snapshot is None
        assert result[1].strict == base.records
        assert name in result[0].reports[0]
        if position % 16 == 0:
            assert isinstance(outcome(alone, name, data), StorageError), position


def test_verify_finds_every_flip_and_changes_nothing(writing: Writing) -> None:
    files = writing.disk.contents()
    for name in segment_names(writing.disk):
        for position, data in flips(files[name]):
            if position % 8:
                continue
            disk = MemoryDisk({**files, name: data})
            verification = verify(disk)
            reports = {report.name: report for report in verification}
            assert reports[name].problem is not None, position
            assert name in reports[name].problem
            assert verification.done_bytes == verification.total_bytes
            assert verification.problems or verification.notes
            assert disk.contents()[name] == data
