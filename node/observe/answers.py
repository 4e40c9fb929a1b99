"""What the admin API asks of a node: one protocol, and the plain values that cross it.

Reads are synchronous, cheap and change nothing. Operations are coroutines that return once the
new state is reached; the API bounds how long its caller waits, never the operation itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from tandemq_server.node.core.trail_answers import Trail
    from tandemq_server.node.observe.events import Subscription
    from tandemq_server.node.observe.inventory_answers import Inventory
    from tandemq_server.node.observe.metrics import NodeMetrics
    from tandemq_server.node.observe.overview import Overview
    from tandemq_server.node.observe.past_answers import PastAnswer, PastWanted

Outcome = Literal["planned", "done", "failed", "rolled_back", "skipped"]
State = Literal["INIT", "STARTUP", "RUNNING", "ENDING", "WAITING"]
STATES: tuple[State, ...] = ("INIT", "STARTUP", "RUNNING", "ENDING", "WAITING")


# -- values --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one log is behind another."""

    records: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LossBoundAnswer:
    """What a forced promotion may cut at most: kept in a rescue file, but not acknowledged work.

    known: False when the other node cannot be asked and nothing is known of its end; the numbers
    are then those of the last heartbeat, or None.
    """

    known: bool
    records: int | None
    bytes: int | None
    seconds: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class TermAnswer:
    """The term a node is in. `id` is hex; `solo`: opened without proof of holding everything."""

    number: int
    id: str
    node: str
    start_lsn: int
    solo: bool


@dataclass(frozen=True, slots=True)
class TransitionAnswer:
    """A change of state. `at` is seconds since the epoch, `seconds` what it took."""

    from_state: State
    to_state: State
    reason: str
    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Peer:
    """Another node as this one knows it; None where it was never heard of.

    role: what the peer is on the link. lag: how far it is behind us, or we behind it (upstream).
    """

    address: str
    name: str | None = None
    node_id: str | None = None
    connected: bool = False
    role: Literal["upstream", "downstream", "none"] = "none"
    state: State | None = None
    writable: bool = False
    term: int | None = None
    lsn: int | None = None
    durable_lsn: int | None = None
    lag: Lag | None = None
    heard_seconds: float | None = None
    clock_offset_seconds: float | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FailoverStatus:
    """The seat, as an arbiter holds it. problem: why the arbiter does not answer, empty if it does.

    no, master, partner, by: whose it is, who may be promoted, who wrote it and why. stand: where
    this node stands. paused: why it does not take over automatically. outlook: what would happen
    now if the master died. last: how the last takeover of this process went.
    """

    arbiter: str
    problem: str
    no: int
    master: str
    partner: str
    by: str
    stand: str
    candidate: bool
    paused: str
    outlook: str
    last: str


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node. Times in seconds; `started` since the epoch.

    live: the process does its work (False: log failed, restart it). complete: all data is here
    (False while recovering or bootstrapping). following: fed by a writable upstream within the
    lease. writable: RUNNING, and a record of its own term was committed. ro_reason: why it is not.
    promise: the wal.mode an acknowledgement stands for here: in pair mode the weaker one of both
    nodes, unknown while a replica of an older version does not tell its own.
    promotion: `compat.promotion`, by which a node that cannot reach its peer may come to serve.
    failover: whose the seat is; None without an arbiter.
    session_ttr, in_replicaset: how long, in seconds, and whether over a switch-over, tasks stay
    with a session that lost its connection. summary: all of it in a sentence.
    """

    name: str
    node_id: str
    cluster_id: str
    version: str
    state: State
    read_only: bool
    writable: bool
    live: bool
    complete: bool
    following: bool
    ro_reason: str | None
    term: TermAnswer | None
    lsn: int
    commit_lsn: int
    durable_lsn: int
    wal_mode: Literal["none", "write", "fsync"]
    ack: Literal["local", "pair"]
    promise: Literal["unknown", "none", "write", "fsync"]
    solo: bool
    started: float
    uptime_seconds: float
    connections: int
    sessions: int
    tubes: int
    rescue_files: int
    lag: Lag | None
    peers: tuple[Peer, ...]
    transitions: tuple[TransitionAnswer, ...]
    problem: str | None
    promotion: Literal["proved", "original"] = "proved"
    session_ttr: float = 0.0
    in_replicaset: bool = False
    summary: str = ""
    failover: FailoverStatus | None = None
    rescue_tasks: int = 0


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One line of the cluster's table."""

    name: str | None
    address: str
    here: bool
    connected: bool
    state: State | None
    writable: bool
    term: int | None
    lsn: int | None
    lag: Lag | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """All nodes as the one asked sees them. conflict: more than one claims to be writable."""

    cluster_id: str
    seen_by: str
    writable: tuple[str, ...]
    conflict: bool
    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class FlipResult:
    """A node reached the state it was told to. changed: False when it already was there.

    loss_bound: of a forced promotion, what was given up at most.
    """

    state: State
    read_only: bool
    changed: bool
    term: int | None
    lsn: int
    seconds: float
    loss_bound: LossBoundAnswer | None = None


