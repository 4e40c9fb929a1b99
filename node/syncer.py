"""Syncs of the log off the event loop: one plain thread, one sync at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

Sync = Callable[[], object]
Synced = Callable[[Exception | None], None]


class Syncer(Protocol):
    """Runs `sync()` somewhere and then calls `done(error or None)` on the loop."""

    def begin(self, sync: Sync, done: Synced) -> None: ...

    def soon(self, call: Callable[[], None]) -> None:
        """Run `call` in the loop's next turn."""
        ...

    def wait(self) -> None:
        """Block until no sync is running; `done` of it may still be to come."""
        ...

    def close(self) -> None:
        """Finish what was begun and end; blocking."""
        ...


class SyncThread:
    """The real one. Begun with the first sync, so that only `fsync` mode pays for a thread."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Sync, Synced] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Held while a sync runs.
        self._busy = threading.Lock()

    def begin(self, sync: Sync, done: Synced) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="fdatasync", daemon=True)
            self._thread.start()
        self._busy.acquire()
        self._jobs.put((sync, done))

    def soon(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def wait(self) -> None:
        with self._busy:
            pass

    def _run(self) -> None:
        assert self._loop is not None
        while (job := self._jobs.get()) is not None:
            sync, done = job
            error: Exception | None = None
            try:
                sync()
            except Exception as caught:
                error = caught
            finally:
                self._busy.release()
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                # The loop has ended: nobody waits for this sync any more.
                return

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
