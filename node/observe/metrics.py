"""What a node can tell about itself, read from plain counters it keeps anyway.

Everything is read when somebody scrapes, nothing is added to a call. Names are bounded: tubes
beyond TUBES_MAX are summed up under "other". Not here: Prometheus (admin/prometheus.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tandemq.model.units import SECOND_US
from tandemq_server.config.certificates import CertificateEnd
from tandemq_server.drivers.base import Driver
from tandemq_server.engine import pause
from tandemq_server.node.loop.latency import FAST_BUCKETS, Latency
from tandemq_server.node.observe.answers import FailoverStatus, Peer
from tandemq_server.spaces.status_index import StatusIndex
from tandemq_server.spaces.subqueue_index import SubQueueIndex

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.core import Core
    from tandemq_server.node.loop.wal_writer import WalWriter

#: Tubes with samples of their own; the oldest ones, so that a series does not change its name.
TUBES_MAX = 100
OTHER = "other"
#: Longest label, in characters; tube names may be far longer.
LABEL_MAX = 120
#: Rows looked at, per scrape, for the oldest ready task of all tubes.
SCAN_ROWS = 20_000
#: A custom driver that counts by walking is not asked beyond this many tasks.
WALK_MAX = 10_000
_TASK_STATES = ("ready", "taken", "delayed", "buried")


@dataclass(slots=True)
class TubeMetrics:
    """One tube, or the sum of several. tasks and calls: by name; age in seconds, None: unknown."""

    name: str
    tasks: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    done: int = 0
    waiting_consumers: int = 0
    waiting_producers: int = 0
    oldest_ready_seconds: float | None = None
    #: Of a tube that takes dead letters: how many tasks it holds. The bound the tube itself has.
    dead_letters: int | None = None
    age_max_seconds: float | None = None
    paused_puts: bool = False
    paused_takes: bool = False

    def add(self, other: TubeMetrics) -> None:
        for mine, theirs in ((self.tasks, other.tasks), (self.calls, other.calls)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        self.done += other.done
        self.waiting_consumers += other.waiting_consumers
        self.waiting_producers += other.waiting_producers
        if other.oldest_ready_seconds is not None:
            mine_age = self.oldest_ready_seconds or 0.0
            self.oldest_ready_seconds = max(mine_age, other.oldest_ready_seconds)


@dataclass(slots=True)
class NodeMetrics:
    """What one scrape tells. transitions: (from, to) -> (how often, seconds in all)."""

    name: str
    node_id: str
    cluster_id: str
    version: str
    state: str
    read_only: bool = False
    writable: bool = False
    term: int = 0
    solo: bool = False
    lsn: int = 0
    commit_lsn: int = 0
    durable_lsn: int = 0
    wal_bytes: int = 0
    wal_sync: Latency = field(default_factory=Latency)
    wal_append: Latency = field(default_factory=lambda: Latency(FAST_BUCKETS))
    turn: Latency = field(default_factory=lambda: Latency(FAST_BUCKETS))
    calls: dict[str, Latency] = field(default_factory=dict)
    connections: int = 0
    sessions_attached: int = 0
    sessions_detached: int = 0
    request_errors: int = 0
    tubes_by_type: dict[str, int] = field(default_factory=dict)
    tubes: list[TubeMetrics] = field(default_factory=list)
    tubes_failed: int = 0
    peers: tuple[Peer, ...] = ()
    transitions: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)
    rescue_files: int = 0
    rescue_tasks: int = 0
    certificates: tuple[CertificateEnd, ...] = ()
    memory_bytes: int = 0
    memory_high_bytes: int = 0
    memory_max_bytes: int = 0
    #: 0 below both bounds, 1 above high, 2 above max: puts are refused.
    memory_state: int = 0
    problems: int = 0
    #: Lines of the audit trail that were not written.
    trail_lost: int = 0
    failover: FailoverStatus | None = None
    data_free_bytes: int | None = None
    snapshot_lsn: int = 0
    snapshot_pause_seconds: float = 0.0


# -- reading a node ------------------------------------------------------------------------------


def read_node(core: Core, wal: WalWriter, sync: Latency, now_us: int) -> NodeMetrics:
    """The part of the metrics that core, engine and log know; the caller adds role and peers.

    `sync` is what `wal.sync_seconds` was set to observe with; now_us: the log's clock.
    """
    engine, identity = core.engine, core.identity
    members, rows = len(engine.sessions.members), len(engine.sessions.space.rows)
    found = NodeMetrics(
        identity.name,
        identity.node_id,
        identity.cluster_id,
        identity.version,
        core.state,
        read_only=core.read_only,
        writable=core.state == "RUNNING",
        term=core.term,
        lsn=engine.lsn,
        commit_lsn=core.commit_lsn,
        durable_lsn=wal.durable_lsn,
        wal_bytes=wal.bytes_written,
        wal_sync=sync.copy(),
        connections=len(core.connections),
        sessions_attached=members,
        sessions_detached=max(0, rows - members),
        request_errors=core.errors,
    )
    for tube in engine.tubes.values():
        found.tubes_by_type[tube.type] = found.tubes_by_type.get(tube.type, 0) + 1
    found.tubes, found.tubes_failed = read_tubes(engine.tubes.values(), now_us)
    return found


def read_tubes(
    tubes: Iterable[EngineTube], now_us: int, tubes_max: int = TUBES_MAX
) -> tuple[list[TubeMetrics], int]:
    """Tubes by label, and how many could not be read (a custom driver failed)."""
    by_label: dict[str, TubeMetrics] = {}
    failed, scan = 0, SCAN_ROWS
    ordered = sorted(tubes, key=lambda tube: tube.id)
    dying = {tube.policy.dead_letter for tube in ordered if tube.policy is not None}
    for number, tube in enumerate(ordered):
        name = label(tube.name) if number < tubes_max else OTHER
        try:
            one = TubeMetrics(name, *counts_of(tube))
            if number < tubes_max:
                one.oldest_ready_seconds, looked = oldest_ready(tube, now_us, scan)
                scan -= looked
                _mark(one, tube, tube.name in dying)
        except Exception:
            failed += 1
            continue
        one.done = tube.done
        one.waiting_consumers, one.waiting_producers = len(tube.waiters), len(tube.blocked)
        if name in by_label:
            by_label[name].add(one)
        else:
            by_label[name] = one
    return list(by_label.values()), failed


def _mark(one: TubeMetrics, tube: EngineTube, dead: bool) -> None:
    """What alerts ask of a tube that has samples of its own."""
    bound = tube.opts.get("age_max")
    one.age_max_seconds = None if bound is None else float(bound)
    one.dead_letters = len(tube.space.rows) if dead else None
    paused = pause.state(tube)
    one.paused_puts, one.paused_takes = paused["puts"], paused["takes"]


def counts_of(tube: EngineTube) -> tuple[dict[str, int], dict[str, int]]:
    """Tasks by state and calls by name; no tasks where counting them would take long."""
    walks = type(tube.inner).counts is Driver.counts
    if walks and len(tube.space.rows) > WALK_MAX:
        return {}, dict(tube.calls)
    statistics = tube.statistics()
    tasks = {state: statistics["tasks"].get(state, 0) for state in _TASK_STATES}
    return tasks, statistics["calls"]


def oldest_ready(tube: EngineTube, now_us: int, scan: int) -> tuple[float | None, int]:
    """(age in seconds, rows looked at), where rows have a field `created`.

    Rows stand in the order of their ids. When the first `scan` of them are all in other states,
    the age is that of the ready task served next, if the driver knows it at once.
    """
    fields = [column[0] for column in tube.space.format]
    if "created" not in fields:
        return None, 0
    created = fields.index("created")
    looked = 0
    row = None
    for looked, candidate in enumerate(tube.space.rows.values(), 1):
        if candidate[1] == "r":
            row = candidate
            break
        if looked >= scan:
            row = _served_next(tube)
            break
    if row is None:
        return (0.0 if looked == len(tube.space.rows) else None), looked
    return max(0.0, (now_us - row[created]) / SECOND_US), looked


def _served_next(tube: EngineTube) -> tuple[Any, ...] | None:
    """The ready task a take would get, where an index has it at hand."""
    for index in reversed(tube.space.indexes):
        if isinstance(index, SubQueueIndex | StatusIndex):
            return index.first_ready()
    return None


def label(name: str) -> str:
    """A tube's name as a label: valid UTF-8 and not too long."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= LABEL_MAX else text[: LABEL_MAX - 1] + "…"
