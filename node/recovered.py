"""From a data directory to a state in memory and a log to go on with.

Joins storage's recovery with the engine's spaces. Refuses by name what does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.queue import Engine
from model.errors import StorageError
from model.record import Op, Record
from spaces.store import ApplyError
from storage.files import FileDisk
from storage.log import Log
from storage.meta import Meta, open_meta, read_meta
from storage.recovery import Recovered, open_log, recover
from storage.segment import Term
from storage.snapshot import SnapshotHeader, SnapshotWriter, prune, snapshot_names

if TYPE_CHECKING:
    from node.config import Settings


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
        self, settings: Settings, engine: Engine, disk: FileDisk, recovered: Recovered
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.disk = disk
        self.recovered = recovered
        self.meta: Meta = recovered.meta
        self.last_time_us = recovered.last_time_us
        self.log: Log | None = None
        if settings.wal.mode != "none":
            self.log = open_log(disk, recovered, settings.wal.segment_bytes)

    def open_term(self, term: tuple[Any, ...]) -> None:
        if self.log is not None:
            self.log.open_term(term, self.engine.lsn + 1)

    def new_snapshot(self, start_lsn: int) -> SnapshotWriter:
        lineage = tuple(Term(*term) for term in self.engine.store.lineage)
        return SnapshotWriter(
            self.disk, SnapshotHeader(self.meta.cluster, self.meta.node, lineage, start_lsn)
        )

    def snapshot_published(self, end_lsn: int) -> None:
        """A snapshot is on disk: older ones and the segments only they needed may go."""
        prune(self.disk, self.settings.snapshot.keep)
        if self.log is not None:
            self.log.trim(self._oldest_snapshot(end_lsn) + 1)

    def _oldest_snapshot(self, end_lsn: int) -> int:
        names = snapshot_names(self.disk)
        return min((int(name.partition(".")[0]) for name in names), default=end_lsn)


def open_storage(
    settings: Settings,
    engine: Engine,
    random_bytes: Callable[[int], bytes],
    log: Callable[[str], None],
) -> Storage:
    """Lock, verify and load a data directory; a new one is made.

    Raises `StorageError` naming file, position and reason.
    """
    disk = FileDisk(settings.data_dir)
    try:
        meta = read_meta(disk)
        cluster = meta.cluster if meta is not None else random_bytes(16)
        node = meta.node if meta is not None else random_bytes(16)
        open_meta(disk, cluster, node, time.time_ns() // 1000)
        began = time.perf_counter()
        sink = _Sink(engine, str(settings.data_dir))
        recovered = recover(disk, sink, strict_commit=settings.wal.mode == "fsync")
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
        return Storage(settings, engine, disk, recovered)
    except BaseException:
        disk.release()
        raise
