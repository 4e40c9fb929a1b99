"""Copies of a directory that is being written to, and directories made from them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tandemq.log.disk import RESCUE_PREFIX, SUFFIX_IN_PROGRESS, Disk, append_all, write_file
from tandemq.log.meta import COMMIT_NAME, META_NAME, encode_commit
from tandemq.log.rescue import all_rescued, rescued_snapshot
from tandemq.log.segment import segment_names
from tandemq.log.snapshot import SnapshotHeader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq_server.storage.backup import Backup
from tandemq_server.storage.copies import MANIFEST_NAME, read_manifest
from tandemq_server.storage.inspection import verify
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.mend import MISSING_NAME, DamagedFiles, end_before, read_missing
from tandemq_server.storage.restore import Restore
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_samples import EPOCH_US, TERM_1, Writing, loaded, small_snapshot

NOW_US = EPOCH_US + 10**9


def copied(
    source: Disk,
    target: Disk | None = None,
    between: Callable[[int], None] = lambda _step: None,
    history: bool = False,
) -> MemoryDisk:
    """The backup of `source`; `between(step)` runs after each piece."""
    target = target if target is not None else MemoryDisk()
    run = Backup(source, target, NOW_US, history)
    for step, _name in enumerate(run):
        between(step)
    assert run.done_bytes == run.total_bytes
    assert isinstance(target, MemoryDisk)
    return target


def restored(
    backup: Disk, target: Disk, until_lsn: int | None = None, until_us: int | None = None
) -> Restore:
    run = Restore(backup, target, until_lsn, until_us)
    for _ in run:
        pass
    return run


def snapshot_at(writing: Writing, lsn: int, time_us: int) -> str:
    header = SnapshotHeader(writing.meta.cluster, writing.meta.node, (TERM_1,), lsn)
    writer = SnapshotWriter(writing.disk, header)
    writer.add_catalogue([])
    return writer.finish(lsn, time_us)


def test_the_restored_directory_is_what_was_copied(disk: Disk) -> None:
    writing = Writing(MemoryDisk(), 1_500)
    for count in (3, 2, 4, 20, 30, 1):
        writing.frame(count)
    writing.new_term()
    writing.frame(2)
    writing.log.publish_commit(60)
    backup = copied(writing.disk)
    manifest = read_manifest(backup)
    assert (manifest.first_lsn, manifest.last_lsn, manifest.commit_lsn) == (1, 62, 60)
    assert (manifest.term, manifest.created_us) == (2, NOW_US)
    assert verify(backup).done is False
    run = restored(backup, disk)
    assert (run.last_lsn, run.term) == (62, 2)
    found, sink = loaded(disk)
    assert sink.strict == writing.records
    assert (found.last_lsn, found.commit_lsn, found.reports) == (62, 60, [])
    assert found.meta == writing.meta


def test_frames_and_segments_written_meanwhile_do_no_harm() -> None:
    writing = Writing(MemoryDisk(), 1_500)
    writing.frame(40)
    before = len(writing.records)

    def go_on(_step: int) -> None:
        for _ in range(5):
            writing.frame(7)

    backup = copied(writing.disk, between=go_on)
    found, sink = loaded(backup)
    assert found.last_lsn >= before
    assert sink.strict == writing.records[: found.last_lsn]


def test_files_that_go_meanwhile_let_it_begin_anew() -> None:
    """A snapshot is published and the log before it trimmed, as a serving node does."""
    writing = Writing(MemoryDisk(), 1_500)
    for _ in range(30):
        writing.frame(5)

    def trim(step: int) -> None:
        if step == 0:
            snapshot_at(writing, 140, NOW_US)
            writing.log.trim(140)

    backup = copied(writing.disk, between=trim)
    assert snapshot_names(backup) == ["00000000000000000140.snap"]
    found, sink = loaded(backup)
    assert found.last_lsn == 150
    assert sink.strict == writing.records[140:]


def test_a_rewind_meanwhile_is_copied_as_it_came_out() -> None:
    writing = Writing(MemoryDisk(), 1_500)
    for _ in range(20):
        writing.frame(5)

    def rewind(step: int) -> None:
        if step == 1:
            writing.log.truncate_from(30)
            del writing.records[29:]
            writing.new_term()
            writing.frame(3)

    found, sink = loaded(copied(writing.disk, between=rewind))
    assert found.last_lsn == 32
    assert sink.strict == writing.records


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_frame_half_written_is_left_out(cut: int) -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    writing.frame(5)
    name = segment_names(writing.disk)[-1]
    writing.disk.truncate(name, writing.disk.size(name) - cut)
    backup = copied(writing.disk)
    assert read_manifest(backup).last_lsn == 5
    assert loaded(backup)[1].strict == writing.records[:5]


def test_a_segment_without_a_header_yet_is_left_out() -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    writing.new_term()
    name = segment_names(writing.disk)[-1]
    writing.disk.truncate(name, 500)
    assert read_manifest(copied(writing.disk)).last_lsn == 5


def damage(disk: Disk, name: str, position: int) -> None:
    data = bytearray(disk.read(name))
    data[position] ^= 1
    disk.remove(name)
    append_all(disk, disk.create(name), bytes(data))


def test_damage_in_the_source_is_named_and_nothing_is_left_behind() -> None:
    writing = Writing(MemoryDisk(), 1_500)
    for _ in range(30):
        writing.frame(5)
    first = segment_names(writing.disk)[0]
    damage(writing.disk, first, 1_200)
    target = MemoryDisk()
    with pytest.raises(StorageError, match=first):
        copied(writing.disk, target)
    assert target.list() == []


def test_a_log_shorter_than_what_was_published_is_refused() -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    append_all(writing.disk, writing.disk.create(COMMIT_NAME), encode_commit(9))
    with pytest.raises(StorageError, match="LSN 9 was published as committed"):
        copied(writing.disk)


def test_neither_backup_nor_restore_overwrites_anything() -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    backup = copied(writing.disk)
    for taken in (backup, writing.disk):
        files = {name: taken.read(name) for name in taken.list()}
        with pytest.raises(StorageError, match="is not empty"):
            copied(writing.disk, taken)
        with pytest.raises(StorageError, match="is not empty"):
            restored(backup, taken)
        assert {name: taken.read(name) for name in taken.list()} == files


def test_no_room_is_said_before_anything_is_written() -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    target = MemoryDisk()
    target.free_bytes = 100
    with pytest.raises(StorageError, match="are needed, 100 are free"):
        copied(writing.disk, target)
    assert target.list() == []


@pytest.mark.parametrize("operation", ["create", "append", "sync", "rename", "sync_dir"])
def test_a_disk_that_fails_leaves_no_half_backup(operation: str) -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    nth = 0
    while True:
        target = MemoryDisk()
        nth += 1
        target.fail(operation, nth)
        try:
            copied(writing.disk, target)
        except StorageError:
            with pytest.raises(StorageError, match="no backup, or an unfinished one"):
                read_manifest(target)
            assert target.list() == []
            continue
        break
    assert nth > 1, "no operation of that name was hit"


# -- restoring -----------------------------------------------------------------------------------


def history_of(writing: Writing) -> MemoryDisk:
    """120 records, snapshots at 50 and 100, all of it in the backup."""
    for _ in range(24):
        writing.frame(5)
    snapshot_at(writing, 50, writing.records[49][1][0])
    snapshot_at(writing, 100, writing.records[99][1][0])
    return copied(writing.disk, history=True)


@pytest.mark.parametrize("until", [50, 51, 52, 55, 99, 100, 101, 119, 120])
def test_any_lsn_the_backup_reaches_back_to(until: int, disk: Disk) -> None:
    writing = Writing(MemoryDisk(), 1_500)
    backup = history_of(writing)
    run = restored(backup, disk, until_lsn=until)
    assert run.last_lsn == until
    found, sink = loaded(disk)
    assert found.last_lsn == until
    used = 100 if until >= 100 else 50
    assert found.snapshot_lsn == used
    assert sink.strict == writing.records[used:until]
    # The log goes on from there.
    writing.disk = disk  # type: ignore[assignment]
    found, _ = writing.reopen()
    writing.log.open_term(TERM_1._replace(number=9, id=b"9" * 16, parent=TERM_1.id,
                                          start_lsn=until + 1), until + 1)  # fmt: skip


@pytest.mark.parametrize("lsn", [50, 73, 100, 119])
def test_any_moment_the_backup_reaches_back_to(lsn: int) -> None:
    writing = Writing(MemoryDisk(), 1_500)
    backup = history_of(writing)
    moment = writing.records[lsn - 1][1][0]
    assert restored(backup, MemoryDisk(), until_us=moment).last_lsn == lsn
    assert restored(backup, MemoryDisk(), until_us=moment + 999).last_lsn == lsn


@pytest.mark.parametrize(
    ("until", "text"), [((20, None), "reaches back to LSN 50 only"), ((121, None), "ends at LSN"),
                        ((None, EPOCH_US + 20_000), "reaches back to LSN 50 only"),
                        ((None, 5), "reaches back to LSN 50 only")],
)  # fmt: skip
def test_a_point_out_of_reach_is_refused(
    until: tuple[int | None, int | None], text: str, disk: Disk
) -> None:
    backup = history_of(Writing(MemoryDisk(), 1_500))
    with pytest.raises(StorageError, match=text):
        restored(backup, disk, *until)
    assert disk.list() == []


def test_a_backup_that_lost_its_end_or_a_bit_is_refused(disk: Disk) -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    for _ in range(3):
        writing.frame(5)
    name = segment_names(writing.disk)[-1]
    whole = copied(writing.disk)
    short = MemoryDisk({one: whole.read(one) for one in whole.list()})
    short.truncate(name, short.size(name) - 10)
    with pytest.raises(StorageError, match=f"{name}.*is missing or is not of"):
        restored(short, disk)
    # The last frame: a log alone takes that for a torn write and cuts it.
    bad = MemoryDisk({one: whole.read(one) for one in whole.list()})
    damage(bad, name, bad.size(name) - 3)
    with pytest.raises(StorageError, match=name):
        restored(bad, disk)
    assert disk.list() == []


def test_manifests_that_are_none_or_newer_are_refused() -> None:
    writing = Writing(MemoryDisk(), 1 << 20)
    writing.frame(5)
    backup = copied(writing.disk)
    value = json.loads(backup.read(MANIFEST_NAME))
    for text, message in (
        (json.dumps({**value, "version": 2}), "version 2 is newer than 1"),
        ("{}", "is not what a backup writes"),
        ("[", "is not what a backup writes"),
    ):
        files = {name: backup.read(name) for name in backup.list()}
        with pytest.raises(StorageError, match=message):
            restored(MemoryDisk({**files, MANIFEST_NAME: text.encode()}), MemoryDisk())


def test_a_snapshot_alone_is_a_backup() -> None:
    """What a node without a log leaves behind at its end."""
    writing = Writing(MemoryDisk(), 1 << 20)
    source = MemoryDisk({META_NAME: writing.disk.read(META_NAME)})
    small_snapshot(source, writing.meta)
    run = restored(copied(source), MemoryDisk())
    assert (run.last_lsn, run.term, run.last_time_us) == (5, 2, EPOCH_US)


def test_nothing_to_copy_is_an_error() -> None:
    with pytest.raises(StorageError, match="not a data directory yet"):
        copied(MemoryDisk())
    meta = Writing(MemoryDisk()).disk.read(META_NAME)
    with pytest.raises(StorageError, match="neither snapshot nor log"):
        copied(MemoryDisk({META_NAME: meta}))


def rescued() -> tuple[MemoryDisk, dict[str, bytes]]:
    """A directory with every kind of file a rescue leaves, and those files."""
    writing = Writing(MemoryDisk(), 1_500)
    writing.frame(20)
    writing.log.sync()
    names = writing.log.truncate_from(15).rescue
    writing.log.open_term(
        TERM_1._replace(number=2, id=b"2" * 16, parent=TERM_1.id, start_lsn=15), 15
    )
    for name in ("a.note", "a.replayed"):
        write_file(writing.disk, RESCUE_PREFIX + name, name.encode())
    moved = rescued_snapshot(snapshot_at(writing, 7, EPOCH_US), b"s" * 16)
    writing.disk.rename(f"{7:020d}.snap", moved)
    handle = writing.disk.create(RESCUE_PREFIX + "b.wal" + SUFFIX_IN_PROGRESS)
    writing.disk.close(handle)
    found = {name: writing.disk.read(name) for name in all_rescued(writing.disk)}
    assert set(names) < set(found)
    assert len(found) == len(names) + 3
    return writing.disk, found


def test_rescue_files_are_part_of_a_backup_and_come_back(disk: Disk) -> None:
    source, found = rescued()
    backup = copied(source)
    assert {name: backup.read(name) for name in all_rescued(backup)} == found
    assert found.keys() < read_manifest(backup).files.keys()
    restored(backup, disk, until_lsn=9)
    assert {name: disk.read(name) for name in all_rescued(disk)} == found
    loaded(disk)


def test_a_damaged_rescue_file_is_copied_as_it_is() -> None:
    source, found = rescued()
    name = next(one for one in found if one.endswith(".wal"))
    files = source.contents()
    files[name] = files[name][:-1] + b"?"
    target = MemoryDisk()
    run = Backup(MemoryDisk(files), target, NOW_US)
    for _ in run:
        pass
    assert [note for note in run.notes if name in note and "copied as it is" in note]
    assert target.read(name) == files[name]
    again = MemoryDisk()
    back = restored(target, again)
    assert again.read(name) == files[name]
    assert any("copied as it is" in note for note in back.notes)


def test_what_is_missing_is_missing_in_the_copy_too() -> None:
    writing = Writing(MemoryDisk(), 1_500)
    for _ in range(6):
        writing.frame(20)
    writing.log.sync()
    writing.log.publish_commit(120)
    damaged = segment_names(writing.disk)[-2]
    end_before(writing.disk, writing.meta, DamagedFiles(damaged, 2_000, "CRC"))
    backup = MemoryDisk()
    run = Backup(writing.disk, backup, NOW_US)
    for _ in run:
        pass
    assert read_missing(backup) == read_missing(writing.disk) == 120
    assert any("up to LSN 120" in note for note in run.notes)
    assert MISSING_NAME in read_manifest(backup).files
    whole, earlier = MemoryDisk(), MemoryDisk()
    last = restored(backup, whole).last_lsn
    assert read_missing(whole) == 120
    # An earlier point is what somebody asked for: nothing is missing up to there.
    restored(backup, earlier, until_lsn=last - 1)
    assert read_missing(earlier) == 0
