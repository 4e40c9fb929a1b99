"""The node as its admin API sees it: reads made from core, log and role; operations on the role.

Here: the joining. Not here: HTTP, and what an operation means.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tandemq.model import terms
from tandemq.model.units import SECOND_US
from tandemq_server.config.certificates import ends_of
from tandemq_server.node.cluster.promise import promise_of
from tandemq_server.node.core.trail_answers import NoTrail, Trail
from tandemq_server.node.loop.latency import FAST_BUCKETS, Latency
from tandemq_server.node.loop.role_request import request_role
from tandemq_server.node.loop.timing import Turns
from tandemq_server.node.observe.answers import (
    ClusterStatus,
    FailoverStatus,
    FlipResult,
    LossBoundAnswer,
    NeedsForce,
    NodeStatus,
    OperationRefused,
    Reloaded,
    RetryLater,
    SoloResult,
    State,
    SwitchReport,
    TermAnswer,
    TransitionAnswer,
)
from tandemq_server.node.observe.cluster_view import cluster_of
from tandemq_server.node.observe.events import EventBus, Subscription
from tandemq_server.node.observe.failover import change, failover_of
from tandemq_server.node.observe.history import TUBES_MAX
from tandemq_server.node.observe.inventory import NodeInventory
from tandemq_server.node.observe.metrics import NodeMetrics, read_node
from tandemq_server.node.observe.overview import MemoryAnswer, Overview, overview
from tandemq_server.node.observe.past import past_of
from tandemq_server.node.observe.past_answers import PastAnswer, PastWanted
from tandemq_server.node.observe.peer_status import (
    following,
    loss_bound,
    loss_of,
    own_lag,
    peers_of,
)
from tandemq_server.node.observe.rescued import RescuedTasks
from tandemq_server.node.observe.switchover import Switchover
from tandemq_server.node.observe.words import summary

if TYPE_CHECKING:
    from tandemq_server.config import Settings
    from tandemq_server.node.cluster.peering import Peering
    from tandemq_server.node.cluster.role import RoleKeeper
    from tandemq_server.node.core.core import Core
    from tandemq_server.node.loop.memory import MemoryWatch
    from tandemq_server.node.loop.recovered import Storage
    from tandemq_server.node.loop.snapshots import Snapshots
    from tandemq_server.node.loop.wal_writer import WalWriter
    from tandemq_server.replication.commit import CommitPoint
    from tandemq_server.statemachine import roles

#: Transitions shown, the newest last.
TRANSITIONS_SHOWN = 50
#: Listeners hear of a peer at most so much later.
LOOK_SECONDS = 0.02


class NodeBackend:
    """See node.observe.answers.Backend."""

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
        #: Set by the rim: who did what.
        self.trail: Trail = NoTrail()
        #: Set by the rim: the configuration as it is now.
        self.reloader: Callable[[], Reloaded] = lambda: Reloaded((), 0)
        #: Set by the rim: of what is loaded, not of what lies there since.
        self.certificates = ends_of(settings)
        self.rescued = RescuedTasks(storage.disk, settings.data_dir)
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
        #: Set by the rim: calls back after so many seconds.
        self.later: Callable[[float, Callable[[], None]], object] = lambda _, look: look()
        self._looking = False
        #: What status shows of the role's history, made once each.
        self._transitions = deque(
            map(_transition, role.fiber.state.history), maxlen=TRANSITIONS_SHOWN
        )
        #: One reader of the log at a time.
        self._reading = asyncio.Lock()

    def _changed(self, made: roles.Transition) -> None:
        key = (made.origin.value, made.target.value)
        self.seconds[key] = self.seconds.get(key, 0.0) + made.duration_us / SECOND_US
        self._transitions.append(_transition(made))
        self.observe()

    def _peer_changed(self) -> None:
        """Looked at in a moment: a switch-over has a dozen of these, and waits for none of them."""
        if not self._looking:
            self._looking = True
            self.later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """A heartbeat that says what the one before did is no news."""
        self._looking = False
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
            and self.core.commit_lsn >= lineage[-1].start_lsn
        )

    def observe(self) -> None:
        """Tell listeners what changed; called on every transition and now and then."""
        self.bus.observe(self.status())

    def sample(self) -> None:
        """Remember how the node is, for history; called about once a second."""
        self.observe()
        at = self.role.now() / SECOND_US
        sample = self.inventory.recorder.sample(at, peers_of(self.peering))
        if len(self.bus):
            self.bus.tell("sample", asdict(sample))

    # -- reads -----------------------------------------------------------------------------------

    def loss(self, peer: str | None) -> LossBoundAnswer:
        return loss_bound(self.peering) if peer is None else loss_of(self.peering, peer)

    def _problems(self) -> list[str]:
        """What waits for an operator."""
        found = [self.role.fiber.notes.fault, *self.peering.troubles.lines()]
        if self.trail.problem:
            found.append(f"the audit trail is not written: {self.trail.problem}")
        return [one for one in found if one]

    def status(self) -> NodeStatus:
        core, engine, settings = self.core, self.core.engine, self.settings
        lineage = engine.store.lineage
        state: State = self.role.role.value
        found = NodeStatus(
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
            started=core.started_us / SECOND_US,
            uptime_seconds=max(0.0, (self.role.now() - core.started_us) / SECOND_US),
            connections=len(core.connections),
            sessions=len(engine.sessions.space.rows),
            tubes=len(engine.tubes),
            rescue_files=self.storage.rescue_files,
            lag=own_lag(self.peering),
            peers=peers_of(self.peering),
            transitions=tuple(self._transitions),
            problem="; ".join(self._problems()) or None,
            promotion=settings.compat.promotion,
            failover=failover_of(self.peering),
            session_ttr=float(engine.ttr_s),
            in_replicaset=engine.in_replicaset,
            rescue_tasks=self.rescued.count,
        )
        return replace(found, summary=summary(found))

    def cluster(self) -> ClusterStatus:
        return cluster_of(self.status(), self.settings.listen)

    def overview(self) -> Overview:
        watch = self.memory
        used = (
            MemoryAnswer(0, 0, 0)
            if watch is None
            else MemoryAnswer(watch.used, watch.high, watch.limit)
        )
        state = 0 if watch is None else watch.state
        tubes = self.inventory.tubes("", "", TUBES_MAX).tubes
        return overview(self.status(), self.cluster(), tubes, used, state)

    async def past(self, tube: str, wanted: PastWanted) -> PastAnswer:
        if self.settings.wal.mode == "none":
            raise OperationRefused("this node keeps no log (wal.mode is none)")
        async with self._reading:
            return await past_of(self.settings.data_dir, tube, wanted)

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
        found.rescue_tasks, found.certificates = self.rescued.count, self.certificates
        with contextlib.suppress(OSError):
            disk = os.statvfs(self.settings.data_dir)
            found.data_free_bytes = disk.f_bavail * disk.f_frsize
        if self.memory is not None:
            found.memory_bytes, found.memory_state = self.memory.used, self.memory.state
            found.memory_high_bytes, found.memory_max_bytes = self.memory.high, self.memory.limit
        found.problems, found.trail_lost = len(self._problems()), self.trail.lost
        found.failover = failover_of(self.peering)
        found.snapshot_lsn = self.snapshots.last_lsn
        found.snapshot_pause_seconds = self.snapshots.longest_pause_s
        return found

    # -- operations ------------------------------------------------------------------------------

    async def set_read_only(self, read_only: bool, force: bool) -> FlipResult:
        began = time.monotonic()
        if self.wal.broken:
            raise RetryLater("the log failed; the node is ending")
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
        settled = await request_role(self.role, read_only, force=force)
        if self.core.read_only != read_only and settled.ok:
            raise OperationRefused("another request came in between", ())
        if not settled.ok:
            reason = settled.reason or "it was given up"
            if bound is None or force or self.peering.replica.log.snapshot.joining:
                raise OperationRefused(reason, (reason,))
            raise NeedsForce(reason, (reason,), loss_bound(self.peering))
        return self._flip(True, began, bound if force else None)

    def _nobody_could_confirm(self) -> bool:
        replication = self.settings.replication
        if replication.ack != "pair" or replication.solo_after is not None or self.peering.seat:
            return False
        return not any(peer.connected for peer in peers_of(self.peering))

    def _other_writers(self) -> list[str]:
        peers = peers_of(self.peering)
        return [p.name or p.address for p in peers if p.connected and p.writable]

    def _flip(
        self, changed: bool, began: float, bound: LossBoundAnswer | None = None
    ) -> FlipResult:
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
            raise RetryLater("the log failed; the node is ending")
        return await Switchover(self.role, self.peering, to, dry_run).run()

    async def solo(self) -> SoloResult:
        """Pair mode goes on without a replica now, instead of after `solo_after`."""
        gate = self.wal.gate
        if gate is None:
            raise OperationRefused(
                "this node is not acknowledging in pair mode",
                ("replication.ack: pair, on the node that is RUNNING",),
            )
        if not gate.solo and self.peering.seat is not None:
            self.peering.seat.go_alone("an operator says so")
            await self._alone(gate)
        elif not gate.solo:
            self.role.reopen(solo=True)
        return SoloResult(self.role.role.value, self.core.term, self.core.engine.lsn)

    async def _alone(self, gate: CommitPoint) -> None:
        """The seat says so, or it does not."""
        deadline = time.monotonic() + 2 * self.settings.failover.timeout
        while not gate.solo and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if not gate.solo:
            assert self.peering.seat is not None
            raise OperationRefused(
                f"{self.peering.seat.name} did not say that this node may go alone", ()
            )

    async def failover(self, action: str) -> FailoverStatus:
        return change(self.peering, action)

    async def reload(self) -> Reloaded:
        return self.reloader()

    async def snapshot(self) -> int:
        return await self.snapshots.start()

    def subscribe(self, last_event_id: str | None = None) -> Subscription:
        self.observe()
        return self.bus.subscribe(last_event_id)


def _term(term: terms.Term) -> TermAnswer:
    return TermAnswer(term.number, term.id.hex(), term.node, term.start_lsn, term.solo)


def _transition(made: roles.Transition) -> TransitionAnswer:
    return TransitionAnswer(
        made.origin.value,
        made.target.value,
        made.reason,
        made.at_us / SECOND_US,
        made.duration_us / SECOND_US,
    )
