"""An archive is whole at every moment, and what was shipped comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tandemq.log.disk import RESCUE_PREFIX, write_file
from tandemq.log.meta import open_meta
from tandemq.log.segment import segment_names
from tandemq.log.shipped import manifest_name
from tandemq.log.snapshot import SnapshotHeader, snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.units import SECOND_US
from tandemq_server.storage.archived import (
    ArchivedLine,
    ArchiveLine,
    ObjectWriter,
    line_for,
    line_name,
    lines_of,
)
from tandemq_server.storage.inspection import verify
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.restore import Restore
from tandemq_server.storage.shipping import Round, Shipping
from tandemq_server.storage.snapshot_writer import SnapshotWriter
from tests.storage.storage_samples import CLUSTER, EPOCH_US, NODE, TERM_1, Writing

NOW_US = EPOCH_US + 10**9


def small_log() -> Writing:
    """Ten records of two terms, so that the first of two segments is sealed; it may be gone on."""
    writing = Writing(MemoryDisk())
    for count in (3, 2):
        writing.frame(count)
    writing.new_term()
    for count in (4, 1):
        writing.frame(count)
    return writing


class Objects:
    """A store in memory. fail_at: the write that breaks off, counted from the beginning."""

    where = "mem://archive"

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.writes = self.reads = 0
        self.fail_at = 0
        self.flip = ""

    def list(self) -> list[str]:
        return sorted(self.held)

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        self.reads += 1
        if name not in self.held:
            raise StorageError(f"{self.where}/{name}", 0, "read: no such object")
        end = None if length < 0 else position + length
        return self.held[name][position:end]

    @contextmanager
    def write(self, name: str) -> Iterator[ObjectWriter]:
        self.writes += 1
        parts = bytearray()

        class Part:
            def write(self, data: bytes) -> None:
                parts.extend(data)

        yield Part()
        if self.writes == self.fail_at:
            # As a folder does that runs full: half of it is there.
            self.held[name] = bytes(parts[: len(parts) // 2])
            raise StorageError(f"{self.where}/{name}", 0, "write: broke off")
        if self.flip and self.flip in name:
            parts[len(parts) // 2] ^= 1
        self.held[name] = bytes(parts)

    def remove(self, name: str) -> None:
        del self.held[name]


def snapshot_of(writing: Writing) -> str:
    """A snapshot of all there is, an hour after the last."""
    lsn = writing.next_lsn - 1
    header = SnapshotHeader(writing.meta.cluster, writing.meta.node, (TERM_1,), lsn)
    writer = SnapshotWriter(writing.disk, header)
    writer.add_catalogue([])
    return writer.finish(lsn, EPOCH_US + lsn)


def restored(store: Objects, until_lsn: int | None = None) -> tuple[MemoryDisk, Restore]:
    line = line_for(lines_of(store), until_lsn, None)
    assert line is not None
    target = MemoryDisk()
    run = Restore(ArchivedLine(store, line), target, until_lsn)
    for _ in run:
        pass
    checked = verify(target)
    assert list(checked)
    assert checked.ok
    return target, run


def log_of(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: disk.read(name) for name in segment_names(disk)}


def shipped(writing: Writing, store: Objects) -> Round:
    return Shipping(writing.disk, store).round(NOW_US)


def test_what_was_shipped_comes_back_as_it_was_also_what_is_not_sealed_yet() -> None:
    writing, store = small_log(), Objects()
    done = shipped(writing, store)
    assert done.line.newest.last_lsn == writing.next_lsn - 1
    target, run = restored(store)
    assert log_of(target) == log_of(writing.disk)
    assert run.last_lsn == writing.next_lsn - 1
    assert restored(store, 4)[1].last_lsn == 4


def test_a_round_ships_only_what_is_new_also_for_a_process_that_has_just_begun() -> None:
    writing, store = small_log(), Objects()
    whole = shipped(writing, store)
    assert shipped(writing, store).files == 0
    before = set(store.held)
    writing.frame(3)
    again = shipped(writing, store)
    assert again.line.name == whole.line.name
    assert not again.new_line
    assert again.files == 1, "the newest segment has grown"
    assert again.line.newest.last_lsn == writing.next_lsn - 1
    assert len(set(store.held) - before) == 2, "that file and a manifest"
    assert log_of(restored(store)[0]) == log_of(writing.disk)


def test_after_every_write_that_breaks_off_the_archive_is_the_one_before() -> None:
    """And the next round makes up for it."""
    writing, store = small_log(), Objects()
    shipped(writing, store)
    reached = writing.next_lsn - 1
    snapshot_of(writing)
    writing.frame(4)
    writing.new_term()
    held, broken = dict(store.held), 0
    while True:
        trial = Objects()
        trial.held, trial.fail_at = dict(held), broken + 1
        try:
            shipped(writing, trial)
        except StorageError as error:
            assert "broke off" in str(error)
            broken += 1
        else:
            break
        assert restored(trial)[1].last_lsn == reached
        trial.fail_at = 0
        shipped(writing, trial)
        assert restored(trial)[1].last_lsn == writing.next_lsn - 1
    assert broken >= 3, "a snapshot, a segment, a manifest"


@pytest.mark.parametrize("part", ["files/", "manifest-"])
def test_what_reads_back_otherwise_is_not_said_to_be_shipped(part: str) -> None:
    writing, store = small_log(), Objects()
    store.flip = part
    with pytest.raises(StorageError, match="reads back as something else"):
        shipped(writing, store)


def test_a_log_that_was_cut_begins_a_line_and_the_older_one_stays() -> None:
    writing, store = small_log(), Objects()
    first = shipped(writing, store).line
    disk = writing.disk
    for name in segment_names(disk):
        disk.remove(name)
    other = Writing(disk)
    assert other.meta == writing.meta, "the same node, another history"
    other.frame(2)
    done = shipped(other, store)
    assert done.line.name > first.name
    assert "the log was cut" in done.new_line or "trimmed" in done.new_line
    assert [line.name for line in lines_of(store)] == [first.name, done.line.name]
    assert restored(store)[1].last_lsn == other.next_lsn - 1
    assert restored(store, first.newest.last_lsn)[1].last_lsn == first.newest.last_lsn


def test_a_cut_in_the_newest_segment_is_seen_by_who_shipped_it_a_moment_ago() -> None:
    """The file has grown again since, beyond what was shipped of it."""
    writing, store = small_log(), Objects()
    shipping = Shipping(writing.disk, store)
    first = shipping.round(NOW_US).line
    disk, name = writing.disk, segment_names(writing.disk)[-1]
    again = Writing(MemoryDisk())
    for count in (3, 2):
        again.frame(count)
    again.new_term()
    for count in (2, 3, 1, 1, 1):
        again.frame(count)
    assert again.disk.size(name) > disk.size(name)
    disk.remove(name)
    write_file(disk, name, again.disk.read(name))
    done = shipping.round(NOW_US)
    assert done.line.name != first.name
    assert "the log was cut" in done.new_line
    assert restored(store)[1].last_lsn == again.next_lsn - 1


def test_a_log_that_was_trimmed_before_it_was_shipped_begins_a_line() -> None:
    writing, store = small_log(), Objects()
    first = shipped(writing, store).line
    for _ in range(6):
        writing.frame(4)
    snapshot_of(writing)
    for name in segment_names(writing.disk)[:-1]:
        writing.disk.remove(name)
    done = shipped(writing, store)
    assert done.line.name != first.name
    assert "trimmed" in done.new_line
    assert restored(store)[1].last_lsn == writing.next_lsn - 1


def test_damage_is_never_shipped_but_a_damaged_snapshot_stops_nothing() -> None:
    writing, store = small_log(), Objects()
    name = snapshot_of(writing)
    data = bytearray(writing.disk.read(name))
    data[len(data) // 2] ^= 1
    writing.disk.remove(name)
    write_file(writing.disk, name, bytes(data))
    done = shipped(writing, store)
    assert done.problems
    assert not done.line.snapshots
    sealed = segment_names(writing.disk)[0]
    data = bytearray(writing.disk.read(sealed))
    data[len(data) // 2] ^= 1
    writing.disk.remove(sealed)
    write_file(writing.disk, sealed, bytes(data))
    with pytest.raises(StorageError, match=sealed):
        shipped(writing, Objects())


def test_what_no_later_moment_needs_is_let_go() -> None:
    writing, store = small_log(), Objects()
    shipping = Shipping(writing.disk, store)
    shipping.round(NOW_US)
    for _ in range(3):
        for _ in range(5):
            writing.frame(4)
        snapshot_of(writing)
        shipping.round(NOW_US)
    points = [one.last_lsn for one in lines_of(store)[-1].snapshots.values()]
    assert len(points) == 3
    # The log's clock stands at EPOCH_US plus the LSN at each snapshot.
    done = shipping.round(EPOCH_US + points[1] + SECOND_US, SECOND_US)
    assert done.let_go
    line = lines_of(store)[-1]
    assert line.first_lsn == points[1]
    named = {f"{line.name}/files/{n}@{one.size}" for n, one in line.files.items()}
    assert {path for path in store.held if "/files/" in path} == named
    assert restored(store, points[1])[1].last_lsn == points[1]
    assert restored(store)[1].last_lsn == writing.next_lsn - 1
    again = shipping.round(EPOCH_US + points[1] + SECOND_US, SECOND_US)
    assert (again.files, again.let_go) == (0, 0), "what was let go is not shipped again"
    assert snapshot_names(writing.disk)[0] not in line.snapshots


def test_rescue_files_go_with_the_log() -> None:
    writing, store = small_log(), Objects()
    saved = f"{RESCUE_PREFIX}0000000001-00000000000000000009.wal"
    write_file(writing.disk, saved, writing.disk.read(segment_names(writing.disk)[0]))
    line = shipped(writing, store).line
    assert saved in line.beside


class Watched:
    """A directory of which it is known how many bytes were read; a file may go while it is."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk, self.where = disk, disk.where
        self.read_bytes: dict[str, int] = {}
        self.goes = ""

    def list(self) -> list[str]:
        return self.disk.list()

    def size(self, name: str) -> int:
        return self.disk.size(name)

    def read(self, name: str, position: int = 0, length: int = -1) -> bytes:
        if name == self.goes:
            self.disk.remove(name)
        data = self.disk.read(name, position, length)
        self.read_bytes[name] = self.read_bytes.get(name, 0) + len(data)
        return data


