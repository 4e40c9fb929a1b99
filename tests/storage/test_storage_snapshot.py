"""Snapshots: written piecemeal, read back in order, refused at any flip or length but its own."""

from __future__ import annotations

import pytest

from tandemq.log.blocks import WINDOW_BYTES
from tandemq.log.disk import Disk
from tandemq.log.meta import Meta, open_meta
from tandemq.log.segment import FOOTER_MAGIC
from tandemq.log.snapshot import (
    SnapshotFooter,
    SnapshotHeader,
    prune,
    read_snapshot,
    snapshot_name,
    snapshot_names,
    verify_snapshot,
)
from tandemq.model.errors import StorageError
from tandemq.model.record import CREATE, MARK, encode_frame
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import recover
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_samples import (
    CLUSTER,
    EPOCH_US,
    NODE,
    TERM_1,
    Collect,
    Writing,
    loaded,
    next_term,
    plain,
    record,
    small_snapshot,
)

META = Meta(CLUSTER, NODE, EPOCH_US)
HEADER = SnapshotHeader(CLUSTER, NODE, (TERM_1,), 10)


def test_parts_come_back_in_order(disk: Disk) -> None:
    name = small_snapshot(disk, META, 10)
    assert name == "00000000000000000015.snap"
    assert disk.list() == [name]
    second = next_term(TERM_1, 14)
    parts = list(read_snapshot(disk, name, META))
    assert [part[0] for part in parts] == [
        "header",
        "catalogue",
        "rows",
        "frame",
        "term",
        "rows",
        "frame",
        "end",
    ]
    assert parts[0][1] == HEADER
    assert parts[1][1] == [[CREATE, 1024, "jobs", "fifo", {}, 0], [MARK, 1024, 7]]
    assert parts[2][1:] == (1024, [[1, "r", b"\xc0"], [2, "t", b"\xc4\x01x"]])
    assert parts[3][1].first_lsn == 11
    assert [plain(one) for one in parts[3][2]] == [plain(record(n)) for n in (11, 12, 13)]
    assert parts[4][1] == second
    assert parts[7][1] == SnapshotFooter(15, 3, EPOCH_US, 6)
    assert verify_snapshot(disk, name, CLUSTER) == parts[7][1]


def test_recovery_gives_its_content_leniently_and_then_the_log() -> None:
    writing = Writing(MemoryDisk())
    for _ in range(4):
        writing.frame(3)
    header = SnapshotHeader(CLUSTER, NODE, (TERM_1,), 3)
    writer = SnapshotWriter(writing.disk, header)
    writer.add_catalogue([])
    writer.add_frames(writing.frames[1])
    writer.add_rows(512, [[1, "x"]])
    name = writer.finish(6, EPOCH_US)
    writing.log.close()
    found, sink = loaded(writing.disk)
    assert (found.snapshot, found.snapshot_lsn, found.last_lsn) == (name, 6, 12)
    assert sink.row_list == [(512, [1, "x"])]
    assert sink.lenient == writing.records[3:6]
    assert sink.strict == writing.records[6:]
    assert found.lineage == [TERM_1]


def test_recovery_begins_inside_a_frame_when_the_snapshot_ends_there() -> None:
    writing = Writing(MemoryDisk())
    writing.frame(5)
    writing.log.close()
    SnapshotWriter(writing.disk, SnapshotHeader(CLUSTER, NODE, (TERM_1,), 3)).finish(3, EPOCH_US)
    found, sink = loaded(writing.disk)
    assert sink.strict == writing.records[3:]
    assert found.last_lsn == 5


def test_a_snapshot_alone_is_a_state_and_the_log_begins_behind_it() -> None:
    disk = MemoryDisk()
    writing = Writing.__new__(Writing)
    meta = open_meta(disk, CLUSTER, NODE, EPOCH_US)
    small_snapshot(disk, meta, 100)
    writing.disk = disk
    found, _ = writing.reopen()
    assert found.last_lsn == 105
    assert [term.number for term in found.lineage] == [1, 2]
    term = found.lineage[-1]
    writing.log.open_term(term, 106)
    writing.log.append(encode_frame([record(106)], 2, term.id, 106, 105), 106, 106, EPOCH_US)
    writing.log.close()
    found, sink = loaded(disk)
    assert sink.strict == [(106, plain(record(106)))]
    assert len(found.lineage) == 2


