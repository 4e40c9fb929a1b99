"""What the writer must not promise: beside a sync, over a cut, before a pair, while it follows."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tandemq.model.errors import StorageError
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.syncer import Syncs
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.replication.commit import PAIR, CommitPoint

pytestmark = pytest.mark.asyncio
TERM, REPLICA = b"t" * 16, b"r" * 16


class SteppedLog:
    """A log each of whose syncs waits until the test lets it go on."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.synced = self.published = 0

    def append(self, *_frame: object) -> None:
        pass

    def sync(self) -> int:
        assert self.go.acquire(timeout=5)
        self.synced += 1
        return 0

    def publish_commit(self, lsn: int) -> None:
        self.published = lsn

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, mode: str) -> None:
        self.log = SteppedLog()
        self.released: list[Turn] = []
        self.failures: list[StorageError] = []
        self.wal = WalWriter(
            self.log,  # type: ignore[arg-type]
            mode,
            self.released.append,
            self.failures.append,
            Syncs(thread_only=True),
            lambda: 0,
        )

    def put(self, lsn: int) -> Turn:
        turn = Turn(b"frame", lsn, lsn)
        self.wal.submit(turn, 0)
        return turn

    def read(self) -> Turn:
        turn = Turn()
        self.wal.submit(turn, 0)
        return turn

    async def durable(self, lsn: int) -> None:
        async with asyncio.timeout(5):
            while self.wal.durable_lsn < lsn:
                await asyncio.sleep(0.001)

    def close(self) -> None:
        self.log.go.release(10)
        self.wal.close()


async def test_a_sync_proves_nothing_of_what_came_while_it_ran() -> None:
    bench = Bench("fsync")
    first = bench.put(1)
    async with asyncio.timeout(5):
        while not bench.wal._syncing:
            await asyncio.sleep(0.001)
    second = bench.put(2)
    bench.log.go.release()
    await bench.durable(1)
    await asyncio.sleep(0.02)
    assert (bench.wal.durable_lsn, bench.released) == (1, [first])
    bench.log.go.release()
    await bench.durable(2)
    assert bench.released == [first, second]
    bench.close()


async def test_a_sync_of_before_a_cut_proves_nothing_after_it() -> None:
    bench = Bench("fsync")
    bench.put(1)
    bench.put(2)
    async with asyncio.timeout(5):
        while not bench.wal._syncing:
            await asyncio.sleep(0.001)
    # The sync has ended before the cut, and word of it comes after.
    bench.log.go.release()
    bench.wal.pause()
    assert bench.log.synced == 1
    bench.wal.abandon()
    bench.wal.replaced(bench.log, 0)  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    assert bench.wal.durable_lsn == 0
    again = bench.put(1)
    await asyncio.sleep(0.05)
    assert again not in bench.released
    bench.close()


async def test_a_cut_waits_for_the_sync_that_runs() -> None:
    bench = Bench("fsync")
    bench.put(1)
    async with asyncio.timeout(5):
        while not bench.wal._syncing:
            await asyncio.sleep(0.001)
    timer = threading.Timer(0.1, bench.log.go.release)
    timer.start()
    bench.wal.pause()
    assert bench.log.synced == 1
    timer.join()
    bench.close()


@pytest.mark.parametrize("mode", ["write", "fsync"])
async def test_pair_mode_waits_for_the_replica(mode: str) -> None:
    bench = Bench(mode)
    bench.wal.gate = gate = CommitPoint(PAIR, None)
    gate.open_term(TERM, False, 0)
    gate.link_up(REPLICA)
    bench.log.go.release(10)
    put, read = bench.put(1), bench.read()
    await bench.durable(1)
    await asyncio.sleep(0.02)
    assert (bench.released, bench.wal.commit_lsn) == ([], 0)
    gate.ack(REPLICA, TERM, 1, 0)
    bench.wal.advance()
    assert (bench.released, bench.wal.commit_lsn) == ([put, read], 1)
    bench.close()


async def test_a_read_waits_for_what_it_could_see() -> None:
    bench = Bench("fsync")
    # Frames of an upstream: nobody's reply stands before the read.
    assert bench.wal.append(b"frame", 1, 1, 0)
    read = bench.read()
    assert bench.released == []
    bench.log.go.release(10)
    bench.wal.reached()
    await bench.durable(1)
    assert bench.released == [read]
    bench.close()


async def test_a_follower_commits_only_what_it_is_told() -> None:
    bench = Bench("write")
    told: list[int] = []
    bench.wal.on_commit = told.append
    bench.wal.following = True
    for lsn in range(1, 6):
        bench.wal.append(b"frame", lsn, lsn, 0)
    bench.wal.reached()
    assert (bench.wal.durable_lsn, bench.wal.commit_lsn, told) == (5, 0, [])
    bench.wal.committed(4)
    bench.wal.committed(2)
    assert (bench.wal.commit_lsn, told) == (4, [4])
    bench.close()


async def test_what_was_abandoned_is_never_answered() -> None:
    bench = Bench("fsync")
    bench.put(1)
    bench.wal.abandon()
    bench.log.go.release(10)
    await bench.durable(1)
    later = bench.put(2)
    await bench.durable(2)
    assert bench.released == [later]
    bench.close()


async def test_no_more_is_published_than_is_durable_and_committed() -> None:
    bench = Bench("fsync")
    bench.put(1)
    bench.wal.settle()
    assert bench.log.published == 0
    bench.log.go.release()
    await bench.durable(1)
    bench.put(2)
    bench.wal.settle()
    assert bench.log.published == 1
    bench.close()
