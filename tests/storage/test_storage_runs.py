"""Runs of frames read as they stand in the files: the very bytes, in any portions, from any LSN."""

from __future__ import annotations

import pytest

from tandemq.log.disk import Disk
from tandemq.log.segment import SEGMENT_HEADER_SIZE
from tandemq.model.errors import StorageError
from tandemq.model.record import HEADER_SIZE
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.runs import RunReader
from tests.storage.storage_samples import EPOCH_US, TERM_1, Writing, loaded


def written(disk: Disk) -> Writing:
    writing = Writing(disk)
    for count in (1, 5, 2, 9, 1, 1, 4) * 4:
        writing.frame(count)
    assert len(writing.log.segments) > 3
    return writing


@pytest.mark.parametrize("size", [1, 100, 500, 1 << 20])
def test_portions_joined_are_the_frames_of_the_log(disk: Disk, size: int) -> None:
    writing = written(disk)
    reader, lsn, got = RunReader(disk), 1, b""
    while lsn < writing.next_lsn:
        span, data, term_id = reader.read(writing.log, lsn, size)
        assert (span.first_lsn, term_id) == (lsn, TERM_1.id)
        assert len(data) <= max(size, *map(len, writing.frames))
        got += data
        lsn = span.last_lsn + 1
        if lsn % 3 == 0:
            # As after another downstream was served: nothing depends on what is remembered.
            reader = RunReader(disk)
    assert got == b"".join(writing.frames)


def test_it_begins_with_the_frame_that_holds_the_record() -> None:
    disk = MemoryDisk()
    writing = written(disk)
    for lsn, (at, first) in {1: (0, 1), 2: (1, 2), 6: (1, 2), 8: (2, 7), 17: (3, 9)}.items():
        span, data, _ = RunReader(disk).read(writing.log, lsn, 1)
        assert (span.first_lsn, data) == (first, writing.frames[at])


def test_the_end_of_the_log_and_what_is_appended_meanwhile() -> None:
    disk = MemoryDisk()
    writing = written(disk)
    reader = RunReader(disk)
    last = writing.next_lsn - 1
    assert reader.read(writing.log, last, 1 << 20)[1] == writing.frames[-1]
    for outside in (0, last + 1):
        with pytest.raises(StorageError, match=f"LSN {outside} is not in the log of 1..{last}"):
            reader.read(writing.log, outside, 1 << 20)
    frame = writing.frame(3)
    assert reader.read(writing.log, last + 1, 1 << 20) == ((last + 1, last + 3), frame, TERM_1.id)
    second = writing.new_term()
    frame = writing.frame(2)
    assert reader.read(writing.log, last + 4, 1)[1:] == (frame, second.id)


def test_a_damaged_body_is_shipped_for_its_reader_to_refuse_a_damaged_header_is_not() -> None:
    disk = MemoryDisk()
    writing = Writing(disk, segment_bytes=1 << 20)
    for _ in range(5):
        writing.frame(3)
    name, start = writing.log.segments[0].name, SEGMENT_HEADER_SIZE
    place = start + len(writing.frames[0]) + HEADER_SIZE + 5
    files = disk.contents()

    def damaged(at: int, flip: int = 0x40) -> MemoryDisk:
        data = bytearray(files[name])
        data[at] ^= flip
        return MemoryDisk({**files, name: bytes(data)})

    span, data, _ = RunReader(damaged(place)).read(writing.log, 1, 1 << 20)
    assert span == (1, 15)
    assert data != b"".join(writing.frames)
    # Magic, length, term and first LSN say where a frame begins and what it holds.
    for offset in (0, 4, 12, 16):
        bad = start + len(writing.frames[0]) + offset
        assert RunReader(damaged(bad)).read(writing.log, 1, 1 << 20)[0] == (1, 3)
        with pytest.raises(StorageError, match=f"^{name}: byte {bad - offset}: "):
            RunReader(damaged(bad)).read(writing.log, 4, 1 << 20)


def test_frames_written_in_one_go_are_the_same_log() -> None:
    one, other = MemoryDisk(), MemoryDisk()
    writing, copy = Writing(one), Writing(other)
    for count in (2, 3, 4, 1):
        writing.frame(count)
    copy.frame(2)
    with pytest.raises(StorageError, match="does not continue"):
        copy.log.append(writing.frames[1], 3, 6, EPOCH_US, 1)
    with pytest.raises(StorageError, match="does not continue"):
        copy.log.append(b"".join(writing.frames[1:]), 3, 4, EPOCH_US, 3)
    copy.log.append(b"".join(writing.frames[1:]), 3, 10, EPOCH_US + 9, 3, EPOCH_US + 1)
    assert [frame for _, frame in copy.log.read_from(1)] == writing.frames
    tail = copy.log.segments[-1]
    assert (tail.frames, tail.last_lsn) == (4, 10)
    writing.log.close()
    copy.log.close()
    assert loaded(one)[1].strict == loaded(other)[1].strict == writing.records
