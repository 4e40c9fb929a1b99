"""From a data directory to a state in memory and a log to go on with.

Joins storage's recovery with the engine's spaces. Refuses by name what does not fit.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tandemq.log.disk import SUFFIX_IN_PROGRESS, Disk, append_all, remove_durably
from tandemq.log.meta import Meta, open_meta, read_known, read_meta, replace_meta, write_known
from tandemq.log.rescue import rescue_names
from tandemq.log.segment import segment_names
from tandemq.log.snapshot import (
    SNAPSHOTS_KEPT,
    SnapshotHeader,
    prune,
    put_aside,
    put_bad_aside,
    snapshot_name,
    snapshot_names,
    verify_snapshot,
)
from tandemq.model.errors import StorageError
from tandemq.model.record import Op, Record
from tandemq.model.terms import Term
from tandemq_server.engine.engine import Engine
from tandemq_server.node.loop import rewinding
from tandemq_server.node.loop.clock import wall_us
from tandemq_server.node.loop.rescue_files import RescueFiles
from tandemq_server.replication.known import NOTHING_KNOWN, Mark
from tandemq_server.replication.rescue import RescueNote
from tandemq_server.spaces.store import ApplyError
from tandemq_server.storage.files import FileDisk
from tandemq_server.storage.log import Log
from tandemq_server.storage.mend import DamagedFiles, end_before, forget_missing
from tandemq_server.storage.recovery import Recovered, open_log, recover
from tandemq_server.storage.snapshot_writer import SnapshotWriter

if TYPE_CHECKING:
    from tandemq_server.config import Settings

#: A snapshot on its way from an upstream; what a crash leaves of it is removed at start.
INCOMING = f"incoming{SUFFIX_IN_PROGRESS}"


class _Sink:
    """Recovered state goes straight into the engine's spaces."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.engine = engine
        self.where = where

    def catalogue(self, ops: Sequence[Op]) -> None:
        self.engine.store.apply(ops, lenient=True)

    def rows(self, space_id: int, rows: Sequence[Sequence[Any]]) -> None:
        space = self.engine.store.spaces.get(space_id)
        if space is not None:
            put = space.put
            for row in rows:
                put(tuple(row))

    def records(self, first_lsn: int, records: Sequence[Record], lenient: bool, term: Any) -> None:
        apply = self.engine.store.apply
        lsn = first_lsn
        try:
            for record in records:
                apply(record[3], lenient)
                lsn += 1
        except ApplyError as error:
            raise StorageError(
                self.where, 0, f"record of LSN {lsn} does not fit: {error}"
            ) from error


