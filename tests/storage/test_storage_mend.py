"""Damage that a peer can mend: put aside whole, remembered, and nothing lost on the way."""

from __future__ import annotations

import pytest

from tandemq.log.disk import OPERATIONS
from tandemq.log.meta import Meta, encode_commit
from tandemq.log.segment import SEGMENT_HEADER_SIZE, segment_names
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq_server.storage.memory import MemoryDisk
from tandemq_server.storage.mend import DamagedFiles, end_before, read_missing
from tandemq_server.storage.recovery import recover
from tests.storage.storage_samples import (
    CLUSTER,
    EPOCH_US,
    NODE,
    Writing,
    loaded,
    small_log,
    small_snapshot,
)

META = Meta(CLUSTER, NODE, EPOCH_US)


def sealed() -> Writing:
    """Three segments: LSNs 1..3, 4..6, 7..10."""
    return small_log((2, 1, 2, 1, 3, 1), (2, 4))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


def mended(disk: MemoryDisk) -> tuple[int, int]:
    """(last LSN, missing LSN) once everything damaged is aside."""
    for _ in range(5):
        try:
            found, _ = loaded(disk)
        except DamagedFiles as damage:
            end_before(disk, META, damage)
        else:
            return found.last_lsn, found.missing_lsn
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize(
    ("number", "at", "last_lsn", "aside"),
    [(1, SEGMENT_HEADER_SIZE + 60, 3, 2), (1, 100, 3, 2), (0, 100, 0, 3), (1, -200, 5, 2)],
)
def test_damage_in_a_sealed_segment_is_put_aside_with_what_follows(
    number: int, at: int, last_lsn: int, aside: int
) -> None:
    writing = sealed()
    files = writing.disk.contents()
    name = segment_names(writing.disk)[number]
    files[name] = flipped(files[name], at % len(files[name]))
    disk = MemoryDisk(files)
    assert mended(disk) == (last_lsn, 10)
    kept = {key: data for key, data in disk.contents().items() if key.endswith(".damaged")}
    assert len(kept) == aside
    assert all(data == files[key.removesuffix(".damaged")] for key, data in kept.items())


def test_a_segment_that_is_gone_a_log_too_short_and_no_good_snapshot() -> None:
    writing = sealed()
    files = writing.disk.contents()
    names = segment_names(writing.disk)
    gone = {key: data for key, data in files.items() if key != names[1]}
    assert mended(MemoryDisk(gone)) == (3, 10)
    short = {key: data for key, data in files.items() if key != names[2]}
    assert mended(MemoryDisk({**short, "commit": encode_commit(9)})) == (6, 9)
    # Only a snapshot leads to the present, and it is damaged: everything goes aside.
    base = Writing(MemoryDisk())
    name = small_snapshot(base.disk, base.meta, 0)
    files = {key: data for key, data in base.disk.contents().items() if not key.endswith(".wal")}
    disk = MemoryDisk({**files, name: flipped(files[name], -5 % len(files[name]))})
    disk.create("commit")
    assert mended(disk) == (0, 0) or snapshot_names(disk) == []


def test_it_is_remembered_until_it_is_here_again() -> None:
    writing = sealed()
    files = writing.disk.contents()
    name = segment_names(writing.disk)[2]
    # The last frame tells that the one before it was committed.
    files[name] = flipped(files[name], SEGMENT_HEADER_SIZE + 60)
    disk = MemoryDisk(files)
    assert mended(disk) == (6, 10)
    assert mended(disk) == (6, 10)
    found = recover(disk, _Nowhere())
    assert found.missing_lsn == read_missing(disk) == 10
    whole = MemoryDisk({**writing.disk.contents(), "missing": disk.contents()["missing"]})
    assert mended(whole) == (10, 0)
    assert read_missing(whole) == 0
    with pytest.raises(StorageError, match=r"^missing: "):
        loaded(MemoryDisk({**disk.contents(), "missing": b"rubbish"}))


def test_more_damage_does_not_make_less_missing() -> None:
    """What was put aside first reached further than what is found damaged later."""
    writing = sealed()
    files = writing.disk.contents()
    names = segment_names(writing.disk)
    disk = MemoryDisk({**files, names[2]: flipped(files[names[2]], SEGMENT_HEADER_SIZE + 60)})
    assert mended(disk) == (6, 10)
    later = disk.contents()
    later[names[0]] = flipped(later[names[0]], SEGMENT_HEADER_SIZE + 60)
    assert mended(MemoryDisk(later)) == (0, 10)


@pytest.mark.parametrize("operation", sorted({*OPERATIONS} - {"free", "settle", "overwrite"}))
def test_stopped_at_any_operation_it_is_finished_the_next_time(operation: str) -> None:
    writing = sealed()
    files = writing.disk.contents()
    name = segment_names(writing.disk)[1]
    files[name] = flipped(files[name], len(files[name]) - 200)
    reached = 0
    for nth in range(1, 40):
        disk = MemoryDisk(files)
        with pytest.raises(DamagedFiles) as caught:
            loaded(disk)
        disk.fail(operation, nth)
        try:
            end_before(disk, META, caught.value)
        except StorageError:
            reached += 1
        after = MemoryDisk(disk.contents())
        assert mended(after)[1] == 10, nth
        kept = [data for key, data in after.contents().items() if ".damaged" in key]
        assert files[name] in kept
    assert reached or operation in ("open", "remove", "close")


class _Nowhere:
    def catalogue(self, *_: object) -> None: ...

    def rows(self, *_: object) -> None: ...

    def records(self, *_: object) -> None: ...
