"""The node as its admin API sees it: reads made from core, log and role; operations on the role.

Here: the joining. Not here: HTTP, and what an operation means.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from model.terms import TERM_FIELDS
from node.admin.backend import (
    ClusterStatus,
    FlipResult,
    LossBound,
    NeedsForce,
    NodeStatus,
    Refused,
    SoloResult,
    SwitchReport,
    Term,
    Transition,
    Unavailable,
    cluster_of,
)
from node.admin.events import EventBus, Subscription
from node.inventory import NodeInventory
from node.metrics import FAST_BUCKETS, Latency, NodeMetrics, read_node
from node.peer_status import following, loss_bound, loss_of, own_lag, peers_of, promise_of
from node.role import wished
from node.switchover import Switchover
from node.timing import Turns

if TYPE_CHECKING:
    from node.config import Settings
    from node.core import Core
    from node.memory import MemoryWatch
    from node.peering import Peering
    from node.recovered import Storage
    from node.role import RoleKeeper
    from node.snapshots import Snapshots
    from node.wal_writer import WalWriter
    from statemachine import roles

#: Transitions shown, the newest last.
TRANSITIONS_SHOWN = 50


class NodeBackend:
    """See node.admin.backend.Backend."""

    def __init__(
        self,
        settings: Settings,
        core: Core,
        wal: WalWriter,
        storage: Storage,
        snapshots: Snapshots,
        role: RoleKeeper,
        peering: Peering,
        epoch: str,
    ) -> None:
        """`epoch`: differs with every start of the process."""
        self.settings = settings
        self.core = core
        self.wal = wal
        self.storage = storage
        self.snapshots = snapshots
        self.role = role
        self.peering = peering
        self.bus = EventBus(epoch)
        self.inventory = NodeInventory(core, role.now, role.flush, self)
        self.sync = Latency()
        #: Set by the rim; None where nobody watches.
        self.memory: MemoryWatch | None = None
        self.appends, self.turns = Latency(FAST_BUCKETS), Turns()
        wal.sync_seconds = self.sync.observe
        wal.append_seconds = self.appends.observe
        #: Seconds spent before each kind of transition, since the process started.
        self.seconds: dict[tuple[str, str], float] = {}
        role.observers.append(self._changed)
        peering.observers.append(self._peer_changed)
        self._peers: tuple[object, ...] = ()

    def _changed(self, made: roles.Transition) -> None:
        key = (made.origin.value, made.target.value)
        self.seconds[key] = self.seconds.get(key, 0.0) + made.duration_us / 1e6
        self.observe()

    def _peer_changed(self) -> None:
        """A heartbeat that says what the one before did is no news."""
        now = tuple((p.name, p.connected, p.state, p.writable) for p in peers_of(self.peering))
        if now != self._peers:
            self._peers = now
            self.observe()

    @property
    def writable(self) -> bool:
        """RUNNING, and proved to be: the term's first record is committed."""
        lineage = self.core.engine.store.lineage
        return (
            self.role.role.value == "RUNNING"
            and not self.wal.broken
            and bool(lineage)
            and self.core.commit_lsn >= lineage[-1][3]
        )

    def observe(self) -> None:
        """Tell listeners what changed; called on every transition and now and then."""
        self.bus.observe(self.status())

    def sample(self) -> None:
        """Remember how the node is, for history; called about once a second."""
        self.observe()
        at = self.role.now() / 1e6
        sample = self.inventory.recorder.sample(at, peers_of(self.peering))
        if len(self.bus):
            self.bus.tell("sample", asdict(sample))

    # -- reads -----------------------------------------------------------------------------------

    def loss(self, peer: str | None) -> LossBound:
        return loss_bound(self.peering) if peer is None else loss_of(self.peering, peer)

    def status(self) -> NodeStatus:
        core, engine, settings = self.core, self.core.engine, self.settings
        lineage = engine.store.lineage
        fault = self.role.fiber.notes.fault
        state = self.role.role.value
        return NodeStatus(
            name=settings.name,
            node_id=core.identity.node_id,
            cluster_id=core.identity.cluster_id,
            version=core.identity.version,
            state=state,
            read_only=core.read_only,
            writable=self.writable,
            live=not self.wal.broken,
            complete=not self.peering.replica.log.snapshot.joining
            and bool(lineage)
            and not self.storage.missing_lsn,
            following=following(self.peering),
            ro_reason=self.role.fiber.ro_reason or None,
            term=_term(lineage[-1]) if lineage else None,
            lsn=engine.lsn,
            commit_lsn=core.commit_lsn,
            durable_lsn=self.wal.durable_lsn,
            wal_mode=settings.wal.mode,
            ack=settings.replication.ack,
            promise=promise_of(self.peering),
            solo=self.wal.gate is not None and self.wal.gate.solo,
            started=core.started_us / 1e6,
            uptime_seconds=max(0.0, (self.role.now() - core.started_us) / 1e6),
            connections=len(core.connections),
            sessions=len(engine.sessions.space.rows),
            tubes=len(engine.tubes),
            rescue_files=self.storage.rescue_files,
            lag=own_lag(self.peering),
            peers=peers_of(self.peering),
            transitions=tuple(_transition(made) for made in list(self.role.fiber.state.history))[
                -TRANSITIONS_SHOWN:
            ],
            problem=fault or "; ".join(self.peering.troubles.lines()) or None,
            promotion=settings.compat.promotion,
        )

    def cluster(self) -> ClusterStatus:
        return cluster_of(self.status(), self.settings.listen)

    def metrics(self) -> NodeMetrics:
        found = read_node(self.core, self.wal, self.sync, self.role.now())
        found.writable = self.writable
        found.wal_append, found.turn = self.appends.copy(), self.turns.whole.copy()
        found.calls = {kind: one.copy() for kind, one in self.turns.calls.items()}
        found.peers = peers_of(self.peering)
        found.transitions = {
            (origin.value, target.value): (count, self.seconds[origin.value, target.value])
            for (origin, target), count in self.role.fiber.state.counts.items()
        }
        found.rescue_files = self.storage.rescue_files
        if self.memory is not None:
            found.memory_bytes, found.memory_state = self.memory.used, self.memory.state
            found.memory_high_bytes, found.memory_max_bytes = self.memory.high, self.memory.limit
        found.problems = len(self.peering.troubles.lines()) + bool(self.role.fiber.notes.fault)
        found.snapshot_lsn = self.snapshots.last_lsn
        found.snapshot_pause_seconds = self.snapshots.longest_pause_s
        return found

    # -- operations ------------------------------------------------------------------------------

    async def set_read_only(self, read_only: bool, force: bool) -> FlipResult:
        began = time.monotonic()
        if self.wal.broken:
            raise Unavailable("the log failed; the node is ending")
        before = self.role.role.value
        wanted = "WAITING" if read_only else "RUNNING"
        if self.core.read_only == read_only and before == wanted:
            return self._flip(False, began)
        bound = None if read_only else loss_bound(self.peering)
        if bound is not None and not force and (writers := self._other_writers()):
            reason = f"{' and '.join(writers)} is writable: make it read-only first"
            raise NeedsForce(reason, (reason,), bound)
        if bound is not None and not force and self._nobody_could_confirm():
            reason = (
                "pair mode never goes alone (replication.solo_after is null) and no replica can be "
                "reached to confirm the new term"
            )
            raise NeedsForce(reason, (reason,), bound)
        settled = await wished(self.role, read_only, force=force)
        if self.core.read_only != read_only and settled.ok:
            raise Refused("another request came in between", ())
        if not settled.ok:
            reason = settled.reason or "it was given up"
            if bound is None or force or self.peering.replica.log.snapshot.joining:
                raise Refused(reason, (reason,))
            raise NeedsForce(reason, (reason,), loss_bound(self.peering))
        return self._flip(True, began, bound if force else None)

    def _nobody_could_confirm(self) -> bool:
        replication = self.settings.replication
        if replication.ack != "pair" or replication.solo_after is not None:
            return False
        return not any(peer.connected for peer in peers_of(self.peering))

    def _other_writers(self) -> list[str]:
        peers = peers_of(self.peering)
        return [p.name or p.address for p in peers if p.connected and p.writable]

    def _flip(self, changed: bool, began: float, bound: LossBound | None = None) -> FlipResult:
        return FlipResult(
            self.role.role.value,
            self.core.read_only,
            changed,
            self.core.term or None,
            self.core.engine.lsn,
            time.monotonic() - began,
            bound,
        )

    async def switchover(self, to: str, dry_run: bool) -> SwitchReport:
        """The planned flip of this node and a peer, in either direction."""
        if self.wal.broken:
            raise Unavailable("the log failed; the node is ending")
        return await Switchover(self.role, self.peering, to, dry_run).run()

    async def solo(self) -> SoloResult:
        """Pair mode goes on without a replica now, instead of after `solo_after`."""
        gate = self.wal.gate
        if gate is None:
            raise Refused(
                "this node is not acknowledging in pair mode",
                ("replication.ack: pair, on the node that is RUNNING",),
            )
        if not gate.solo:
            self.role.reopen(solo=True)
        return SoloResult(self.role.role.value, self.core.term, self.core.engine.lsn)

    async def snapshot(self) -> int:
        return await self.snapshots.start()

    def subscribe(self, last_event_id: str | None = None) -> Subscription:
        self.observe()
        return self.bus.subscribe(last_event_id)


def _term(term: tuple[object, ...]) -> Term:
    number, term_id, _parent, start_lsn, node, solo = term[:TERM_FIELDS]
    assert isinstance(number, int)
    assert isinstance(term_id, bytes)
    assert isinstance(start_lsn, int)
    return Term(number, term_id.hex(), str(node), start_lsn, bool(solo))


def _transition(made: roles.Transition) -> Transition:
    return Transition(
        made.origin.value,
        made.target.value,
        made.reason,
        made.at_us / 1e6,
        made.duration_us / 1e6,
    )