def test_frames_must_continue_and_belong_to_known_terms() -> None:
    disk = MemoryDisk()
    writer = SnapshotWriter(disk, HEADER)
    with pytest.raises(StorageError, match="at LSN 12, due is 11"):
        writer.add_frames(encode_frame([record(12)], 1, TERM_1.id, 12, 0))
    with pytest.raises(StorageError, match=r"frame of term 2 .* of terms \[1\]"):
        writer.add_frames(encode_frame([record(11)], 2, b"2" * 16, 11, 0))
    with pytest.raises(StorageError, match="ends at LSN 10, not 11"):
        writer.finish(11, EPOCH_US)


def test_abort_leaves_nothing_and_a_leftover_is_removed_and_reported() -> None:
    disk = MemoryDisk()
    open_meta(disk, CLUSTER, NODE, EPOCH_US)
    writer = SnapshotWriter(disk, HEADER)
    writer.add_rows(1024, [[1]])
    writer.abort()
    writer.abort()
    assert disk.list() == ["meta"]
    SnapshotWriter(disk, HEADER).add_rows(1024, [[1]])
    leftover = snapshot_name(10) + ".inprogress"
    SnapshotWriter(disk, HEADER)
    size = disk.size(leftover)
    found = recover(disk, Collect())
    assert found.reports == [f"{leftover}: unfinished, {size} bytes removed"]
    assert disk.list() == ["meta"]


def test_the_two_newest_stay() -> None:
    disk = MemoryDisk()
    for lsn in (5, 9, 7, 20):
        SnapshotWriter(disk, SnapshotHeader(CLUSTER, NODE, (), lsn)).finish(lsn, EPOCH_US)
    assert prune(disk) == [snapshot_name(5), snapshot_name(7)]
    assert snapshot_names(disk) == [snapshot_name(9), snapshot_name(20)]
    assert prune(disk) == []


def test_big_snapshots_are_read_through_a_window() -> None:
    largest = 0

    class WatchedDisk(MemoryDisk):
        def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
            nonlocal largest
            assert length >= 0, "the whole file was read at once"
            data = super().read(name, position, length)
            largest = max(largest, len(data))
            return data

    disk = WatchedDisk()
    writer = SnapshotWriter(disk, SnapshotHeader(CLUSTER, NODE, (), 0))
    rows = [[number, b"x" * 1_000] for number in range(100)]
    for _ in range(50):
        writer.add_rows(512, rows)
    name = writer.finish(0, EPOCH_US)
    assert disk.size(name) > 4 * WINDOW_BYTES
    read = sum(len(part[2]) for part in read_snapshot(disk, name, META) if part[0] == "rows")
    assert read == 5_000
    assert largest <= WINDOW_BYTES


def test_every_flip_and_every_length_is_refused_by_name() -> None:
    disk = MemoryDisk()
    name = small_snapshot(disk, META, 10)
    good = disk.contents()[name]
    damaged = [good[:size] for size in range(len(good))] + [good + b"\0", good + good]
    for bit in range(len(good) * 8):
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    for data in damaged:
        with pytest.raises(StorageError, match=f"^{name}: byte "):
            verify_snapshot(MemoryDisk({name: data}), name, CLUSTER)


def test_another_cluster_a_newer_version_or_another_name_is_refused() -> None:
    disk = MemoryDisk()
    name = small_snapshot(disk, META, 10)
    with pytest.raises(StorageError, match=f"belongs to cluster {CLUSTER.hex()}"):
        verify_snapshot(disk, name, NODE)
    disk.rename(name, snapshot_name(16))
    with pytest.raises(StorageError, match="end block says LSN 15"):
        verify_snapshot(disk, snapshot_name(16), CLUSTER)
    verify_snapshot(MemoryDisk({name: disk.read(snapshot_name(16))}), name, CLUSTER)


def test_a_snapshot_copied_from_another_node_of_the_cluster_is_taken() -> None:
    disk = MemoryDisk()
    open_meta(disk, CLUSTER, NODE, EPOCH_US)
    small_snapshot(disk, Meta(CLUSTER, b"other" * 3 + b"!", EPOCH_US), 10)
    assert recover(disk, Collect()).last_lsn == 15


def test_an_end_that_counts_other_blocks_is_refused() -> None:
    disk = MemoryDisk()
    name = small_snapshot(disk, META, 10)
    with pytest.MonkeyPatch.context() as patch:
        block = SnapshotWriter._block

        def more(writer: SnapshotWriter, magic: bytes, value: object) -> None:
            if magic == FOOTER_MAGIC:
                assert isinstance(value, list)
                value[3] += 1
            block(writer, magic, value)

        patch.setattr(SnapshotWriter, "_block", more)
        patch.setattr(SnapshotWriter, "_read_back", lambda *_args: None)
        assert small_snapshot(disk, META, 10) == name
    with pytest.raises(StorageError, match="end block says"):
        verify_snapshot(disk, name, CLUSTER)