@dataclass(frozen=True, slots=True)
class StepAnswer:
    """One step of a switch-over, in order. seconds: what it took, None while planned."""

    name: str
    node: str
    outcome: Outcome
    seconds: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class SwitchReport:
    """A planned flip of both nodes, done or (dry_run) only looked at.

    possible: nothing is missing. done: `to_node` is RUNNING. rolled_back: it was given up half-way
    and `from_node` is RUNNING again.
    """

    from_node: str | None
    to_node: str
    dry_run: bool
    possible: bool
    done: bool
    rolled_back: bool
    missing: tuple[str, ...]
    steps: tuple[StepAnswer, ...]
    lag: Lag | None
    loss_bound: LossBoundAnswer | None
    seconds: float


@dataclass(frozen=True, slots=True)
class SoloResult:
    """The node goes on alone: its new term has the solo flag."""

    state: State
    term: int
    lsn: int


EventKind = Literal["state", "term", "lag", "peers", "sample", "reset"]


# -- refusals ------------------------------------------------------------------------------------


class OperationRefused(Exception):
    """What was asked cannot be done now; the node is as it was.

    reason: one sentence. missing: each thing that is in the way, one line each.
    """

    def __init__(
        self, reason: str, missing: tuple[str, ...] = (), report: SwitchReport | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.missing = missing
        self.report = report


class NeedsForce(OperationRefused):
    """It can be done with `force`, at the price of `loss_bound`."""

    def __init__(self, reason: str, missing: tuple[str, ...], loss_bound: LossBoundAnswer) -> None:
        super().__init__(reason, missing)
        self.loss_bound = loss_bound


class UnknownNode(Exception):
    """There is no node of that name; `known` are those that could be meant."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"there is no node {name!r}")
        self.name = name
        self.known = known


class RetryLater(Exception):
    """Not now, for a reason that passes by itself (starting, ending)."""

    def __init__(self, reason: str, retry_after_s: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


# -- the protocol --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Sections of the configuration that changed, and connections closed as their user is gone."""

    changed: tuple[str, ...]
    closed: int


class Backend(Protocol):
    """The node as its admin API sees it.

    Reads may raise `RetryLater`. Operations may raise `OperationRefused`, `NeedsForce`,
    `UnknownNode`, `RetryLater`; they are not cancelled when the caller goes away, only
    when the node ends. One may be asked while another is under way: the same request never is (the
    API joins them), a contrary one takes over, and the one it overtook raises `OperationRefused`.
    """

    @property
    def inventory(self) -> Inventory:
        """What is in the node."""
        ...

    @property
    def trail(self) -> Trail: ...

    def loss(self, peer: str | None) -> LossBoundAnswer:
        """What promoting a peer now (None: this node), without the other, gives up at most."""
        ...

    def status(self) -> NodeStatus: ...

    def cluster(self) -> ClusterStatus: ...

    def overview(self) -> Overview:
        """What is worth a person's attention, in one answer."""
        ...

    async def past(self, tube: str, wanted: PastWanted) -> PastAnswer:
        """What happened to a task, from this node's log; read by a process of its own."""
        ...

    def metrics(self) -> NodeMetrics: ...

    async def set_read_only(self, read_only: bool, force: bool) -> FlipResult:
        """To WAITING (True) or RUNNING (False). `force` does not wait for what is missing."""
        ...

    async def switchover(self, to: str, dry_run: bool) -> SwitchReport:
        """Planned flip; a dry run changes nothing and reports `missing` instead of raising."""
        ...

    async def solo(self) -> SoloResult:
        """In pair mode: go on without the replica now, in a new term with the solo flag."""
        ...

    async def failover(self, action: str) -> FailoverStatus:
        """pause, resume: whether this node takes over automatically; seed: write the seat anew."""

    async def reload(self) -> Reloaded:
        """Take passwords, rights, tokens and certificates anew.

        Raises `OperationRefused`: nothing was.
        """
        ...

    async def snapshot(self) -> int:
        """Write a snapshot (or join the one under way); the LSN it stands for."""
        ...

    def subscribe(self, last_event_id: str | None = None) -> Subscription:
        """Events from now on, after what the id misses or the present state. See events.py."""
        ...
