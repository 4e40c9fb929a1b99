"""What replaces or shortens a log stands on something that can be read: before anything goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from tandemq.log.snapshot import snapshot_names
from tandemq.model.errors import StorageError
from tandemq_server.node.loop.recovered import INCOMING
from tandemq_server.node.loop.snapshots import Snapshots
from tandemq_server.storage.memory import MemoryDisk
from tests.node.storage_life import Life, copy_of, newest_snapshot


def loaded(snapshots: int = 0, puts: int = 30) -> Life:
    """A log of several segments; so many snapshots, of which nothing is known to be readable."""
    life = Life(MemoryDisk()).lead(1)
    life.tube()
    life.put(puts)
    for _ in range(snapshots):
        written(life)
        life.put(puts)
    return life


def written(life: Life) -> str:
    """A whole snapshot of now, which nobody has read back."""
    writer = life.storage.new_snapshot(life.engine.lsn)
    writer.add_catalogue(life.engine.store.catalogue())
    for space_id, rows in life.engine.store.rows_for_snapshot(1_000):
        writer.add_rows(space_id, rows)
    return writer.finish(life.engine.lsn, life.engine.now)


def first_lsn(life: Life) -> int:
    assert life.storage.log is not None
    return life.storage.log.first_lsn


def damage(disk: MemoryDisk, name: str) -> None:
    held = disk._entries[name].data
    held[len(held) // 2] ^= 0xFF


def upstream_of(life: Life) -> tuple[str, bytes]:
    ahead = Life(copy_of(life.disk)).lead(2)
    ahead.put(5)
    ahead.snapshot()
    return newest_snapshot(ahead)


# -- a snapshot of the upstream --------------------------------------------------------------------


def test_nothing_is_removed_for_a_snapshot_before_its_name_is_durable() -> None:
    life = loaded().stop()
    name, data = upstream_of(life)
    seen: list[str] = []
    life.disk.watch = lambda operation, file: seen.append(f"{operation} {file}")
    life.install(name, data)
    named = seen.index(f"rename {INCOMING}")
    after = [one.partition(" ")[0] for one in seen[named:]]
    assert after.index("sync_dir") < after.index("remove")
    assert f"sync {INCOMING}" in seen[:named]


def test_a_snapshot_that_cannot_be_read_takes_the_place_of_nothing() -> None:
    life = loaded().stop()
    name, data = upstream_of(life)
    spoilt = bytearray(data)
    spoilt[len(spoilt) // 2] ^= 0xFF
    with pytest.raises(StorageError):
        life.install(name, bytes(spoilt))
    assert f"{name}.damaged" in life.disk.list(), "for a person to look at"
    assert INCOMING not in life.disk.list()
    for one in (life, Life(copy_of(life.disk))):
        assert one.payloads() == set(life.acked.values())


# -- trims -----------------------------------------------------------------------------------------


def test_the_log_is_kept_from_what_a_downstream_lacks() -> None:
    life = loaded()
    life.storage.retained = lambda: 9
    for _ in range(3):
        life.put(12)
        life.snapshot()
    assert 1 < first_lsn(life) <= 9


def test_a_downstream_that_lacks_more_than_may_be_kept_keeps_nothing() -> None:
    life = loaded()
    links = life.settings.replication.model_copy(update={"retain_bytes": 1})
    life.storage.settings = life.settings.model_copy(update={"replication": links})
    life.storage.retained = lambda: 1
    for _ in range(2):
        life.put(12)
        life.snapshot()
    assert first_lsn(life) > 1


def test_losing_either_snapshot_loses_nothing() -> None:
    life = loaded()
    for _ in range(3):
        life.put(12)
        life.snapshot()
    assert first_lsn(life) > 1
    names = snapshot_names(life.disk)
    assert len(names) == 2
    for name in names:
        disk = copy_of(life.disk)
        disk.remove(name)
        back = Life(disk)
        assert back.engine.lsn == life.engine.lsn
        assert back.payloads() == set(life.acked.values())


def test_nothing_is_trimmed_for_the_only_snapshot() -> None:
    life = loaded()
    life.snapshot()
    assert len(snapshot_names(life.disk)) == 1
    assert first_lsn(life) == 1


def test_nothing_is_trimmed_behind_a_snapshot_that_nobody_read() -> None:
    life = loaded(snapshots=2)
    damage(life.disk, snapshot_names(life.disk)[0])
    life.storage.snapshot_published(life.engine.lsn)
    assert first_lsn(life) == 1
    bad = life.storage.snapshot_proven(written(life))
    assert len(bad) == 1
    life.storage.snapshot_published(life.engine.lsn)
    assert first_lsn(life) > 1, "the two that are left were read"


# -- memory ----------------------------------------------------------------------------------------


def test_memory_after_a_cut_is_what_the_log_holds() -> None:
    """Without a start in between, and though nothing is left that a snapshot could bring back."""
    life = loaded()
    fork = life.engine.lsn - 7
    life.rewind(fork)
    assert life.engine.lsn == fork
    assert life.payloads() == {value for lsn, value in life.acked.items() if lsn <= fork}


# -- a snapshot beside the load --------------------------------------------------------------------


class Beside:
    """What takes snapshots of a node, with the node's turns in the test's hands."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.wal: Any = SimpleNamespace(
            listeners=[], written_lsn=life.engine.lsn, bytes_written=0, broken=False
        )
        self.core: Any = SimpleNamespace(engine=life.engine, term=1)
        storage = life.storage
        self.snapshots = Snapshots(
            self.core,
            self.wal,
            storage.new_snapshot,
            storage.snapshot_proven,
            lambda _end: None,
            None,
            self.flush,
            life.said.append,
        )

    def flush(self) -> None:
        """The turn ends; who listens is told of what was written since."""
        self.life.flush()
        log, since = self.life.storage.log, self.wal.written_lsn + 1
        assert log is not None
        if log.last_lsn >= since:
            for header, frame in log.read_from(since):
                for listener in list(self.wal.listeners):
                    listener(frame, header.last_lsn)
        self.wal.written_lsn = log.last_lsn

    def take(self, meanwhile: Callable[[], None]) -> int:
        """A snapshot; `meanwhile` runs when its first rows are written."""

        async def run() -> int:
            taking = self.snapshots.start()
            await asyncio.sleep(0)
            meanwhile()
            try:
                return await taking
            finally:
                await self.snapshots.cancel()

        return asyncio.run(run())

    def alone(self) -> Life:
        """A node that has the snapshots, and nothing of the log."""
        files = self.life.disk.contents()
        return Life(MemoryDisk({name: files[name] for name in files if ".wal" not in name}))