def test_where_nothing_is_to_ship_yet_nothing_is_left_and_the_first_round_after_ships() -> None:
    disk, store = MemoryDisk(), Objects()
    shipping = Shipping(disk, store)
    with pytest.raises(StorageError, match="is not a data directory yet"):
        shipping.round(NOW_US)
    open_meta(disk, CLUSTER, NODE, EPOCH_US)
    for _ in range(2):
        with pytest.raises(StorageError, match="holds neither a segment nor a snapshot"):
            shipping.round(NOW_US)
    assert not store.held
    writing = Writing(disk)
    writing.frame(3)
    assert shipping.round(NOW_US).line.newest.last_lsn == writing.next_lsn - 1
    assert [line.first_lsn for line in lines_of(store)] == [1]


def test_a_line_that_holds_nothing_is_none() -> None:
    """As an older version left it behind."""
    store = Objects()
    empty = ArchiveLine(line_name(NOW_US, bytes(16)), 1, "", bytes(16).hex(), NOW_US)
    store.held[manifest_name(empty.name, 1)] = empty.encoded()
    assert lines_of(store) == []


def test_of_a_segment_that_grows_only_the_growth_is_read_for_its_frames() -> None:
    writing, store = Writing(MemoryDisk(), 1_000_000), Objects()
    for _ in range(400):
        writing.frame(4)
    watched = Watched(writing.disk)
    shipping = Shipping(watched, store)
    shipping.round(NOW_US)
    writing.frame(4)
    watched.read_bytes.clear()
    done = shipping.round(NOW_US)
    assert done.line.newest.last_lsn == writing.next_lsn - 1
    name = segment_names(writing.disk)[-1]
    # Compared with what was shipped, and copied.
    assert watched.read_bytes[name] < 2.5 * writing.disk.size(name)
    assert log_of(restored(store)[0]) == log_of(writing.disk)


def test_a_round_that_begins_anew_copies_nothing_twice() -> None:
    writing, store = small_log(), Objects()
    gone = f"{RESCUE_PREFIX}0000000001-00000000000000000009.wal"
    write_file(writing.disk, gone, b"x" * 100)
    watched = Watched(writing.disk)
    watched.goes = gone
    done = Shipping(watched, store).round(NOW_US)
    assert store.writes == len(segment_names(writing.disk)) + len(done.line.beside) + 2, store.held
    assert gone not in done.line.beside
    assert log_of(restored(store)[0]) == log_of(writing.disk)
