"""Replies leave once the log is as durable as the mode says; its first error ends everything."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tandemq.model.errors import StorageError
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.syncer import PATIENCE, SyncPace, Syncs
from tandemq_server.node.loop.wal_writer import WalWriter

pytestmark = pytest.mark.asyncio


class FakeLog:
    """A log whose syncs wait for the test, and fail when told to."""

    def __init__(self) -> None:
        self.appended: list[int] = []
        self.published = 0
        self.may_sync = threading.Event()
        self.error: StorageError | None = None
        self.append_error: StorageError | None = None

    def append(
        self, frame: bytes, first_lsn: int, last_lsn: int, time_us: int, *_several: int
    ) -> None:
        if self.append_error is not None:
            raise self.append_error
        self.appended.append(last_lsn)

    def sync(self) -> int:
        assert self.may_sync.wait(5)
        if self.error is not None:
            raise self.error
        return self.appended[-1]

    def publish_commit(self, lsn: int) -> None:
        self.published = lsn

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, mode: str, syncer: Syncs | None = None) -> None:
        self.log = FakeLog()
        self.released: list[Turn] = []
        self.failures: list[StorageError] = []
        self.wal = WalWriter(
            self.log,  # type: ignore[arg-type]
            mode,
            self.released.append,
            self.failures.append,
            syncer or Syncs(thread_only=True),
        )

    def turn(self, lsn: int | None) -> Turn:
        turn = Turn() if lsn is None else Turn(b"frame", lsn, lsn)
        self.wal.submit(turn, 0)
        return turn

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.released) + len(self.failures) < count:
                await asyncio.sleep(0.001)


async def test_write_mode_releases_at_once() -> None:
    bench = Bench("write")
    turn = bench.turn(1)
    assert bench.released == [turn]
    assert bench.wal.durable_lsn == 1
    bench.wal.close()


async def test_fsync_mode_holds_replies_and_reads_behind_them() -> None:
    bench = Bench("fsync")
    put, read, later = bench.turn(1), bench.turn(None), bench.turn(2)
    await asyncio.sleep(0.02)
    assert bench.released == []
    bench.log.may_sync.set()
    await bench.until(3)
    assert bench.released == [put, read, later]
    assert bench.log.published == 2
    assert bench.turn(None) is bench.released[-1]
    bench.wal.close()


async def test_a_failed_sync_releases_nothing_ever_again() -> None:
    bench = Bench("fsync")
    bench.log.error = StorageError("f.wal", 0, "Input/output error")
    bench.turn(1)
    bench.turn(2)
    bench.log.may_sync.set()
    await bench.until(1)
    bench.turn(3)
    await asyncio.sleep(0.02)
    assert bench.released == []
    assert bench.failures == [bench.log.error]
    assert bench.log.appended == [1, 2]
    bench.wal.close()


@pytest.mark.parametrize("mode", ["write", "fsync"])
async def test_a_failed_write_releases_nothing_ever_again(mode: str) -> None:
    bench = Bench(mode)
    bench.log.append_error = StorageError("f.wal", 0, "No space left on device")
    bench.turn(1)
    bench.turn(None)
    assert bench.released == []
    assert bench.failures == [bench.log.append_error]
    bench.wal.committed(1)
    assert bench.wal.commit_lsn == 0, "the log may lack what a master says was committed"
    bench.wal.close()


async def test_listeners_see_every_frame_before_its_reply_leaves() -> None:
    bench = Bench("write")
    seen: list[tuple[int, int]] = []
    bench.wal.listeners.append(lambda frame, lsn: seen.append((lsn, len(bench.released))))
    bench.turn(1)
    bench.turn(2)
    assert seen == [(1, 0), (2, 1)]
    bench.wal.close()


async def test_a_turn_of_several_frames_is_written_and_told_whole_and_answered_once() -> None:
    bench = Bench("write")
    seen: list[tuple[bytes, int]] = []
    bench.wal.listeners.append(lambda frame, lsn: seen.append((frame, lsn)))
    turn = Turn(b"c", 5, 6, before=[(b"a", 1, 1), (b"b", 2, 4)])
    bench.wal.submit(turn, 0)
    assert bench.log.appended == [1, 4, 6]
    assert seen == [(b"a", 1), (b"b", 4), (b"c", 6)]
    assert (bench.released, bench.wal.durable_lsn) == ([turn], 6)
    bench.wal.close()


async def test_a_quick_disk_is_synced_in_the_loop_once_for_what_already_waits() -> None:
    bench = Bench("fsync", Syncs())
    bench.log.may_sync.set()
    synced_by: list[tuple[str, int]] = []
    sync = bench.log.sync

    def watched() -> int:
        synced_by.append((threading.current_thread().name, len(bench.released)))
        return sync()

    bench.log.sync = watched  # type: ignore[method-assign]
    turns = [bench.turn(1), bench.turn(None), bench.turn(2)]
    assert bench.released == []
    await bench.until(3)
    assert bench.released == turns
    assert synced_by == [(threading.current_thread().name, 0)]
    assert bench.wal.durable_lsn == 2
    assert bench.wal.idle
    bench.wal.close()


async def test_a_sync_in_the_loop_that_fails_releases_nothing_ever_again() -> None:
    bench = Bench("fsync", Syncs())
    bench.log.may_sync.set()
    bench.log.error = StorageError("f.wal", 0, "Input/output error")
    bench.turn(1)
    await bench.until(1)
    bench.turn(2)
    await asyncio.sleep(0.02)
    assert bench.released == []
    assert bench.failures == [bench.log.error]
    bench.wal.close()


async def test_nothing_is_synced_after_the_end() -> None:
    bench = Bench("fsync", Syncs())
    bench.turn(1)
    bench.wal.close()
    await asyncio.sleep(0.02)
    assert bench.released == []
    assert bench.failures == []


async def test_a_write_mode_never_syncs_in_the_loop() -> None:
    assert not Syncs(thread_only=True).quick
    assert Syncs().quick


def _after(pace: SyncPace, seconds: float, count: int) -> bool:
    for _ in range(count):
        pace.took(seconds)
    return pace.quick


async def test_a_slow_disk_is_left_to_the_thread_and_tried_again_ever_more_rarely() -> None:
    pace = SyncPace()
    assert _after(pace, 0.0004, 1000)
    assert not _after(pace, 0.006, 1)  # one long wait is enough
    assert not _after(pace, 0.0005, PATIENCE - 1)
    assert _after(pace, 0.0005, 1)
    assert not _after(pace, 0.002, 16)  # so is a disk that is slow on the average
    assert not _after(pace, 0.0005, 2 * PATIENCE - 1 - 16)
    assert _after(pace, 0.0005, 17)
    assert not _after(pace, 0.02, 1)
    assert not _after(pace, 0.02, 100 * PATIENCE)  # nor is it tried while the thread finds it slow
