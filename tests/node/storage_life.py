"""A node's storage with a real engine on a disk in memory, and what it acknowledged.

One `Life` is one process. `Stopper` ends it at a chosen operation of the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgpack

from tandemq.log.disk import OPERATIONS
from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq.model.record import encode_frame
from tandemq.model.terms import Term
from tandemq_server.config import Settings
from tandemq_server.engine import admin
from tandemq_server.engine.clients import EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.registered import KNOWN
from tandemq_server.node.loop.recovered import Storage, open_storage
from tandemq_server.node.loop.rescue_files import Rescued, RescueFiles
from tandemq_server.replication.lineage import Lineage
from tandemq_server.replication.replay import ReplayPlan
from tandemq_server.replication.rescue import RescueError, RescueNote
from tandemq_server.storage.memory import MemoryDisk

EPOCH = 1_700_000_000_000_000
#: What changes a disk: a process may end at each of them.
CHANGING = frozenset(OPERATIONS) - {"list", "read", "size", "open", "close", "settle", "free"}
SEGMENT_BYTES = 1_500


class Worker(EngineClient):
    def deliver(self, ticket: Any, outcome: Any) -> None:
        raise AssertionError("nobody waits here")


class Killed(StorageError):
    """The process ended at an operation of the disk."""


class Stopper:
    """Ends the process at the `step`th changing operation of `disk`; nothing works after it."""

    def __init__(self, disk: MemoryDisk, step: int) -> None:
        self.disk, self.left = disk, step
        self.enter = disk._enter
        disk._enter = self._count  # type: ignore[method-assign]

    def _count(self, operation: str, name: str) -> int:
        if operation in CHANGING:
            self.left -= 1
        if self.left <= 0:
            raise Killed(name, 0, f"{operation}: the process ended here")
        return self.enter(operation, name)

    def __enter__(self) -> Stopper:
        return self

    def __exit__(self, *_error: object) -> None:
        del self.disk._enter

    @property
    def fired(self) -> bool:
        return self.left <= 0


def settings_of(keep: int = 2, mode: str = "fsync") -> Settings:
    settings = Settings.model_validate(
        {
            "name": "a",
            "listen": "a:1",
            "data_dir": Path("/nowhere"),
            "wal": {"mode": mode},
            "snapshot": {"keep": keep},
        }
    )
    wal = settings.wal.model_copy(update={"segment_bytes": SEGMENT_BYTES})
    return settings.model_copy(update={"wal": wal})


class Life:
    """One process on `disk`. said: its lines.

    acked: LSN of each payload that was acknowledged, and whose task was not finished since;
    records: term id of each record that was acknowledged, by its LSN.
    """

    def __init__(self, disk: MemoryDisk, seed: int = 1, keep: int = 2) -> None:
        self.disk = disk
        self.chance = Random(seed)
        self.said: list[str] = []
        self.engine = Engine(KNOWN, lambda: self.chance.randbytes(16), self._report)
        self.settings = settings_of(keep)
        self.storage: Storage = open_storage(
            self.settings, self.engine, self.chance.randbytes, self.said.append, disk
        )
        self.engine.now = max(EPOCH, self.engine.now)
        self.worker = Worker(1)
        self.acked: dict[int, Any] = {}
        self.records: dict[int, bytes] = {}

    def _report(self, text: str, error: BaseException | None = None) -> None:
        raise AssertionError(text) from error

    # -- leading --------------------------------------------------------------------------------

    def lead(self, number: int, term_id: bytes | None = None) -> Life:
        """Open a term and serve."""
        engine = self.engine
        parent = engine.store.lineage[-1].id if engine.store.lineage else None
        term_id = term_id or self.chance.randbytes(16)
        term = Term(number, term_id, parent, engine.lsn + 1, "a", False)
        self.storage.open_term(term)
        if engine.running:
            engine.open_term(term)
        else:
            engine.promote(term, None, None)
            engine.start()
        self.flush()
        return self

    def flush(self) -> None:
        """The turn ends: one frame, durable, acknowledged."""
        records, log = self.engine.take_records(), self.storage.log
        if not records:
            return
        assert log is not None
        first, last = log.last_lsn + 1, log.last_lsn + len(records)
        assert last == self.engine.lsn
        term = self.engine.store.lineage[-1]
        frame = encode_frame(records, term.number, term.id, first, log.commit_lsn)
        log.append(frame, first, last, self.engine.now)
        log.sync()
        log.publish_commit(last)
        self.records |= dict.fromkeys(range(first, last + 1), term.id)

    def work(self, count: int, tube: str = "jobs") -> None:
        """Take and ack the oldest tasks, each in records of their own."""
        for _ in range(count):
            task = self.tube(tube).take(self.worker, 0, 0)
            self.flush()
            self.tube(tube).ack(self.worker, task[0])
            self.flush()
            payload = msgpack.unpackb(task[-1])
            self.acked = {lsn: value for lsn, value in self.acked.items() if value != payload}

    def tube(self, name: str = "jobs", kind: str = "fifo", **opts: Any) -> Any:
        found = self.engine.tubes.get(name)
        if found is None:
            found = admin.create_tube(self.engine, name, kind, opts)
            self.flush()
        return found

    def put(self, count: int, tube: str = "jobs") -> list[int]:
        """Put tasks whose payload is the LSN of their put; the LSNs."""
        lsns = []
        for _ in range(count):
            lsn = self.engine.lsn + 1
            self.engine.now += 1
            self.tube(tube).put(self.worker, 0, msgpack.packb(f"payload of {lsn}"))
            self.flush()
            self.acked[lsn] = f"payload of {lsn}"
            lsns.append(lsn)
        return lsns

    def snapshot(self, frames: int = 0) -> None:
        """A snapshot as the node writes it, with `frames` puts beside it; then the log is trimmed.

        The lines are those of `node.loop.snapshots`, which needs an event loop.
        """
        engine, log = self.engine, self.storage.log
        assert log is not None
        writer = self.storage.new_snapshot(log.last_lsn)
        writer.add_catalogue(engine.store.catalogue())
        for space_id, rows in engine.store.rows_for_snapshot(3):
            writer.add_rows(space_id, rows)
        since = log.last_lsn + 1
        self.put(frames)
        if frames:
            writer.add_frames(b"".join(frame for _, frame in log.read_from(since)))
        self.storage.snapshot_proven(writer.finish(log.last_lsn, engine.now))
        self.storage.snapshot_published(log.last_lsn)

    # -- following -------------------------------------------------------------------------------

    def stop(self) -> Life:
        self.engine.stop()
        self.flush()
        return self

    def rewind(self, to_lsn: int) -> None:
        """What `node.cluster.replica` does when the upstream says so."""
        log, engine = self.storage.log, self.engine
        assert log is not None
        if engine.running:
            self.stop()
        note = RescueNote(
            self.storage.meta.cluster,
            self.storage.meta.node,
            Lineage(engine.store.lineage),
            to_lsn + 1,
            log.last_lsn,
            log.commit_lsn,
            engine.now,
            "the logs part",
            {tube.space.id: (name, tube.space.driver) for name, tube in engine.tubes.items()},
            options={
                tube.space.id: tube.opts for tube in engine.tubes.values() if tube.inner.records
            },
            numbers={tube.id: tube.space.id for tube in engine.tubes.values()},
        )
        self.storage.rewind(to_lsn, note)

    def install(self, name: str, data: bytes) -> None:
        """A snapshot of the upstream comes in, in three pieces, and takes the place of all."""
        storage = self.storage
        storage.begin_incoming(0)
        third = len(data) // 3 + 1
        for at in range(0, len(data), third):
            storage.write_incoming(at, data[at : at + third])
        storage.install(int(name.partition(".")[0]))

    # -- what is there ---------------------------------------------------------------------------

    def payloads(self) -> set[Any]:
        """Of all tasks in memory."""
        return {
            msgpack.unpackb(row[-1])
            for tube in self.engine.tubes.values()
            for row in tube.space.rows.values()
        }


def whole_cuts(disk: MemoryDisk) -> list[tuple[RescueNote, ReplayPlan]]:
    """What the operator's commands tell without a word of a problem."""
    files = RescueFiles(disk)
    found = []
    for cut in files.cuts():
        if isinstance(cut, Rescued):
            with suppress(RescueError, StorageError):
                found.append((cut.note, files.plan(cut)))
    return found


def listed(disk: MemoryDisk) -> set[Any]:
    """Payloads of the tasks they list."""
    return {msgpack.unpackb(task.payload) for _, plan in whole_cuts(disk) for task in plan.tasks}


def unaccounted(life: Life, records: dict[int, bytes]) -> list[int]:
    """LSNs of records that are neither in the log of `life` nor in a cut that is listed."""
    lineages = [(1, life.engine.lsn, Lineage(life.engine.store.lineage))]
    lineages += [(note.first_lsn, note.last_lsn, note.lineage) for note, _ in whole_cuts(life.disk)]

    def known(lsn: int, term_id: bytes) -> bool:
        for first, last, lineage in lineages:
            term = lineage.term_at(lsn) if first <= lsn <= last else None
            if term is not None and term.id == term_id:
                return True
        return False

    return [lsn for lsn, term_id in records.items() if not known(lsn, term_id)]


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    return MemoryDisk(disk.contents())


def newest_snapshot(life: Life) -> tuple[str, bytes]:
    name = snapshot_names(life.disk)[-1]
    return name, life.disk.read(name)


Action = Callable[[Life], None]
