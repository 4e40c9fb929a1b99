"""What recovery accepts, cuts, removes or refuses, and that it always says so."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tandemq.log.blocks import encode_fixed
from tandemq.log.disk import Disk
from tandemq.log.meta import Meta, encode_commit, encode_meta, open_meta
from tandemq.log.segment import (
    FOOTER_SIZE,
    HEADER_MAGIC,
    SEGMENT_HEADER_SIZE,
    SegmentReader,
    encode_segment_header,
    segment_name,
    segment_names,
)
from tandemq.log.snapshot import SnapshotHeader, snapshot_name
from tandemq.model.errors import StorageError
from tandemq.model.record import HEADER_SIZE, encode_frame
from tandemq_server.storage.inspection import verify
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.recovery import recover, wipe
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_samples import (
    CLUSTER,
    EPOCH_US,
    NODE,
    SESSION,
    TERM_1,
    Collect,
    Writing,
    loaded,
    next_term,
    record,
    small_log,
    small_snapshot,
)

META = Meta(CLUSTER, NODE, EPOCH_US)


def copy(writing: Writing, **changes: bytes | None) -> MemoryDisk:
    """The directory with some files replaced, or removed where the value is None."""
    files = {**writing.disk.contents(), **changes}
    return MemoryDisk({name: data for name, data in files.items() if data is not None})


def with_snapshots(snapshots: tuple[int, ...]) -> Writing:
    """A log of 30 records in many segments, and empty snapshots at some LSNs."""
    writing = Writing(MemoryDisk(), SEGMENT_HEADER_SIZE + 1)
    for _ in range(10):
        writing.frame(3)
    writing.log.close()
    for lsn in snapshots:
        SnapshotWriter(writing.disk, SnapshotHeader(CLUSTER, NODE, (TERM_1,), lsn)).finish(lsn, 1)
    return writing


def test_an_empty_directory_recovers_to_nothing(disk: Disk) -> None:
    open_meta(disk, CLUSTER, NODE, EPOCH_US)
    found, sink = loaded(disk)
    assert (found.last_lsn, found.next_lsn, found.lineage, found.reports) == (0, 1, [], [])
    assert sink.strict == []


def test_every_missing_segment_is_named() -> None:
    writing = small_log((3, 2, 4, 1, 2), (1, 2, 4))
    names = segment_names(writing.disk)
    for number, name in enumerate(names[:-1]):
        with pytest.raises(StorageError) as refused:
            loaded(copy(writing, **{name: None}))
        assert refused.value.file == names[number + 1]
        assert f"LSN {int(name[:20])} and up are missing" in refused.value.reason
    # The newest one is missed only if something is known to have been in it.
    disk = copy(writing, **{names[-1]: None})
    assert loaded(disk)[1].strict == writing.records[:10]
    disk = copy(writing, **{names[-1]: None}, commit=encode_commit(11))
    with pytest.raises(StorageError, match=r"log ends at 10; committed was up to LSN 11"):
        loaded(disk)


def test_every_empty_segment_but_the_newest_is_refused() -> None:
    writing = small_log((3, 2, 4, 1, 2), (1, 2, 4))
    names = segment_names(writing.disk)
    for name in names[:-1]:
        with pytest.raises(StorageError, match=f"^{name}: byte 0: segment header"):
            loaded(copy(writing, **{name: b""}))
    found, sink = loaded(copy(writing, **{names[-1]: b""}))
    assert sink.strict == writing.records[:10]
    assert found.reports == [f"{names[-1]}: no segment header yet, 0 bytes removed"]


def test_a_sealed_segment_must_end_with_its_footer() -> None:
    writing = small_log()
    first = segment_names(writing.disk)[0]
    data = writing.disk.contents()[first]
    with pytest.raises(StorageError, match="ends without the footer of a sealed segment"):
        loaded(copy(writing, **{first: data[:-FOOTER_SIZE]}))


def test_a_footer_of_another_segment_is_refused() -> None:
    one, two = small_log((3, 2, 4), (2,)), small_log((3, 3, 4), (2,))
    first = segment_names(one.disk)[0]
    ours, theirs = one.disk.contents()[first], two.disk.contents()[first]
    with pytest.raises(StorageError, match=f"^{first}: .*CRC"):
        loaded(copy(one, **{first: ours[:-FOOTER_SIZE] + theirs[-FOOTER_SIZE:]}))


def test_a_torn_tail_is_cut_once_and_writing_goes_on() -> None:
    writing = small_log()
    last = segment_names(writing.disk)[-1]
    writing.disk.truncate(last, writing.disk.size(last) - 3)
    found, sink = writing.reopen()
    assert found.cut_bytes == len(writing.frames[-1]) - 3
    assert found.reports == [
        f"{last}: cut {found.cut_bytes} bytes of torn tail at byte {found.segments[-1].size}, "
        "behind LSN 9 (body is cut short)"
    ]
    assert len(sink.strict) == 9
    writing.log.open_term(writing.term, 10)
    writing.frame(3)
    writing.log.close()
    found, sink = loaded(writing.disk)
    assert found.reports == []
    assert sink.strict == writing.records


def test_damage_in_front_of_something_valid_is_no_torn_tail() -> None:
    writing = small_log((3, 2, 4, 1), ())
    name = segment_names(writing.disk)[0]
    data = bytearray(writing.disk.contents()[name])
    at = SEGMENT_HEADER_SIZE + len(writing.frames[0])
    data[at + HEADER_SIZE + 2] ^= 0xFF
    behind = at + len(writing.frames[1])
    with pytest.raises(StorageError, match=f"^{name}: byte {at}: CRC .* byte {behind} is valid"):
        loaded(copy(writing, **{name: bytes(data)}))


def reordered(proves: int) -> tuple[Writing, str, bytes]:
    """A newest segment whose last frame but one never reached the disk; the last one did.

    `proves`: the commit LSN the last frame tells of. Five records stand in front of the hole.
    """
    writing = small_log((3, 2), ())
    name = segment_names(writing.disk)[0]
    lost = encode_frame([record(6)], 1, TERM_1.id, 6, 5)
    whole = encode_frame([record(7), record(8)], 1, TERM_1.id, 7, proves)
    return writing, name, writing.disk.contents()[name] + bytes(len(lost)) + whole


def test_pages_that_reached_the_disk_out_of_order_are_a_torn_tail() -> None:
    writing, name, data = reordered(5)
    disk = copy(writing, **{name: data})
    assert [report.state for report in verify(disk)] == ["torn"]
    at = writing.disk.size(name)
    found, sink = loaded(disk)
    assert sink.strict == writing.records
    assert (found.last_lsn, found.cut_bytes) == (5, len(data) - at)
    assert found.reports == [
        f"{name}: cut {found.cut_bytes} bytes of torn tail at byte {at}, behind LSN 5 (not a "
        f"frame: magic {bytes(4)!r}); whole frames up to LSN 8 stood behind it, "
        f"kept in {name}.torn"
    ]
    assert disk.contents()[name + ".torn"] == data[at:]
    # The next one of the same segment is kept beside it.
    disk = MemoryDisk({**disk.contents(), name: data})
    assert loaded(disk)[0].reports[0].endswith(f"{name}.torn.2")
    # No room for it: the node starts all the same.
    disk = copy(writing, **{name: data})
    disk.fail("append", 1, errno.ENOSPC)
    found, sink = loaded(disk)
    assert sink.strict == writing.records
    assert found.reports[0].endswith("append: No space left on device")


@pytest.mark.parametrize(("proves", "commit"), [(6, 0), (7, 0), (5, 6), (0, 8)])
def test_a_hole_in_front_of_proof_that_it_was_committed_is_refused(
    proves: int, commit: int
) -> None:
    writing, name, data = reordered(proves)
    disk = copy(writing, **{name: data, "commit": encode_commit(commit)})
    with pytest.raises(StorageError, match=f"^{name}: byte {writing.disk.size(name)}: .*committed"):
        loaded(disk)
    assert disk.contents()[name] == data
    if not commit:
        # Also where a power cut may cost something: this need not have been one.
        with pytest.raises(StorageError, match="is valid again"):
            loaded(disk, strict_commit=False)


def test_a_hole_below_the_snapshot_is_no_loss() -> None:
    writing = with_snapshots((30,))
    name = segment_names(writing.disk)[-1]
    data = bytearray(writing.disk.contents()[name])
    data[SEGMENT_HEADER_SIZE + HEADER_SIZE] ^= 0xFF
    found, _ = loaded(copy(writing, **{name: bytes(data)}))
    assert (found.last_lsn, found.snapshot_lsn) == (30, 30)


def test_a_sealed_end_that_reached_the_disk_without_its_last_frame_is_cut() -> None:
    """The footer is written and synced in one go: alone it proves no sync."""
    writing = small_log((2, 1, 2), (2,))
    names = segment_names(writing.disk)
    data = writing.disk.contents()[names[0]]
    at = SEGMENT_HEADER_SIZE + len(writing.frames[0])
    hole = data[:at] + bytes(len(writing.frames[1])) + data[at + len(writing.frames[1]) :]
    found, sink = loaded(copy(writing, **{names[0]: hole, names[1]: None}))
    assert sink.strict == writing.records[:2]
    assert names[0] + ".torn" in found.reports[0]


def test_a_corrupt_length_costs_no_memory_and_is_refused() -> None:
    writing = small_log((3, 2, 4, 1), ())
    name = segment_names(writing.disk)[0]
    good = writing.disk.contents()[name]
    for length in (0, 1, 2**28, 2**32 - 1):
        data = bytearray(good)
        at = SEGMENT_HEADER_SIZE + len(writing.frames[0])
        data[at + 4 : at + 8] = length.to_bytes(4, "big")
        with pytest.raises(StorageError, match=f"^{name}: byte {at}: "):
            loaded(copy(writing, **{name: bytes(data)}))


def test_a_whole_frame_that_does_not_belong_there_is_never_cut() -> None:
    writing = small_log((3, 2), ())
    name = segment_names(writing.disk)[0]
    good, size = writing.disk.contents()[name], writing.disk.size(name)
    for frame in (
        encode_frame([record(7)], 1, TERM_1.id, 7, 5),
        encode_frame([record(6)], 2, TERM_1.id, 6, 5),
        encode_frame([], 1, TERM_1.id, 6, 5),
    ):
        with pytest.raises(StorageError, match=f"^{name}: byte {size}: .* follow LSN 5 of term 1"):
            loaded(copy(writing, **{name: good + frame}))
    sealed = small_log((3, 2), (1,))
    names = segment_names(sealed.disk)
    behind = sealed.disk.contents()[names[0]] + b"more"
    with pytest.raises(StorageError, match="4 bytes follow the footer"):
        loaded(copy(sealed, **{names[0]: behind, names[1]: None}))


def test_an_error_of_the_sink_is_not_taken_for_damage() -> None:
    writing = small_log((3,), ())

    class Refuses(Collect):
        def records(self, *_: object) -> None:
            raise StorageError("sink", 0, "cannot apply this")

    before = writing.disk.contents()
    with pytest.raises(StorageError, match="cannot apply this"):
        recover(writing.disk, Refuses())
    assert writing.disk.contents() == before


def test_stale_frames_of_another_term_do_not_pass_behind_the_end() -> None:
    """Blocks that a file system gives again, still holding the frames of an older file."""
    writing = small_log((3, 2), ())
    name = segment_names(writing.disk)[0]
    stale = encode_frame([record(6)], 1, b"old" * 5 + b"!", 6, 5)
    found, sink = loaded(copy(writing, **{name: writing.disk.contents()[name] + stale}))
    assert sink.strict == writing.records
    assert found.cut_bytes == len(stale)
    zeros = bytes(4_096)
    found, sink = loaded(copy(writing, **{name: writing.disk.contents()[name] + zeros}))
    assert found.cut_bytes == 4_096
    assert sink.strict == writing.records


def test_a_frame_inside_a_payload_does_not_count_as_valid_behind_damage() -> None:
    """A producer may put log frames into tasks: those are of LSNs already read."""
    writing = small_log((3, 2), ())
    inner = writing.frames[0]
    first = writing.next_lsn
    outer = (EPOCH_US, 1, None, [(1, 1024, [1, "r", inner])])
    frame = encode_frame([outer], 1, TERM_1.id, first, 0)
    name = segment_names(writing.disk)[0]
    found, sink = loaded(copy(writing, **{name: writing.disk.contents()[name] + frame[:-1]}))
    assert found.cut_bytes == len(frame) - 1
    assert sink.strict == writing.records


def test_a_published_commit_forbids_the_cut() -> None:
    writing = small_log()
    last = segment_names(writing.disk)[-1]
    torn = writing.disk.contents()[last][:-1]
    for commit, refused in ((8, False), (9, False), (10, True)):
        disk = copy(writing, **{last: torn}, commit=encode_commit(commit))
        if refused:
            with pytest.raises(StorageError, match=f"^{last}: byte .*committed was up to LSN 10"):
                loaded(disk)
            assert disk.contents()[last] == torn, "a refused file was changed"
        else:
            assert loaded(disk)[0].last_lsn == 9
    found, _ = loaded(copy(writing, **{last: torn}, commit=encode_commit(10)), strict_commit=False)
    assert found.commit_lsn == 9
    assert "1 records published as committed are lost, up to LSN 10" in found.reports[-1]


def test_committed_records_that_a_snapshot_holds_are_not_lost_with_the_log() -> None:
    writing = with_snapshots((30,))
    last = segment_names(writing.disk)[-1]
    torn = writing.disk.contents()[last][:-1]
    found, _ = loaded(copy(writing, **{last: torn}, commit=encode_commit(30)))
    assert (found.last_lsn, found.snapshot_lsn, found.commit_lsn) == (30, 30, 30)


def test_segments_of_another_cluster_node_or_version_are_refused() -> None:
    writing = small_log((3,), ())
    name = segment_names(writing.disk)[0]
    body = writing.disk.contents()[name][SEGMENT_HEADER_SIZE:]
    for meta, reason in (
        (Meta(NODE, NODE, 1), f"belongs to cluster {NODE.hex()}"),
        (Meta(CLUSTER, CLUSTER, 1), f"belongs to node {CLUSTER.hex()}"),
    ):
        header = encode_segment_header(meta, TERM_1, 1)
        with pytest.raises(StorageError, match=f"^{name}: byte 0: {reason}"):
            loaded(copy(writing, **{name: header + body}))
        # Even a segment that holds nothing yet: it is not torn, it is foreign.
        with pytest.raises(StorageError, match=reason):
            loaded(copy(writing, **{name: header}))
    newer = encode_fixed(HEADER_MAGIC, {"version": 9}, SEGMENT_HEADER_SIZE)
    with pytest.raises(StorageError, match="format version 9 is newer"):
        loaded(copy(writing, **{name: newer + body}))
    with pytest.raises(StorageError, match=r"0007.wal: byte 0: header says first LSN 1"):
        loaded(copy(writing, **{name: None, segment_name(7): writing.disk.contents()[name]}))


def test_a_term_that_does_not_continue_the_lineage_is_refused() -> None:
    writing = small_log((3, 2), (1,))
    name = segment_names(writing.disk)[1]
    for term in (
        writing.term._replace(parent=b"x" * 16),
        writing.term._replace(parent=None),
        writing.term._replace(start_lsn=3),
    ):
        header = encode_segment_header(META, term, 4)
        frame = encode_frame([record(4)], term.number, term.id, 4, 0)
        with pytest.raises(StorageError, match=f"^{name}: byte 0: term 2 .* does not continue"):
            loaded(copy(writing, **{name: header + frame}))


def test_only_segments_behind_the_snapshot_are_read() -> None:
    writing = with_snapshots((12,))
    disk = copy(writing)
    before = disk.counts["read"]
    found, sink = loaded(disk)
    assert sink.strict == writing.records[12:]
    assert found.snapshot == snapshot_name(12)
    assert found.segments[0].first_lsn == 1
    assert sum(s.records for s in found.segments) == 30
    assert disk.counts["read"] - before < 80
    assert next(SegmentReader(disk, found.segments[0].name, META).frames())[0].first_lsn == 1


def test_a_damaged_newest_snapshot_is_replaced_by_the_one_before() -> None:
    writing = with_snapshots((12, 21))
    newest = snapshot_name(21)
    bad = writing.disk.contents()[newest][:-1] + b"?"
    disk = copy(writing, **{newest: bad})
    found, sink = loaded(disk)
    assert found.snapshot == snapshot_name(12)
    assert sink.strict == writing.records[12:]
    assert len(found.reports) == 1
    assert found.reports[0].startswith(f"{newest}: byte ")
    assert found.reports[0].endswith(f"recovered from {snapshot_name(12)} instead")
    assert newest + ".damaged" in disk.list()
    assert loaded(disk)[0].reports == []
    # Both damaged, but the log is whole: it holds everything.
    older = snapshot_name(12)
    disk = copy(writing, **{newest: bad, older: bad})
    assert loaded(disk)[1].strict == writing.records


def test_a_damaged_snapshot_is_refused_when_the_log_does_not_cover_it() -> None:
    writing = with_snapshots((12, 21))
    newest, older = snapshot_name(21), snapshot_name(12)
    trimmed: dict[str, bytes | None] = {
        name: None for name in segment_names(writing.disk) if int(name[:20]) < 16
    }
    with pytest.raises(StorageError, match=f"^{newest}: byte "):
        loaded(copy(writing, **trimmed, **{newest: b"", older: None}))
    with pytest.raises(StorageError, match=f"^{newest}: byte "):
        loaded(copy(writing, **trimmed, **{newest: b""}))
    everything: dict[str, bytes | None] = dict.fromkeys(segment_names(writing.disk))
    with pytest.raises(StorageError, match=f"^{newest}: byte "):
        loaded(copy(writing, **everything, **{newest: b"", older: b""}))


def test_a_snapshot_of_another_cluster_is_refused_not_replaced() -> None:
    writing = with_snapshots((12,))
    SnapshotWriter(writing.disk, SnapshotHeader(NODE, NODE, (TERM_1,), 21)).finish(21, 1)
    with pytest.raises(StorageError, match=f"{snapshot_name(21)}: .*belongs to cluster"):
        loaded(writing.disk)


def test_a_log_shorter_than_its_snapshot_makes_room() -> None:
    """The snapshot was durable before the log it was taken from; it holds all of it."""
    writing = with_snapshots((12, 28))
    last = segment_names(writing.disk)[-1]
    disk = copy(writing, **{last: None}, commit=encode_commit(28))
    found, sink = loaded(disk)
    assert found.last_lsn == 28
    assert sink.strict == []
    assert found.segments == []
    assert segment_names(disk) == []
    assert f"removed as {snapshot_name(28)} goes further" in found.reports[0]
    assert loaded(disk)[0].reports == []
    disk = copy(writing, **{last: None}, commit=encode_commit(29))
    with pytest.raises(StorageError, match="committed was up to LSN 29"):
        loaded(disk)


def test_a_diverged_log_behind_a_snapshot_is_refused() -> None:
    writing = with_snapshots(())
    other = next_term(TERM_1, 20)
    header = SnapshotHeader(CLUSTER, NODE, (TERM_1, other), 25)
    SnapshotWriter(writing.disk, header).finish(25, 1)
    with pytest.raises(StorageError, match="does not continue the lineage"):
        loaded(writing.disk)


def test_wipe_leaves_identity_and_rescue_files() -> None:
    writing = with_snapshots((12, 21))
    writing.reopen()
    writing.log.truncate_from(29)
    wipe(writing.disk)
    assert [n for n in writing.disk.list() if not n.startswith("rescue/")] == ["meta"]
    assert len(writing.disk.list()) == 2
    assert loaded(writing.disk)[0].last_lsn == 0


def test_an_interrupted_wipe_leaves_a_prefix_of_the_log() -> None:
    for step in range(1, 40):
        writing = with_snapshots((12, 21))
        writing.disk.fail("remove", step)
        try:
            wipe(writing.disk)
        except StorageError:
            writing.disk.crash(Random(step))
            found, sink = loaded(writing.disk)
            assert sink.strict == writing.records[found.snapshot_lsn : found.last_lsn]
        else:
            break
    assert step > 10


def test_the_collector_of_python_is_left_as_it_was() -> None:
    import gc

    disk = MemoryDisk({"meta": encode_meta(META)})
    assert gc.isenabled()
    recover(disk, Collect())
    assert gc.isenabled()
    gc.disable()
    try:
        recover(disk, Collect())
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_records_keep_sessions_and_strings_that_are_no_utf_8() -> None:
    writing = small_log((7,), ())
    _, sink = loaded(writing.disk)
    assert [one[2] for _, one in sink.strict].count(SESSION) == 2
    assert any(op[2] == "té\udcff" for _, one in sink.strict for op in one[3] if op[0] == 4)
    assert small_snapshot(writing.disk, META, 7) in writing.disk.list()


def test_the_newest_segment_is_settled_before_it_is_read() -> None:
    """After a failed sync the cache shows bytes that the device may never have got."""
    writing = Writing(MemoryDisk())
    writing.frame(2)
    order: list[str] = []
    disk = writing.disk
    for name in ("settle", "read"):
        call = getattr(disk, name)

        def noted(file: str, *rest: object, call: object = call, name: str = name) -> object:
            if file.endswith(".wal"):
                order.append(name)
            return call(file, *rest)  # type: ignore[operator]

        setattr(disk, name, noted)
    loaded(disk)
    assert order[0] == "settle"
