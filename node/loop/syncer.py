"""Syncs of the log: on the event loop while the disk is quick, else in one plain thread.

Handing a sync to a thread costs two waits for the interpreter lock, about a millisecond under load:
more than a quick disk needs for the sync itself. A slow disk must not hold the loop up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol

Sync = Callable[[], object]
Synced = Callable[[Exception | None], None]

#: Syncs in the loop may take so many seconds on the average, and one alone at most so many.
QUICK_MEAN, QUICK_ONE = 0.001, 0.005
#: What a sync in the thread may take on the average, the waiting included, before the loop tries.
THREAD_MEAN = 0.003
#: So many syncs the thread does before the loop tries again; twice as many after each failure.
PATIENCE, PATIENCE_MAX = 256, 65_536


class Syncer(Protocol):
    """Runs `sync()` somewhere and then calls `done(error or None)` on the loop."""

    @property
    def quick(self) -> bool:
        """Whether the next sync runs at once, in the loop: `begin` then returns after `done`."""
        ...

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


class SyncPace:
    """How long syncs take, in seconds, and so whether the loop may run the next one itself."""

    def __init__(self) -> None:
        self.quick = True
        self._mean = 0.0
        self._patience = self._left = PATIENCE

    def took(self, seconds: float) -> None:
        """One sync has ended."""
        self._mean += (seconds - self._mean) / 16
        if self.quick:
            if seconds > QUICK_ONE or self._mean > QUICK_MEAN:
                self.quick = False
                self._left = self._patience
                self._patience = min(2 * self._patience, PATIENCE_MAX)
            return
        self._left -= 1
        if self._left <= 0 and self._mean < THREAD_MEAN:
            self.quick = True
            self._mean = 0.0


class Syncs:
    """The real one. The thread begins with the first sync that needs it.

    thread_only: never sync in the loop, for `write` mode, whose rare syncs have much to write.
    """

    def __init__(self, thread_only: bool = False) -> None:
        self._jobs: SimpleQueue[tuple[Sync, Synced] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Held while a sync runs.
        self._busy = threading.Lock()
        self._thread_only = thread_only
        self._pace = SyncPace()

    @property
    def quick(self) -> bool:
        return self._pace.quick and not self._thread_only

    def begin(self, sync: Sync, done: Synced) -> None:
        self._busy.acquire()
        if self.quick:
            done(self._timed(sync))
            return
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="fdatasync", daemon=True)
            self._thread.start()
        self._jobs.put((sync, done))

    def soon(self, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(call)

    def wait(self) -> None:
        with self._busy:
            pass

    def _timed(self, sync: Sync) -> Exception | None:
        began = perf_counter()
        try:
            sync()
        except Exception as caught:
            return caught
        finally:
            self._pace.took(perf_counter() - began)
            self._busy.release()
        return None

    def _run(self) -> None:
        assert self._loop is not None
        while (job := self._jobs.get()) is not None:
            sync, done = job
            error = self._timed(sync)
            try:
                self._loop.call_soon_threadsafe(done, error)
            except RuntimeError:
                # The loop has ended: nobody waits for this sync any more.
                return

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