def test_a_snapshot_ends_no_earlier_than_what_its_rows_show() -> None:
    """The turn at hand has changed rows already: its frame belongs into the file."""
    beside = Beside(life := loaded())
    life.tube().put(life.worker, 0, msgpack.packb("of the turn at hand"))
    shown = life.engine.lsn
    assert beside.take(lambda: None) == shown
    back = beside.alone()
    assert back.engine.lsn == shown
    assert back.payloads() == {*life.acked.values(), "of the turn at hand"}


def test_a_term_that_begins_beside_a_snapshot_is_in_it() -> None:
    beside = Beside(life := loaded())

    def next_term() -> None:
        beside.core.term = 2
        life.lead(2)
        life.put(3)
        beside.flush()

    assert beside.take(next_term) == life.engine.lsn
    back = beside.alone()
    assert back.engine.store.lineage == life.engine.store.lineage
    assert back.payloads() == set(life.acked.values())


def test_a_snapshot_under_way_does_not_outlive_the_state_it_is_of() -> None:
    beside = Beside(life := loaded())
    fork = life.engine.lsn - 7

    def cut() -> None:
        beside.snapshots.invalidate()
        life.rewind(fork)

    with pytest.raises(asyncio.CancelledError):
        beside.take(cut)
    assert not [name for name in life.disk.list() if ".snap" in name]