class Storage:
    """An opened data directory."""

    def __init__(
        self, settings: Settings, engine: Engine, disk: Disk, recovered: Recovered
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.disk = disk
        self.recovered = recovered
        self.meta: Meta = recovered.meta
        self.last_time_us = recovered.last_time_us
        self.log: Log | None = None
        #: The first LSN some downstream lacks, None for nothing to keep.
        self.retained: Callable[[], int | None] = lambda: None
        self._incoming = -1
        #: Up to which LSN there was more once than could be read, 0 for nothing.
        self.missing_lsn = recovered.missing_lsn
        #: How many rescue files there are, as last counted: whoever asks must not list for it.
        self.rescue_files = 0
        self.count_rescues()
        #: Snapshots that this process has read to their end.
        self._good = {recovered.snapshot} if recovered.snapshot is not None else set[str]()
        found = read_known(disk, self.meta.cluster)
        self.known = Mark(*found) if found is not None else NOTHING_KNOWN
        if settings.wal.mode != "none":
            self.log = open_log(disk, recovered, settings.wal.segment_bytes)

    def release(self) -> None:
        """Another process may open the directory."""
        if isinstance(self.disk, FileDisk):
            self.disk.release()

    def count_rescues(self) -> None:
        """List the directory and count. After a cut here, and now and then on another thread:
        an operator may take rescue files away.
        """
        self.rescue_files = len(rescue_names(self.disk))

    def drop_copies(self) -> list[str]:
        """Remove what a rewind copied that ended before it cut anything; the names."""
        if self.log is None or not self.rescue_files:
            return []
        files = RescueFiles(self.disk, self.meta)
        copies = [name for name in files.strays() if files.in_log(name)]
        for name in copies:
            remove_durably(self.disk, name)
        self.count_rescues()
        return copies

    def open_term(self, term: Term) -> None:
        if self.log is not None:
            self.log.open_term(term, self.engine.lsn + 1)

    def remember(self, mark: Mark) -> None:
        """Keep, over restarts, what is known to be acknowledged. Raises `StorageError`."""
        if mark != self.known:
            write_known(self.disk, self.meta.cluster, *mark)
            self.known = mark

    def found_again(self) -> None:
        """What was missing is here, or somebody decided to go on without it."""
        self.missing_lsn = 0
        forget_missing(self.disk)

    # -- joining, cutting, replacing -------------------------------------------------------------

    def adopt_cluster(self, cluster: bytes) -> None:
        """A directory that holds no record yet becomes one of another cluster."""
        self.meta = replace_meta(self.disk, replace(self.meta, cluster=cluster))
        self._load()

    def rewind(self, to_lsn: int, note: RescueNote) -> None:
        """Rescue every record after `to_lsn`, cut them off, and load what is left.

        Where that point cannot be reached from here everything is rescued and nothing is left.
        """
        assert self.log is not None
        rewinding.rewind(self.disk, self.meta, self.log, to_lsn, note)
        self._load()

    def begin_incoming(self, at: int) -> None:
        """A snapshot of the upstream begins, or goes on at byte `at`."""
        if at and self._incoming >= 0:
            return
        self.drop_incoming()
        self._incoming = self.disk.create(INCOMING)

    def write_incoming(self, offset: int, data: bytes) -> None:
        assert self.disk.size(INCOMING) == offset
        append_all(self.disk, self._incoming, data)

    def drop_incoming(self) -> None:
        if self._incoming >= 0:
            self.disk.close(self._incoming)
            self._incoming = -1
        if INCOMING in self.disk.list():
            self.disk.remove(INCOMING)

    def incoming_problem(self, end_lsn: int) -> StorageError | None:
        """Read the complete snapshot before anything makes room for it.

        One that cannot be read is put aside: what is wrong with it; nothing else has changed.
        """
        # Its name is ours, whatever the upstream calls it.
        disk, name = self.disk, snapshot_name(end_lsn)
        disk.sync(self._incoming)
        disk.close(self._incoming)
        self._incoming = -1
        try:
            verify_snapshot(disk, INCOMING, self.meta.cluster, name)
        except StorageError as error:
            put_aside(disk, INCOMING, name)
            return StorageError(name, error.position, error.reason)
        return None

    def install(self, end_lsn: int) -> None:
        """The snapshot, read to its end, takes the place of log and snapshots, then is loaded.

        Its new name comes first: from then on recovery starts from it, whatever else is there.
        Raises `StorageError`, for one that cannot be read before anything has changed.
        """
        disk, name = self.disk, snapshot_name(end_lsn)
        if self._incoming >= 0 and (problem := self.incoming_problem(end_lsn)) is not None:
            raise problem
        if self.log is not None:
            self.log.close()
        disk.rename(INCOMING, name)
        disk.sync_dir()
        for old in [*reversed(segment_names(disk)), *snapshot_names(disk)]:
            if old != name:
                remove_durably(disk, old)
        self._load()

    def _load(self) -> None:
        """Memory and log are made anew from what the directory holds."""
        engine = self.engine
        if self.log is not None and self.log.failure is None:
            self.log.close()
        engine.reset()
        self.recovered = recover(
            self.disk,
            _Sink(engine, self.disk.where),
            strict_commit=self.settings.wal.mode == "fsync",
        )
        self.meta = self.recovered.meta
        self.count_rescues()
        self._good = {self.recovered.snapshot} if self.recovered.snapshot is not None else set()
        engine.lsn = self.recovered.last_lsn
        engine.now = max(engine.now, self.recovered.last_time_us)
        if self.log is not None:
            self.log = open_log(self.disk, self.recovered, self.settings.wal.segment_bytes)

    # -- snapshots -------------------------------------------------------------------------------

    def snapshot_lsn(self, name: str) -> int:
        return int(name.partition(".")[0])

    def newest_snapshot(self, at_least: int) -> str | None:
        """The newest snapshot that ends at `at_least` or later, None when there is none."""
        names = snapshot_names(self.disk)
        return names[-1] if names and self.snapshot_lsn(names[-1]) >= at_least else None

    def new_snapshot(self, start_lsn: int) -> SnapshotWriter:
        lineage = tuple(self.engine.store.lineage)
        return SnapshotWriter(
            self.disk, SnapshotHeader(self.meta.cluster, self.meta.node, lineage, start_lsn)
        )

    def snapshot_proven(self, name: str) -> list[StorageError]:
        """A snapshot was written and read back; are those before it good, too? May run in a thread.

        What is not is put aside and returned. Blocking.
        """
        self._good.add(name)
        return put_bad_aside(self.disk, self.meta.cluster, self._good)

    def snapshot_published(self, end_lsn: int) -> None:
        """A snapshot is on disk: older ones and the segments nobody needs any more may go.

        Nothing goes before there are two good ones, so that losing one of them, whichever it is,
        loses nothing. What a downstream still lacks is kept, up to so many bytes; then it will
        bootstrap.
        """
        keep = self.settings.snapshot.keep
        if self.log is None:
            prune(self.disk, keep)
            return
        prune(self.disk, max(keep, SNAPSHOTS_KEPT))
        names = snapshot_names(self.disk)
        if len(names) < SNAPSHOTS_KEPT or not self._good.issuperset(names):
            return
        before = self.snapshot_lsn(names[0]) + 1
        wanted = self.retained()
        if wanted is not None and self.log.size_bytes <= self.settings.replication.retain_bytes:
            before = min(before, wanted)
        self.log.trim(before)


def open_storage(
    settings: Settings,
    engine: Engine,
    random_bytes: Callable[[int], bytes],
    log: Callable[[str], None],
    disk: Disk | None = None,
) -> Storage:
    """Lock, verify and load a data directory; a new one is made. `disk`: another than its files.

    Raises `StorageError` naming file, position and reason.
    """
    if disk is not None:
        return _open(settings, engine, random_bytes, log, disk)
    files = FileDisk(settings.data_dir)
    try:
        return _open(settings, engine, random_bytes, log, files)
    except BaseException:
        files.release()
        raise


def _new_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """A version 4 UUID: some connectors read ids that are none as damage."""
    return UUID(bytes=random_bytes(16), version=4).bytes


def _open(
    settings: Settings,
    engine: Engine,
    random_bytes: Callable[[int], bytes],
    log: Callable[[str], None],
    disk: Disk,
) -> Storage:
    meta = read_meta(disk)
    cluster = meta.cluster if meta is not None else _new_id(random_bytes)
    node = meta.node if meta is not None else _new_id(random_bytes)
    open_meta(disk, cluster, node, wall_us())
    began = time.perf_counter()
    sink = _Sink(engine, disk.where)
    recovered = _recovered(settings, engine, disk, sink, log)
    engine.lsn = recovered.last_lsn
    engine.now = recovered.last_time_us
    for line in recovered.reports:
        log(line)
    if recovered.records or recovered.snapshot:
        log(
            f"recovered up to LSN {recovered.last_lsn}: snapshot "
            f"{recovered.snapshot or 'none'}, {recovered.records} records, "
            f"{time.perf_counter() - began:.2f} s"
        )
    storage = Storage(settings, engine, disk, recovered)
    for name in storage.drop_copies():
        log(f"{name}: removed: of a cut that did not happen, the log has its records")
    return storage


def _recovered(
    settings: Settings, engine: Engine, disk: Disk, sink: _Sink, log: Callable[[str], None]
) -> Recovered:
    """What the directory holds; with peers, without what is damaged: they have it."""
    strict = settings.wal.mode == "fsync"
    # Each round puts at least one file aside, but for a log that is only too short.
    for _ in range(len(disk.list()) + 1):
        try:
            return recover(disk, sink, strict_commit=strict)
        except DamagedFiles as damage:
            meta = read_meta(disk)
            if not settings.peers or meta is None:
                raise
            for line in end_before(disk, meta, damage):
                log(line)
            engine.reset()
    return recover(disk, sink, strict_commit=strict)


def settle_memory() -> None:
    """What was loaded stays: keep the collector from walking over a million tasks again."""
    gc.collect()
    gc.freeze()
    # Few at a time: a look at 100,000 new objects is 10 ms, at what switch-overs left behind 80 ms.
    gc.set_threshold(10_000, 500, 1_000)


def announce(host: str, port: int) -> None:
    """Say on standard output, to whoever started this process, that the node is there."""
    settle_memory()
    print(f"ready {host}:{port}", flush=True)  # noqa: T201
