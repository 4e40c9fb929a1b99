"""The node as its admin API sees it: reads made from core, log and role; operations on the role.

Here: the joining. Not here: HTTP, and what an operation means.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from node.admin.backend import (
    ClusterStatus,
    FlipResult,
    NodeStatus,
    Refused,
    SoloResult,
    SwitchReport,
    Term,
    Transition,
    Unavailable,
    UnknownNode,
    cluster_of,
)
from node.admin.events import EventBus, Subscription
from node.metrics import Latency, NodeMetrics, read_node
from storage.rescue import rescue_names

if TYPE_CHECKING:
    from node.config import Settings
    from node.core import Core
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
        epoch: str,
    ) -> None:
        """`epoch`: differs with every start of the process."""
        self.settings = settings
        self.core = core
        self.wal = wal
        self.storage = storage
        self.snapshots = snapshots
        self.role = role
        self.bus = EventBus(epoch)
        self.sync = Latency()
        wal.sync_seconds = self.sync.observe
        #: Seconds spent before each kind of transition, since the process started.
        self.seconds: dict[tuple[str, str], float] = {}
        role.observers.append(self._changed)

    def _changed(self, made: roles.Transition) -> None:
        key = (made.origin.value, made.target.value)
        self.seconds[key] = self.seconds.get(key, 0.0) + made.duration_us / 1e6
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

    # -- reads -----------------------------------------------------------------------------------

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
            complete=True,
            following=False,
            ro_reason=self.role.fiber.ro_reason or None,
            term=_term(lineage[-1]) if lineage else None,
            lsn=engine.lsn,
            commit_lsn=core.commit_lsn,
            durable_lsn=self.wal.durable_lsn,
            wal_mode=settings.wal.mode,
            ack="local",
            solo=False,
            started=core.started_us / 1e6,
            uptime_seconds=max(0.0, (self.role.now() - core.started_us) / 1e6),
            connections=len(core.connections),
            sessions=len(engine.sessions.space.rows),
            tubes=len(engine.tubes),
            rescue_files=len(rescue_names(self.storage.disk)),
            lag=None,
            peers=(),
            transitions=tuple(_transition(made) for made in list(self.role.fiber.state.history))[
                -TRANSITIONS_SHOWN:
            ],
            problem=fault or None,
        )

    def cluster(self) -> ClusterStatus:
        return cluster_of(self.status(), self.settings.listen)

    def metrics(self) -> NodeMetrics:
        found = read_node(self.core, self.wal, self.sync, self.role.now())
        found.writable = self.writable
        found.transitions = {
            (origin.value, target.value): (count, self.seconds[origin.value, target.value])
            for (origin, target), count in self.role.fiber.state.counts.items()
        }
        found.rescue_files = len(rescue_names(self.storage.disk))
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
        settled = await self.role.wish(read_only, force=force)
        if not settled.ok or self.core.read_only != read_only:
            raise Refused(settled.reason or "another request came in between", (settled.reason,))
        return self._flip(True, began)

    def _flip(self, changed: bool, began: float) -> FlipResult:
        return FlipResult(
            self.role.role.value,
            self.core.read_only,
            changed,
            self.core.term or None,
            self.core.engine.lsn,
            time.monotonic() - began,
        )

    async def switchover(self, to: str, dry_run: bool) -> SwitchReport:
        """There is nobody to switch over to yet."""
        if to != self.settings.name:
            raise UnknownNode(to, (self.settings.name,))
        running = self.role.role.value == "RUNNING"
        missing = () if running else ("a node that is RUNNING",)
        if not dry_run:
            raise Refused(
                f"{to} is this node; it has no peer to switch over from", missing or ("a peer",)
            )
        return SwitchReport(
            self.settings.name if running else None,
            to,
            True,
            running,
            False,
            False,
            missing,
            (),
            None,
            None,
            0.0,
        )

    async def solo(self) -> SoloResult:
        raise Refused("this node is not in pair mode", ("replication.ack: pair, and a peer",))

    async def snapshot(self) -> int:
        return await self.snapshots.start()

    def subscribe(self, last_event_id: str | None = None) -> Subscription:
        self.observe()
        return self.bus.subscribe(last_event_id)


def _term(term: tuple[object, ...]) -> Term:
    number, term_id, _parent, start_lsn, node, solo = term
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
