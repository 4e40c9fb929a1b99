"""What is in a node: tubes, tasks, sessions, and what was in it before. Values and one protocol.

Reads are bounded whatever the node holds: pages, previews, and scans that stop. Times are seconds,
moments seconds since the epoch, rates per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tandemq_server.node.observe.answers import Lag, LossBoundAnswer, State, SwitchReport
from tandemq_server.node.observe.rights import GrantOrder, GrantResult, Grants

TaskState = Literal["ready", "taken", "delayed", "buried"]
TASK_STATES: tuple[TaskState, ...] = ("ready", "taken", "delayed", "buried")
TaskAction = Literal["kick", "bury", "release", "delete", "move"]
TubeAction = Literal["pause", "resume", "redrive", "alter"]
TubeSide = Literal["puts", "takes"]

#: Items on one page, ids in one request, and tasks one request may change.
PAGE_MAX = 200
IDS_MAX = 500
CHANGED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TubeRates:
    """Calls per second, over the last seconds (`over`)."""

    put: float
    take: float
    ack: float
    release: float
    bury: float
    over: float


@dataclass(frozen=True, slots=True)
class TubeStatus:
    """One tube. None where it is not known: counting would take long, or the type keeps no times.

    done: tasks gone for good since the start. dead_letters_of: tubes whose dead letters come here.
    wait_seconds, processing_seconds: means over the last minute by Little's law (tasks in the
    state divided by the rate at which they leave it). failed_per_minute: attempts that ended
    without an ack, over the last minute. options: as the tube was created, or altered since.
    """

    name: str
    type: str
    temporary: bool
    total: int
    ready: int | None
    taken: int | None
    delayed: int | None
    buried: int | None
    done: int
    capacity: int | None
    waiting_consumers: int
    waiting_producers: int
    rates: TubeRates | None
    oldest_ready_seconds: float | None
    longest_taken_seconds: float | None
    wait_seconds: float | None
    processing_seconds: float | None
    paused_puts: bool
    paused_takes: bool
    dead_letters_of: tuple[str, ...]
    problem: str | None
    failed_per_minute: float | None
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TubePage:
    """Tubes by name. next: give it as `after` for the next page. total: of those searched for."""

    tubes: tuple[TubeStatus, ...]
    total: int
    next: str | None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has taken a task. peer: where it is connected from, None when it is not (any more)."""

    session: str
    connection: int
    peer: str | None
    held_seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task last failed, and when. from_*: of a dead letter, where it died and after how many
    attempts.
    """

    reason: str
    at: float
    from_tube: str | None
    from_id: int | None
    from_attempts: int | None


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """A task. payload: its MessagePack as JSON text, `truncated` when something was left out.

    due_seconds: until its next deadline (ttl, ttr or delay), None when it has none.
    attempts: how often it was taken, None where its tube does not count. headers: the producer's.
    """

    id: int
    state: str
    payload: str
    payload_bytes: int
    truncated: bool
    created: float | None
    age_seconds: float | None
    due_seconds: float | None
    ttl_seconds: float | None
    ttr_seconds: float | None
    priority: int | None
    subqueue: str | None
    holder: Holder | None
    attempts: int | None
    failure: Failure | None
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Tasks in the order of their ids. next: give it as `after`; a page may be short of `limit`,
    even empty, and still have a next one: a scan through many other tasks stops in between.
    """

    tube: str
    tasks: tuple[TaskAnswer, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One task that was left as it was, and why."""

    id: int
    detail: str


@dataclass(frozen=True, slots=True)
class TasksResult:
    """matched: tasks meant. done: changed (0 in a dry run). more: `limit` left some untouched."""

    tube: str
    action: TaskAction
    dry_run: bool
    matched: int
    done: int
    more: bool
    failed: tuple[TaskFailure, ...]


@dataclass(frozen=True, slots=True)
class TubeResult:
    """What is paused now; moved: dead letters sent back."""

    tube: str
    action: TubeAction
    paused_puts: bool
    paused_takes: bool
    moved: int


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task a session holds."""

    tube: str
    id: int
    held_seconds: float


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """An IPROTO connection. waits: its calls that wait for a task or for room."""

    id: int
    peer: str
    user: str
    tls: bool
    waits: int
    replication: bool


@dataclass(frozen=True, slots=True)
class Session:
    """A queue session. expires_seconds: left to re-attach, None while it has a connection."""

    id: str
    attached: bool
    expires_seconds: float | None
    connections: tuple[ClientConnection, ...]
    held: int
    tasks: tuple[HeldTask, ...]


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, those with most tasks first. others: connections that need no session (yet)."""

    sessions: tuple[Session, ...]
    total: int
    next: int | None
    others: tuple[ClientConnection, ...]
    connections: int


@dataclass(frozen=True, slots=True)
class PeerLag:
    """How far one peer was behind, or this node behind it (name: the peer's)."""

    name: str
    role: Literal["upstream", "downstream"]
    lag: Lag


@dataclass(frozen=True, slots=True)
class Sample:
    """A node at one moment. Rates are of all tubes together, since the sample before."""

    at: float
    state: State
    term: int
    lsn: int
    commit_lsn: int
    put_rate: float
    take_rate: float
    done_rate: float
    ready: int
    taken: int
    connections: int
    peers: tuple[PeerLag, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Samples, oldest first, about `interval_seconds` apart; since the start at most."""

    interval_seconds: float
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What making this node the master would mean right now.

    planned: a dry run of the switch-over, which loses nothing; None when the node has no name yet.
    forced: what promoting it without the other one would give up at most; None for the master.
    """

    node: str
    here: bool
    writable: bool
    planned: SwitchReport | None
    forced: LossBoundAnswer | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Every node as the next master, as the node asked sees it."""

    seen_by: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks to list. search: a part of a string or number of the payload, of a header or of a
    failure's reason, capitals or not; failed: only those that have failed.
    """

    tube: str
    state: TaskState | None = None
    subqueue: str | None = None
    after: int = -1
    limit: int = 50
    search: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class TasksOrder:
    """Which tasks to change and how: `ids`, or up to `limit` tasks of one `state`.

    to: the tube that tasks are moved to.
    """

    tube: str
    action: TaskAction
    ids: Sequence[int] = field(default_factory=tuple)
    state: TaskState | None = None
    to: str | None = None
    limit: int = 1000
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TubeOrder:
    """What to do with a whole tube.

    options: those to alter, None for a default. what: the side to pause or resume, None for both.
    to, limit: where dead letters go (None: where each came from), and how many of them, the oldest
    first.
    """

    tube: str
    action: TubeAction
    what: TubeSide | None = None
    to: str | None = None
    limit: int = CHANGED_MAX
    options: dict[str, Any] | None = None


class UnknownTube(Exception):
    """There is no tube of that name. field: the member of the request that named it."""

    def __init__(self, field_name: str, name: str) -> None:
        super().__init__(f"there is no tube {name!r}")
        self.field = field_name


class Inventory(Protocol):
    """Reads are synchronous and change nothing; what changes returns when it is committed."""

    def tubes(self, search: str, after: str, limit: int) -> TubePage: ...

    def tasks(self, query: TaskQuery) -> TaskPage:
        """Raises `UnknownTube`."""
        ...

    def sessions(self, after: int, limit: int) -> SessionPage: ...

    def history(self, seconds: float) -> History: ...

    async def outlook(self) -> Outlook: ...

    async def change_tasks(self, order: TasksOrder) -> TasksResult:
        """Raises `UnknownTube`, `Refused` on a node that is not RUNNING, `Unavailable`."""
        ...

    def grants(self) -> Grants: ...

    async def change_grant(self, order: GrantOrder) -> GrantResult:
        """Raises `UnknownTube`, `Refused` when it cannot be done (now), `Unavailable`."""
        ...

    async def change_tube(self, order: TubeOrder) -> TubeResult:
        """Raises `UnknownTube`, `Refused` when it cannot be done (now), `Unavailable`."""
        ...
