"""From frames to durable: one write per event-loop turn, fdatasync off the loop, replies after.

`submit` takes a turn; its replies are released, in order, once everything before them is as
durable as `wal.mode` promises. The first failure of a write or sync ends the node.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter

from model.errors import StorageError
from node.core import Turn
from storage.log import Log

#: How many turns of the loop a sync waits at most for what already waits in sockets.
GATHER_TURNS = 16


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
        self._jobs: SimpleQueue[tuple[int, float] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parked: deque[Turn] = deque()
        self._syncing = False
        self._gathering = False
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
        if not self._unsynced or self._syncing or self._gathering or self.broken:
            return
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._sync_jobs, name="fdatasync", daemon=True)
            self._thread.start()
        self._unsynced = False
        self._syncing = True
        self._jobs.put((self.written_lsn, perf_counter()))

    def _sync_jobs(self) -> None:
        """The other thread: one sync after the other."""
        assert self.log is not None
        assert self._loop is not None
        while (job := self._jobs.get()) is not None:
            error: Exception | None = None
            try:
                self.log.sync()
            except Exception as caught:
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._synced, *job, error)
            except RuntimeError:
                # The loop has ended: nobody waits for this sync any more.
                return

    def _synced(self, covers: int, started: float, error: Exception | None) -> None:
        self._syncing = False
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
        if self._unsynced and self._loop is not None:
            self._gathering = True
            self._loop.call_soon(self._gather, self.written_lsn, 0, 0)

    def _gather(self, seen: int, turns: int, idle: int) -> None:
        """Go on reading what already waits, so that the next sync is for all of it.

        Two turns of the loop that bring nothing new (a turn's frame may be one turn behind), or
        GATHER_TURNS in all, end it.
        """
        idle = 0 if self.written_lsn > seen else idle + 1
        if idle < 2 and turns < GATHER_TURNS and self._loop is not None and not self.broken:
            self._loop.call_soon(self._gather, self.written_lsn, turns + 1, idle)
            return
        self._gathering = False
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
        return not self._parked and not self._syncing and not self._gathering

    def close(self) -> None:
        """Everything written becomes durable; blocking, for a node that ends."""
        self.closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        if self.log is not None and not self.broken:
            self.log.publish_commit(self.durable_lsn)
            self.log.close()
