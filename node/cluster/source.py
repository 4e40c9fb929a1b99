"""What downstreams get from this node: the answer to their HELLO, its log, a snapshot.

Reads only; what a link does with it is the link's business (`node.cluster.links.Feed`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tandemq.log.snapshot import SnapshotReader, put_aside
from tandemq.model.errors import StorageError
from tandemq.model.units import MIB
from tandemq_server.replication.commit import PAIR
from tandemq_server.replication.handshake import Upstream, answer, confirms_alike, contested
from tandemq_server.replication.lineage import Lineage, LineageError
from tandemq_server.replication.messages import (
    DIVERGED,
    GARBAGE,
    STOPPING,
    Ack,
    Hello,
    SnapshotBegin,
    Welcome,
)
from tandemq_server.replication.relay import Relay
from tandemq_server.replication.standing import Outcome
from tandemq_server.storage.runs import Run, RunReader

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering
    from tandemq_server.node.cluster.rim import SnapshotsPort

#: Bytes of a snapshot whose CRC is taken in one go.
CRC_BYTES = 4 * MIB


class Source:
    """This node as an upstream.

    want_snapshot(): write one, then call `snapshot_ready` or `snapshot_failed`. passed: how far
    each downstream ever seen has the log, by node id.
    """

    def __init__(self, peering: Peering) -> None:
        self.peering = peering
        self.core = peering.core
        self.wal = peering.wal
        self.storage = peering.storage
        self.say = peering.say
        self.want_snapshot: Callable[[], None] = lambda: None
        self.passed: dict[bytes, int] = {}
        self._runs = RunReader(self.storage.disk)
        #: The newest snapshot's name and CRC, once somebody needed it.
        self._crc: tuple[str, int] | None = None
        #: The last record of the log that cannot be read, as far as was found out, and why.
        self._unreadable_lsn = 0
        self._damage = ""
        #: Whose problem a snapshot is that turned out bad as a downstream got it.
        self.snapshots: SnapshotsPort | None = None
        #: The snapshot that is read to its end because a downstream could not read it.
        self._doubted = ""

    def welcome(self, hello: Hello) -> Welcome:
        # Whatever this turn changed is part of the log the answer speaks of.
        self.peering.role.flush()
        return answer(hello, self._upstream(hello))

    def outcome(self, hello: Hello) -> Outcome | None:
        """Of the log here against the downstream's, None when one of them is no lineage."""
        upstream = self._upstream(hello)
        mine, last = upstream.lineage, upstream.last_lsn
        try:
            fork = hello.lineage.common_point(mine, hello.last_lsn, last)
        except LineageError:
            return None
        return contested(hello, upstream, fork)

    def confirms_alike(self, hello: Hello) -> bool:
        """Whether this downstream may stand for a write in pair mode."""
        return confirms_alike(hello, self._upstream(hello))

    def _upstream(self, hello: Hello) -> Upstream:
        peering = self.peering
        log, replication = peering.log, peering.settings.replication
        return Upstream(
            hello.cluster_id if peering.blank else peering.cluster_id,
            peering.node_id,
            peering.settings.name,
            Lineage(peering.core.engine.store.lineage),
            self.first_lsn,
            log.last_lsn,
            peering.core.commit_lsn,
            peering.core.state,
            peering.role.leading,
            wal_mode=self.wal.mode,
            pair=replication.ack == PAIR,
            mixed_modes=replication.mixed_modes,
            known_nodes=replication.known_nodes,
        )

    def confirmed(self, node_id: bytes, ack: Ack) -> None:
        self.passed[node_id] = max(self.passed.get(node_id, 0), ack.durable_lsn)
        if self.wal.gate is not None and not self._stands_for_a_peer(node_id):
            self.wal.gate.without(node_id)
        elif self.wal.gate is not None:
            self.wal.gate.ack(node_id, ack.term_id, ack.durable_lsn, self.peering.mono())
            self.wal.advance()

    def _stands_for_a_peer(self, node_id: bytes) -> bool:
        """Whether what it confirms may be acknowledged in pair mode.

        A peer takes it that this node acknowledges nothing without one of its peers. As long as
        one of them was not reached, nobody knows who of those that follow it is.
        """
        return any(peer.node_id in (node_id, b"") for peer in self.peering.peers.values())

    def retained_lsn(self) -> int | None:
        """The first record some downstream still needs; None when there is none.

        A peer that was not heard of since this node began may need anything, and may even have
        parted from this log: what is not in it any more could not be rescued.
        """
        known = {peer.node_id for peer in self.peering.peers.values()}
        if not known <= self.passed.keys():
            return self.peering.log.first_lsn
        wanted = list(self.passed.values())
        wanted += [
            feed.relay.acked_lsn
            for feed in self.peering.feeds
            if feed.relay and feed.relay.acked_lsn
        ]
        return min(wanted) + 1 if wanted else None

    def bytes_from(self, lsn: int) -> int:
        """About how many bytes of log there are from a LSN on."""
        return sum(s.size for s in self.peering.log.segments if s.last_lsn >= lsn)

    @property
    def first_lsn(self) -> int:
        """From where on the log can be handed out: what is below is bootstrapped."""
        return max(self.peering.log.first_lsn, self._unreadable_lsn + 1)

    @property
    def damage(self) -> str:
        """What of the log cannot be read any more; empty once it is trimmed away, or never was."""
        if not self._damage or self._unreadable_lsn < self.peering.log.first_lsn:
            return ""
        return self._damage

    def _damaged(self, lsn: int, error: StorageError) -> None:
        """The log cannot be read from `lsn` on: its segment is as good as gone for downstreams."""
        log = self.peering.log
        if not log.first_lsn <= lsn <= log.last_lsn:
            return
        whole = next(s.last_lsn for s in log.segments if s.last_lsn >= lsn)
        self._unreadable_lsn = max(self._unreadable_lsn, whole)
        self._damage = f"the log is damaged, downstreams get a snapshot instead: {error}"

    def read_log(self, lsn: int, size: int) -> Run | None:
        """Frames from the one that holds `lsn` on, about `size` bytes; None when it is gone.

        As they are on the disk: the downstream checks every CRC and refuses what is damaged.
        """
        try:
            return self._runs.read(self.peering.log, lsn, size)
        except StorageError as error:
            self._damaged(lsn, error)
            return None

    def left(self, relay: Relay | None, code: int) -> None:
        """A downstream left: if what it was sent was garbage, see whether the log is damaged."""
        if relay is None or code not in (GARBAGE, DIVERGED):
            return
        if relay.snapshot_name:
            self._doubt(relay.snapshot_name)
            return
        self.look(relay.acked_lsn + 1, relay.in_flight_bytes)

    def look(self, lsn: int, size: int) -> None:
        """Read about `size` bytes of log from `lsn` on with all checks, at least one frame."""
        try:
            for header, frame in self.peering.log.read_from(lsn):
                lsn = header.last_lsn + 1
                size -= len(frame)
                if size <= 0:
                    break
        except StorageError as error:
            self._damaged(lsn, error)

    def read_snapshot(self, name: str, offset: int, size: int) -> bytes | None:
        try:
            return self.storage.disk.read(name, offset, size)
        except StorageError:
            return None

    # -- snapshots for downstreams ---------------------------------------------------------------

    def _doubt(self, name: str) -> None:
        """Read a snapshot to its end, block by block; nobody is served meanwhile."""
        if self._doubted or name not in self.storage.disk.list():
            return
        self._doubted = name
        self._crc = None
        try:
            blocks = SnapshotReader(self.storage.disk, name, self.storage.meta.cluster).blocks()
        except StorageError as error:
            self._judged(error)
            return
        self.peering.later(lambda: self._prove(blocks))

    def _prove(self, blocks: Iterator[object]) -> None:
        try:
            more = next(blocks, None) is not None
        except StorageError as error:
            self._judged(error)
            return
        if more and self._doubted in self.storage.disk.list():
            self.peering.later(lambda: self._prove(blocks))
        else:
            self._judged(None)

    def _judged(self, error: StorageError | None) -> None:
        name, self._doubted = self._doubted, ""
        if error is not None and name in self.storage.disk.list():
            put_aside(self.storage.disk, name)
            if self.snapshots is not None:
                self.snapshots.spoilt(error)
        self.snapshot_ready()

    def serve_waiting(self) -> None:
        """Serve who waits to bootstrap: with the newest snapshot, or one that is asked for."""
        if self._doubted:
            return
        try:
            name = self.storage.newest_snapshot(self.first_lsn - 1)
        except StorageError as error:
            self.snapshot_failed(error)
            return
        if name is None:
            self.want_snapshot()
        elif self._crc is not None and self._crc[0] == name:
            self._serve_snapshot(name, self._crc[1])
        else:
            self.peering.later(lambda: self._checksum(name, 0, 0))

    def snapshot_ready(self) -> None:
        if any(feed.bootstrapping for feed in self.peering.feeds):
            self.serve_waiting()

    def _checksum(self, name: str, at: int, crc: int) -> None:
        data = self.read_snapshot(name, at, CRC_BYTES)
        if data is None:
            self.serve_waiting()
        elif data:
            crc = zlib.crc32(data, crc)
            self.peering.later(lambda: self._checksum(name, at + len(data), crc))
        else:
            self._crc = (name, crc)
            self._serve_snapshot(name, crc)

    def _serve_snapshot(self, name: str, crc: int) -> None:
        try:
            begin = SnapshotBegin(
                self.storage.snapshot_lsn(name),
                self.storage.disk.size(name),
                name,
                crc,
            )
        except StorageError as error:
            self.snapshot_failed(error)
            return
        for feed in self.peering.feeds:
            if feed.bootstrapping:
                feed.send_snapshot(begin)
                if self.wal.gate is not None and feed.hello is not None:
                    self.wal.gate.link_up(feed.hello.node_id)

    def snapshot_failed(self, error: BaseException) -> None:
        """None can be written, or found: who waits for one asks again later."""
        for feed in list(self.peering.feeds):
            if feed.bootstrapping:
                feed.end(STOPPING, f"no snapshot can be read here: {error}")
