"""From frames to durable: one write per event-loop turn, fdatasync off the loop, replies after.

`submit` takes a turn; its replies are released, in order, once everything before them is as
durable as `wal.mode` promises. The first failure of a write or sync ends the node.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any

from model.errors import StorageError
from node.core import Turn
from storage.log import Log

#: Syncs under way at once: while one waits for the disk, the next turn's may already be asked for.
SYNCS_MAX = 1


class WalWriter:
    """Group commit.

    mode: none, write or fsync. release(turn): send its replies. failed(error): stop the node.
    frames go to `listeners` as they are written (snapshots, downstreams).
    """

    def __init__(
        self,
        log: Log | None,
        mode: str,
        release: Callable[[Turn], None],
        failed: Callable[[StorageError], None],
    ) -> None:
        assert mode == "none" or log is not None
        self.log = log
        self.mode = mode
        self.release = release
        self.failed = failed
        self.broken = False
        self.closed = False
        self.durable_lsn = 0
        self.written_lsn = 0
        self.listeners: list[Callable[[bytes, int], None]] = []
        self.bytes_written = 0
        self.on_durable: Callable[[int], None] = lambda _lsn: None
        self.sync_seconds: Callable[[float], None] = lambda _seconds: None
        self._pool = ThreadPoolExecutor(SYNCS_MAX, "fdatasync") if log is not None else None
        self._parked: deque[Turn] = deque()
        self._syncing = 0
        self._unsynced = False

    def submit(self, turn: Turn, time_us: int) -> None:
        """Write the turn's frame, if any, and release its replies when they may leave."""
        if self.broken or self.closed:
            return
        frame = turn.frame
        if frame is not None:
            try:
                if self.log is not None:
                    self.log.append(frame, turn.first_lsn, turn.last_lsn, time_us)
            except StorageError as error:
                self._fail(error)
                return
            self.written_lsn = turn.last_lsn
            self.bytes_written += len(frame)
            for listener in list(self.listeners):
                listener(frame, turn.last_lsn)
        if self.mode != "fsync":
            self.durable_lsn = self.written_lsn
            self.release(turn)
            if frame is not None:
                self.on_durable(self.durable_lsn)
            return
        if frame is None:
            if self.durable_lsn >= self.written_lsn:
                self.release(turn)
                return
            turn.last_lsn = self.written_lsn
        else:
            self._unsynced = True
        self._parked.append(turn)
        self._sync()

    def _sync(self) -> None:
        if not self._unsynced or self._syncing >= SYNCS_MAX or self.broken:
            return
        assert self._pool is not None
        assert self.log is not None
        self._unsynced = False
        self._syncing += 1
        loop = asyncio.get_running_loop()
        covers = self.written_lsn
        started = perf_counter()
        future: Future[None] = self._pool.submit(self.log.sync)
        future.add_done_callback(
            lambda done: loop.call_soon_threadsafe(self._synced, covers, started, done)
        )

    def _synced(self, covers: int, started: float, done: Future[Any]) -> None:
        self._syncing -= 1
        error = done.exception()
        if error is not None:
            self._fail(
                error if isinstance(error, StorageError) else StorageError("log", 0, str(error))
            )
            return
        if self.broken:
            return
        self.sync_seconds(perf_counter() - started)
        self.durable_lsn = max(self.durable_lsn, covers)
        self._publish()
        parked = self._parked
        while parked and parked[0].last_lsn <= self.durable_lsn:
            self.release(parked.popleft())
        self.on_durable(self.durable_lsn)
        self._sync()

    def _publish(self) -> None:
        """Leave word beside the log how far it was acknowledged."""
        assert self.log is not None
        try:
            self.log.publish_commit(self.durable_lsn)
        except StorageError as error:
            self._fail(error)

    def settle(self) -> None:
        """Now and then in write mode: publish, and sync so that a roll finds little to do."""
        if self.log is None or self.broken or self.closed:
            return
        self._publish()
        if self.mode == "write" and not self._syncing:
            self._unsynced = True
            self._sync()

    def _fail(self, error: StorageError) -> None:
        """Stop acknowledging first, explain second; a failed sync is never tried again."""
        self.broken = True
        self._parked.clear()
        self.failed(error)

    @property
    def idle(self) -> bool:
        return not self._parked and not self._syncing

    def close(self) -> None:
        """Everything written becomes durable; blocking, for a node that ends."""
        self.closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        if self.log is not None and not self.broken:
            self.log.publish_commit(self.durable_lsn)
            self.log.close()
