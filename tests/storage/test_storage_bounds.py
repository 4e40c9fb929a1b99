"""One rule for what is written and what is read: nothing is written that a reader refuses."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tandemq.log.blocks import BLOCK_SIZE
from tandemq.log.meta import Meta
from tandemq.log.segment import SEGMENT_HEADER_SIZE, SegmentReader
from tandemq.log.snapshot import (
    ROWS_MAGIC,
    SnapshotHeader,
    SnapshotReader,
    put_bad_aside,
    read_snapshot,
    snapshot_names,
    verify_snapshot,
)
from tandemq.model import bounds
from tandemq.model.bounds import BIG_BYTES, FRAME_BODY_BYTES_AIM, TooLarge
from tandemq.model.errors import QueueError, StorageError
from tandemq.model.record import (
    HEADER_SIZE,
    INSERT,
    KIND_PUT,
    check_record,
    decode_body,
    decode_header,
    encode_frame,
    encode_frames,
    frame_body,
)
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage import frozen_writer as old
from tests.storage.storage_samples import CLUSTER, NODE, SESSION, TERM_1, Writing, loaded, record

HEADER = SnapshotHeader(CLUSTER, NODE, (TERM_1,), 10)
META = Meta(CLUSTER, NODE, 1)
#: More than the limit of 8ab7980's reader.
OVER = (256 << 20) + 1


def rows_of(size: int, count: int) -> list[tuple[int, str, bytes]]:
    return [(n, "r", bytes([n % 256]) * size) for n in range(count)]


def blocks_of(disk: MemoryDisk, name: str) -> Iterator[tuple[bytes, int]]:
    reader = SnapshotReader(disk, name, CLUSTER)
    at = reader.position
    for magic, _, _ in reader.blocks():
        yield magic, reader.position - at
        at = reader.position


def test_rows_go_into_blocks_of_bounded_bytes() -> None:
    disk = MemoryDisk()
    writer = SnapshotWriter(disk, HEADER)
    writer.add_catalogue([])
    large = [(7, "r", b"x" * (2 * FRAME_BODY_BYTES_AIM))]
    many = rows_of(100_000, 200)
    writer.add_rows(1024, many)
    writer.add_rows(1025, large)
    name = writer.finish(10, 1)
    sizes = [size for magic, size in blocks_of(disk, name) if magic == ROWS_MAGIC]
    assert max(sizes[:-1]) <= FRAME_BODY_BYTES_AIM + BLOCK_SIZE < sizes[-1]
    assert len(sizes) > 5
    found: dict[int, list[Any]] = {}
    for part in read_snapshot(disk, name, META):
        if part[0] == "rows":
            found.setdefault(part[1], []).extend(tuple(row) for row in part[2])
    assert found == {1024: many, 1025: large}


def test_a_catalogue_goes_into_blocks_of_bounded_bytes() -> None:
    disk = MemoryDisk()
    writer = SnapshotWriter(disk, HEADER)
    ops = [(4, 1024 + n, f"tube{n}", "fifo", {"note": "x" * 100_000}, 0) for n in range(100)]
    writer.add_catalogue(ops)
    name = writer.finish(10, 1)
    read = [
        op for part in read_snapshot(disk, name, META) if part[0] == "catalogue" for op in part[1]
    ]
    assert [tuple(op) for op in read] == ops
    assert max(size for _, size in blocks_of(disk, name)) <= FRAME_BODY_BYTES_AIM + BLOCK_SIZE


def test_a_turn_becomes_as_many_frames_as_it_wants() -> None:
    payloads = [3_000_000, 3_000_000, 10, 10, 9_000_000, 10, 3_000_000]
    records = [
        (n, KIND_PUT, SESSION, [(INSERT, 1024, [n, "r", b"x" * size])])
        for n, size in enumerate(payloads)
    ]
    frames = encode_frames(records, 1, TERM_1.id, 5, 4)
    assert [(first, last) for _, first, last in frames] == [(5, 5), (6, 8), (9, 9), (10, 11)]
    again = []
    for frame, first, last in frames:
        header = decode_header(frame)
        assert (header.first_lsn, header.last_lsn, header.commit_lsn) == (first, last, 4)
        assert header.length <= FRAME_BODY_BYTES_AIM or header.count == 1
        again += decode_body(frame_body(frame, 0, header, TERM_1.id), header.count)
    assert [(one[0], one[3][0][2][2]) for one in again] == [
        (n, b"x" * size) for n, size in enumerate(payloads)
    ]
    few = [record(n) for n in range(3)]
    assert encode_frames(few, 1, TERM_1.id, 5, 4) == [(encode_frame(few, 1, TERM_1.id, 5, 4), 5, 7)]


def test_nothing_is_written_that_no_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.model.record.FRAME_BODY_BYTES_MAX", 10_000)
    monkeypatch.setattr("tandemq.model.record.FRAME_BODY_BYTES_AIM", 5_000)
    large = (1, KIND_PUT, SESSION, [(INSERT, 1024, [1, "r", b"x" * 10_000])])
    for encode in (encode_frame, encode_frames):
        with pytest.raises(TooLarge, match="10000 are the most"):
            encode([large], 1, TERM_1.id, 1, 0)
    with pytest.raises(TooLarge):
        encode_frames([record(1), large], 1, TERM_1.id, 1, 0)
    monkeypatch.setattr("tandemq.log.blocks.LENGTH_MAX", 10_000)
    writer = SnapshotWriter(MemoryDisk(), HEADER)
    with pytest.raises(TooLarge):
        writer.add_rows(1024, [(1, "r", b"x" * 10_000)])


def test_what_a_call_changes_must_fit_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemq.model.record.RECORD_BYTES_MAX", 10_000)
    check_record([(INSERT, 1024, [1, "r", b"x" * 9_000])])
    with pytest.raises(QueueError, match=r"limits\.frame_bytes_max"):
        check_record([(INSERT, 1024, [n, "r", b"x" * 6_000]) for n in (1, 2)])


def test_the_numbers_fit_each_other() -> None:
    # A request whose payload is all of it becomes a record, that a frame, that a message.
    largest = bounds.REQUEST_BYTES_MAX + bounds.RECORD_EXTRA_BYTES + bounds.RECORD_HEAD_BYTES
    assert largest <= bounds.FRAME_BODY_BYTES_MAX + bounds.RECORD_HEAD_BYTES
    assert bounds.RECORD_BYTES_MAX + bounds.FRAME_EXTRA_BYTES <= bounds.FRAME_BODY_BYTES_MAX
    assert bounds.FRAME_BODY_BYTES_MAX + HEADER_SIZE + 1024 <= bounds.MESSAGE_BYTES_MAX
    assert bounds.FRAME_BODY_BYTES_AIM < BIG_BYTES < bounds.FRAME_BODY_BYTES_MAX
    for payload in (1, bounds.MIB, 64 * bounds.MIB, bounds.REQUEST_BYTES_MAX):
        rows = bounds.unmeasured_rows(payload)
        assert rows == 1 or rows * (payload + bounds.RECORD_EXTRA_BYTES) <= bounds.RECORD_BYTES_MAX


# -- what older versions wrote ---------------------------------------------------------------------


def old_directory(path: Path, files: dict[str, Any]) -> FileDisk:
    path.mkdir()
    (path / "meta").write_bytes(old.meta())
    for name, pieces in files.items():
        old.write(path / name, pieces)
    return FileDisk(path)


def test_a_snapshot_block_its_own_version_refused_is_read(tmp_path: Path) -> None:
    """2,000 rows in one block, whatever their size: more than 256 MiB."""
    payload = b"p" * (OVER // 300)
    rows = [[n, "r", payload] for n in range(300)]
    blocks = [(b"TQc1", [*old.TUBE_OPS[:1]]), (b"TQr1", [old.TUBE_ID, rows])]
    disk = old_directory(tmp_path / "data", {f"{7:020d}.snap": old.snapshot(7, blocks, len(rows))})
    tracemalloc.start()
    end = verify_snapshot(disk, f"{7:020d}.snap", old.CLUSTER)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (end.end_lsn, end.rows) == (7, 300)
    assert peak < 8 << 20
    found, sink = loaded(disk)
    disk.release()
    assert found.last_lsn == 7
    assert [(space, list(row)) for space, row in sink.row_list] == [
        (old.TUBE_ID, row) for row in rows
    ]


def test_a_frame_its_own_version_refused_is_read(tmp_path: Path) -> None:
    """What five clients put in one turn stood in one frame."""
    payload = b"p" * (OVER // 5)
    puts = [(old.NOW_US, KIND_PUT, None, [[INSERT, 1024, [n, "r", payload]]]) for n in range(5)]
    first = [(old.NOW_US, 18, None, [[old.TERM_OP, *old.TERM]])]
    frames = [old.frame(first, 1, 0), old.frame(puts, 2, 1)]
    disk = old_directory(tmp_path / "data", {f"{1:020d}.wal": old.segment(frames)})
    found, sink = loaded(disk)
    disk.release()
    assert (found.last_lsn, found.cut_bytes, found.reports) == (6, 0, [])
    assert [lsn for lsn, _ in sink.strict] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("length", [BIG_BYTES + 1, OVER, 0xFFFFFFFF])
def test_a_damaged_length_costs_no_memory(length: int) -> None:
    disk = MemoryDisk()
    writer = SnapshotWriter(disk, HEADER)
    writer.add_catalogue([])
    writer.add_rows(1024, rows_of(100_000, 400))
    name = writer.finish(10, 1)
    reader = SnapshotReader(disk, name, CLUSTER)
    at = reader.position
    next(reader.blocks())
    assert reader.position < at + 100
    data = bytearray(disk.read(name))
    struct.pack_into(">I", data, reader.position + 4, length)
    damaged = MemoryDisk({name: bytes(data)})
    del data
    tracemalloc.start()
    with pytest.raises(StorageError, match=r"CRC is|cut short") as caught:
        verify_snapshot(damaged, name, CLUSTER)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.position == reader.position
    assert peak < 8 << 20


@pytest.mark.parametrize("length", [BIG_BYTES + 1, 0xFFFFFFFF])
def test_a_damaged_length_of_a_frame_costs_no_memory(length: int) -> None:
    writing = Writing(MemoryDisk(), 1 << 30)
    writing.frame(3)
    (info,) = writing.log.segments
    place = info.size
    for lsn in range(4, 34):
        put = (1, KIND_PUT, SESSION, [(INSERT, 1024, [1, "r", b"x" * 1_000_000])])
        writing.log.append(encode_frame([put], 1, TERM_1.id, lsn, 0), lsn, lsn, 1)
    data = bytearray(writing.disk.read(info.name))
    writing.log.close()
    struct.pack_into(">I", data, place + 4, length)
    disk = MemoryDisk({info.name: bytes(data)})
    del data
    tracemalloc.start()
    with pytest.raises(StorageError, match=r"CRC is|cut short") as caught:
        list(SegmentReader(disk, info.name, META).frames())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.position == place >= SEGMENT_HEADER_SIZE
    assert peak < 8 << 20


# -- read back before anybody is told --------------------------------------------------------------


class Lossy(MemoryDisk):
    """A disk that damages a byte on its way to the device."""

    damage_at = -1

    def settle(self, name: str) -> None:
        super().settle(name)
        if self.damage_at >= 0:
            data = bytearray(self.read(name))
            data[self.damage_at] ^= 1
            self.remove(name)
            handle = self.create(name)
            self.append(handle, bytes(data))
            self.sync(handle)
            self.close(handle)


def test_a_snapshot_that_cannot_be_read_back_is_put_aside() -> None:
    disk = Lossy()
    first = SnapshotWriter(disk, HEADER)
    first.add_catalogue([])
    first.add_rows(1024, rows_of(10, 10))
    good = first.finish(10, 1)
    size = disk.size(good)
    for at in (3, 200, size - 1):
        disk.damage_at = at
        writer = SnapshotWriter(disk, SnapshotHeader(CLUSTER, NODE, (TERM_1,), 20 + at))
        writer.add_catalogue([])
        writer.add_rows(1024, rows_of(10, 10))
        with pytest.raises(StorageError, match="read back"):
            writer.finish(20 + at, 1)
        writer.abort()
        assert snapshot_names(disk) == [good]
        assert f"{20 + at:020d}.snap.damaged" in disk.list()


def test_an_end_block_that_counts_other_rows_is_refused() -> None:
    blocks = [(b"TQc1", []), (b"TQr1", [1024, [[1, "r", b"x"]] * 3])]
    data = b"".join(old.snapshot(7, blocks, 4))
    name = f"{7:020d}.snap"
    with pytest.raises(StorageError, match="4 rows, read were 3"):
        verify_snapshot(MemoryDisk({name: data}), name, old.CLUSTER)


def test_older_snapshots_are_read_before_anything_leans_on_them() -> None:
    disk = MemoryDisk()
    names = []
    for lsn in (10, 20, 30):
        writer = SnapshotWriter(disk, SnapshotHeader(CLUSTER, NODE, (TERM_1,), lsn))
        writer.add_catalogue([])
        names.append(writer.finish(lsn, 1))
    data = bytearray(disk.read(names[1]))
    data[-1] ^= 1
    disk = MemoryDisk({**disk.contents(), names[1]: bytes(data)})
    good = {names[2], "gone.snap"}
    (bad,) = put_bad_aside(disk, CLUSTER, good)
    assert bad.file == names[1]
    assert good == {names[0], names[2]} == set(snapshot_names(disk))
    assert names[1] + ".damaged" in disk.list()
