"""What the cluster's parts ask of the rim: the log's clock, its writer, the directory, snapshots.

Only shapes: the loop has the real ones, the simulation its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tandemq.log.disk import Disk
    from tandemq.log.meta import Meta
    from tandemq.model.errors import StorageError
    from tandemq.model.terms import Term
    from tandemq_server.replication.commit import CommitPoint
    from tandemq_server.replication.known import Mark
    from tandemq_server.replication.rescue import RescueNote
    from tandemq_server.storage.log import Log


class Clock(Protocol):
    """Microseconds since the epoch by the log's clock; see `node.loop.clock`."""

    def now(self) -> int: ...
    def own(self) -> int: ...
    def follow(self, offset_us: int) -> None: ...
    def at_least(self, moment_us: int) -> None: ...


class SnapshotsPort(Protocol):
    """Snapshots of this node: which trouble there is, and word of one that turned out bad."""

    problem: str

    def spoilt(self, error: StorageError) -> None: ...


class Writer(Protocol):
    """The log's writer: how far it is, and who is told; see `node.loop.wal_writer`."""

    mode: str
    gate: CommitPoint | None
    following: bool
    durable_lsn: int
    written_lsn: int
    commit_lsn: int
    bytes_written: int
    listeners: list[Callable[[bytes, int], None]]
    on_durable: Callable[[int], None]
    on_commit: Callable[[int], None]

    def append(
        self,
        frame: bytes,
        first_lsn: int,
        last_lsn: int,
        time_us: int,
        frames: int = 1,
        since_us: int = 0,
    ) -> bool: ...
    def appended(self, frame: bytes, last_lsn: int) -> None: ...
    def reached(self) -> None: ...
    def advance(self) -> None: ...
    def committed(self, lsn: int) -> None: ...
    def abandon(self) -> None: ...
    def pause(self) -> None: ...
    def replaced(self, log: Log, last_lsn: int) -> None: ...
    def fail(self, error: StorageError) -> None: ...
    def broke(self, what: str, error: BaseException) -> None: ...


class Directory(Protocol):
    """The opened data directory; see `node.loop.recovered`."""

    disk: Disk
    meta: Meta
    log: Log | None
    known: Mark
    last_time_us: int
    missing_lsn: int
    rescue_files: int

    def open_term(self, term: Term) -> None: ...
    def remember(self, mark: Mark) -> None: ...
    def found_again(self) -> None: ...
    def adopt_cluster(self, cluster: bytes) -> None: ...
    def rewind(self, to_lsn: int, note: RescueNote) -> None: ...
    def begin_incoming(self, at: int) -> None: ...
    def write_incoming(self, offset: int, data: bytes) -> None: ...
    def drop_incoming(self) -> None: ...
    def incoming_problem(self, end_lsn: int) -> StorageError | None: ...
    def install(self, end_lsn: int) -> None: ...
    def snapshot_lsn(self, name: str) -> int: ...
    def newest_snapshot(self, at_least: int) -> str | None: ...
