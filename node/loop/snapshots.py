"""Snapshots while serving: a few thousand rows per event-loop turn, log frames in between.

The file is consistent at its last LSN because every frame written meanwhile stands in it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tandemq.model.errors import StorageError
from tandemq_server.node.core.core import Core
from tandemq_server.node.loop.wal_writer import WalWriter
from tandemq_server.storage.snapshot_writer import SnapshotWriter

#: Rows written in one go: a few milliseconds of work.
CHUNK_ROWS = 2_000


class Snapshots:
    """Takes snapshots one at a time, by call or when the log has grown by `every_bytes`."""

    def __init__(
        self,
        core: Core,
        wal: WalWriter,
        new_writer: Callable[[int], SnapshotWriter],
        proven: Callable[[str], list[StorageError]],
        published: Callable[[int], None],
        every_bytes: int | None,
        flush: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        """`flush()` ends the turn at hand; `new_writer(start_lsn)` opens a file; `proven(name)`,
        in another thread, says which older ones are bad; `published(end_lsn)` may trim the log.
        """
        self.core = core
        self.wal = wal
        self.new_writer = new_writer
        self.proven = proven
        self.published = published
        #: Why the last one failed, or which older one turned out bad; empty while all is well.
        self.problem = ""
        #: Until when, by the log's clock, somebody is known to have served: a start from this
        #: snapshot counts from there how long nobody did.
        self.served_until: Callable[[], int] = lambda: core.engine.now
        self.every_bytes = every_bytes
        self.flush = flush
        self.log = log
        self.running: asyncio.Task[int] | None = None
        self.last_lsn = 0
        self.longest_pause_s = 0.0
        self._at_bytes = 0
        self._finishing: futures.Future[list[StorageError]] | None = None
        self._pool = ThreadPoolExecutor(1, "snapshot")

    def start(self) -> asyncio.Task[int]:
        """Begin a snapshot, or join the one under way. The result is its LSN."""
        if self.running is None or self.running.done():
            self._at_bytes = self.wal.bytes_written
            self.running = asyncio.get_running_loop().create_task(self._take())
        return self.running

    def maybe(self) -> None:
        """Start one if the log has grown enough since the last."""
        if self.every_bytes and self.wal.bytes_written - self._at_bytes >= self.every_bytes:
            task = self.start()
            task.add_done_callback(self._report)

    def spoilt(self, error: StorageError) -> None:
        """An older one was put aside, as it cannot be read; over once there is a new one."""
        self.problem = f"older snapshot put aside: {error}"

    def _report(self, task: asyncio.Task[int]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.log(f"snapshot failed: {task.exception()}")

    async def _take(self) -> int:
        try:
            return await self._write()
        except Exception as error:
            self.problem = f"snapshot failed: {error}"
            raise

    def _finish(self, writer: SnapshotWriter, end: int, time_us: int) -> list[StorageError]:
        """In the other thread: the file is whole, and what it leans on is."""
        return self.proven(writer.finish(end, time_us))

    async def _write(self) -> int:
        loop = asyncio.get_running_loop()
        core, wal = self.core, self.wal
        # Records of this very turn are not written yet: they will come as a frame.
        writer = self.new_writer(wal.written_lsn)
        end = wal.written_lsn

        term = core.term
        failed: StorageError | None = None

        def on_frame(frame: bytes, last_lsn: int) -> None:
            # The log must not suffer from a snapshot that cannot be written.
            nonlocal end, term, failed
            try:
                if core.term != term:
                    term = core.term
                    writer.add_term(core.engine.store.lineage[-1])
                writer.add_frames(frame)
                end = last_lsn
            except StorageError as error:
                failed = error
                wal.listeners.remove(on_frame)

        wal.listeners.append(on_frame)
        try:
            writer.add_catalogue(core.engine.store.catalogue())
            for space_id, rows in core.engine.store.rows_for_snapshot(CHUNK_ROWS):
                began = loop.time()
                writer.add_rows(space_id, rows)
                self.longest_pause_s = max(self.longest_pause_s, loop.time() - began)
                await asyncio.sleep(0)
                if failed is not None:
                    raise failed
        except BaseException:
            if on_frame in wal.listeners:
                wal.listeners.remove(on_frame)
            writer.abort()
            raise
        # Rows may already show records of the turn at hand: its frame must be in the file.
        self.flush()
        if on_frame in wal.listeners:
            wal.listeners.remove(on_frame)
        if failed is not None or wal.broken:
            writer.abort()
            raise failed or StorageError("snapshot", 0, "the log failed while it was written")
        time_us = self.served_until()
        self._finishing = self._pool.submit(self._finish, writer, end, time_us)
        try:
            bad = await asyncio.wrap_future(self._finishing)
        finally:
            self._finishing = None
        self.last_lsn = end
        self.problem = "; ".join(f"older snapshot put aside: {error}" for error in bad)
        if bad:
            self.log(self.problem)
        self.published(end)
        return end

    def invalidate(self) -> None:
        """The state is about to be replaced: a snapshot under way must not show half of each.

        One whose end is being written in the other thread is waited for: it is whole.
        """
        if self.running is not None and not self.running.done():
            self.running.cancel()
        if self._finishing is not None:
            futures.wait([self._finishing])

    async def cancel(self) -> None:
        """Give up a snapshot under way; the next start finds and removes what is left of it."""
        if self.running is not None and not self.running.done():
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        self._pool.shutdown(wait=True)


def snapshot_now(core: Core, writer: SnapshotWriter, end_lsn: int) -> str:
    """Write a whole snapshot in one go, for a node that ends (`wal.mode: none`). Its name."""
    store: Any = core.engine.store
    writer.add_catalogue(store.catalogue())
    for space_id, rows in store.rows_for_snapshot(CHUNK_ROWS):
        writer.add_rows(space_id, rows)
    return writer.finish(end_lsn, core.engine.now)
