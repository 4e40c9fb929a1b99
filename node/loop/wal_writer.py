"""From frames to durable and committed: one write per turn of the loop, replies after.

`submit` takes a turn of this node, `append` and `appended` a frame of an upstream. Replies are
released, in order, once everything before them is as durable as `wal.mode` promises and, in pair
mode, confirmed by a replica. The first failure of a write or sync ends the node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter

from tandemq.model.errors import StorageError
from tandemq_server.node.core.turn import Turn
from tandemq_server.node.loop.clock import monotonic_us
from tandemq_server.node.loop.syncer import Syncer, Syncs
from tandemq_server.replication.commit import CommitPoint
from tandemq_server.storage.log import Log

#: One write in so many is measured.
APPENDS_MEASURED = 8
#: How many turns of the loop a sync waits at most for what already waits in sockets.
GATHER_TURNS = 16


class WalWriter:
    """Group commit.

    mode: none, write or fsync. release(turn): send its replies. failed(error): stop the node.
    Frames go to `listeners` as they are written (snapshots, downstreams), several at once where
    they came so. gate: the commit point of a leadership in pair mode, None when durable here is
    enough. on_durable, on_commit: told how far the log is.
    """

    def __init__(
        self,
        log: Log | None,
        mode: str,
        release: Callable[[Turn], None],
        failed: Callable[[StorageError], None],
        syncer: Syncer | None = None,
        now: Callable[[], int] = monotonic_us,
    ) -> None:
        assert mode == "none" or log is not None
        self.log = log
        self.mode = mode
        self.release = release
        self.failed = failed
        self.now = now
        self.broken = False
        self.closed = False
        self.durable_lsn = 0
        self.written_lsn = 0
        self.commit_lsn = 0
        self.gate: CommitPoint | None = None
        #: This node writes only what upstreams send: they say what is committed.
        self.following = False
        self.listeners: list[Callable[[bytes, int], None]] = []
        self.bytes_written = 0
        self.on_durable: Callable[[int], None] = lambda _lsn: None
        self.on_commit: Callable[[int], None] = lambda _lsn: None
        self.sync_seconds: Callable[[float], None] = lambda _seconds: None
        #: Told how long one write in APPENDS_MEASURED took.
        self.append_seconds: Callable[[float], None] = lambda _seconds: None
        self._appends = 0
        self._syncer = syncer or Syncs(thread_only=mode != "fsync")
        self._parked: deque[Turn] = deque()
        self._syncing = False
        self._gathering = False
        self._unsynced = False
        #: How often the log was cut or replaced: a sync begun before proves nothing after.
        self._epoch = 0

    # -- this node's own turns -------------------------------------------------------------------

    def submit(self, turn: Turn, time_us: int) -> None:
        """Write the turn's frame, if any, and release its replies when they may leave."""
        if self.broken or self.closed:
            return
        frame = turn.frame
        if frame is not None:
            try:
                for earlier, first_lsn, last_lsn in turn.before:
                    if not self.append(earlier, first_lsn, last_lsn, time_us):
                        return
                    self.appended(earlier, last_lsn)
                if not self.append(frame, turn.first_lsn, turn.last_lsn, time_us):
                    return
                for listener in list(self.listeners):
                    listener(frame, turn.last_lsn)
            except Exception as error:
                self.broke("writing a frame", error)
                return
        else:
            turn.last_lsn = self.written_lsn
        if self.mode != "fsync" and self.gate is None:
            self.release(turn)
            if frame is not None:
                self._reached()
            return
        if frame is None and not self._parked:
            known = self.durable_lsn if self.gate is None else self.commit_lsn
            if turn.last_lsn <= known:
                self.release(turn)
                return
        self._parked.append(turn)
        if frame is not None:
            self._reached()
        if self.mode == "fsync":
            self._sync()

    # -- frames, whoever made them ---------------------------------------------------------------

    def append(
        self,
        frame: bytes,
        first_lsn: int,
        last_lsn: int,
        time_us: int,
        frames: int = 1,
        since_us: int = 0,
    ) -> bool:
        """Write `frames` frames (see `Log.append`); False when that failed and the node ends."""
        if self.log is not None:
            self._appends += 1
            began = 0.0 if self._appends % APPENDS_MEASURED else perf_counter()
            try:
                self.log.append(frame, first_lsn, last_lsn, time_us, frames, since_us)
            except StorageError as error:
                self.fail(error)
                return False
            if began:
                self.append_seconds(perf_counter() - began)
        self.written_lsn = last_lsn
        self.bytes_written += len(frame)
        if self.mode == "fsync":
            self._unsynced = True
        return True

    def appended(self, frame: bytes, last_lsn: int) -> None:
        """Frames of an upstream were written and their records applied; `reached` follows."""
        for listener in list(self.listeners):
            listener(frame, last_lsn)

    def reached(self) -> None:
        """The frames of an upstream that one read brought are all written."""
        self._reached()
        if self.mode == "fsync":
            self._sync()

    def _reached(self) -> None:
        """What was written is durable at once where nothing is synced."""
        if self.mode != "fsync":
            self.durable_lsn = self.written_lsn
            self._durable()

    def _durable(self) -> None:
        self.on_durable(self.durable_lsn)
        if self.gate is not None:
            self.gate.own(self.durable_lsn, self.now())
        self.advance()

    def advance(self) -> None:
        """The commit point may have moved: release what it covers."""
        gate = self.gate
        lsn = self.durable_lsn if gate is None else gate.commit_lsn
        if lsn > self.commit_lsn and not self.following:
            self.commit_lsn = lsn
            self.on_commit(lsn)
        parked = self._parked
        while parked and parked[0].last_lsn <= lsn:
            self.release(parked.popleft())

    # -- syncs -----------------------------------------------------------------------------------

    def _sync(self) -> None:
        if not self._unsynced or self._syncing or self._gathering or self.broken:
            return
        if self._syncer.quick:
            # Nothing else runs while the loop syncs: first let come what already waits.
            self._gather_soon()
            return
        self._begin()

    def _begin(self) -> None:
        assert self.log is not None
        self._unsynced = False
        self._syncing = True
        synced = partial(self._synced, self._epoch, self.written_lsn, perf_counter())
        self._syncer.begin(self.log.sync, synced)

    def _synced(self, epoch: int, covers: int, started: float, error: Exception | None) -> None:
        if epoch != self._epoch:
            return
        self._syncing = False
        if error is not None:
            self.fail(
                error if isinstance(error, StorageError) else StorageError("log", 0, str(error))
            )
            return
        if self.broken:
            return
        self.sync_seconds(perf_counter() - started)
        self.durable_lsn = max(self.durable_lsn, covers)
        self._durable()
        self._publish()
        if self._unsynced and not self.broken:
            self._gather_soon()

    def _gather_soon(self) -> None:
        self._gathering = True
        self._syncer.soon(partial(self._gather, self.written_lsn, 0, 0))

    def _gather(self, seen: int, turns: int, idle: int) -> None:
        """Go on reading what already waits, so that the next sync is for all of it.

        Two turns of the loop that bring nothing new (a turn's frame may be one turn behind; one
        is enough where the loop itself syncs), or GATHER_TURNS in all, end it.
        """
        idle = 0 if self.written_lsn > seen else idle + 1
        enough = 1 if self._syncer.quick else 2
        if idle < enough and turns < GATHER_TURNS and not self.broken:
            self._syncer.soon(partial(self._gather, self.written_lsn, turns + 1, idle))
            return
        self._gathering = False
        if self._unsynced and not (self._syncing or self.broken or self.closed):
            self._begin()

    def _publish(self) -> None:
        """Leave word beside the log how far it was acknowledged, as far as that is on the disk."""
        assert self.log is not None
        try:
            self.log.publish_commit(min(self.commit_lsn, self.durable_lsn))
        except StorageError as error:
            self.fail(error)

    def settle(self) -> None:
        """Now and then: publish, and in write mode sync so that a roll finds little to do."""
        if self.log is None or self.broken or self.closed:
            return
        self._publish()
        if self.mode == "write" and not self._syncing:
            self._unsynced = True
            self._sync()

    # -- the log is cut, the node ends -----------------------------------------------------------

    def committed(self, lsn: int) -> None:
        """An upstream says that all up to `lsn` of this log is committed.

        A log that failed may lack what it says this of.
        """
        if lsn > self.commit_lsn and not self.broken:
            self.commit_lsn = lsn
            self.on_commit(lsn)

    def abandon(self) -> None:
        """Nothing that still waits for its commit is answered any more."""
        self._parked.clear()

    def pause(self) -> None:
        """Before the log is cut or replaced: no sync is running, and none that ran counts."""
        self._syncer.wait()
        self._epoch += 1
        self._syncing = self._unsynced = False

    def replaced(self, log: Log, last_lsn: int) -> None:
        """The log is another one, durable up to its end; who waits to read is answered."""
        self.log = log
        self.written_lsn = self.durable_lsn = last_lsn
        self.commit_lsn = min(self.commit_lsn, last_lsn)
        while self._parked:
            self.release(self._parked.popleft())

    def fail(self, error: StorageError) -> None:
        """Stop acknowledging first, explain second; a failed sync is never tried again."""
        self.broken = True
        self._parked.clear()
        self.failed(error)

    def broke(self, what: str, error: BaseException) -> None:
        """Something failed between a change and its frame in the log: as bad as a failed write.

        Memory holds what the log may never get, so nothing that was done can be acknowledged.
        """
        if isinstance(error, StorageError):
            self.fail(error)
            return
        # Before anything that takes memory: there may be none.
        self.broken = True
        self.fail(StorageError("log", 0, f"{what} failed: {type(error).__name__}: {error}"))

    @property
    def idle(self) -> bool:
        return not self._parked and not self._syncing and not self._gathering

    def close(self) -> None:
        """Everything written becomes durable; blocking, for a node that ends."""
        self.closed = True
        self._syncer.close()
        if self.log is not None and not self.broken:
            self._publish()
            self.log.close()
