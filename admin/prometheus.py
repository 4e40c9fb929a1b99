"""Metrics in Prometheus's format: names, units, help; what they say: node/observe/metrics.py.

Names follow Prometheus's conventions and are promises to dashboards and alert rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tandemq_server.node.loop.latency import Latency
from tandemq_server.node.observe.answers import STATES, FailoverStatus
from tandemq_server.node.observe.metrics import NodeMetrics, TubeMetrics, label

Values = list[tuple[Mapping[str, str], float]]


class NodeCollector(Collector):
    """Turns what `read()` gives into metric families."""

    def __init__(self, read: Callable[[], NodeMetrics]) -> None:
        self._read = read

    def describe(self) -> list[Metric]:
        """Nothing in advance: registering must not read the node."""
        return []

    def collect(self) -> Iterator[Metric]:
        node = self._read()
        yield from _node_families(node)
        yield from _log_families(node)
        yield from _tube_families(node.tubes)
        yield from _peer_families(node)


def registry_of(read: Callable[[], NodeMetrics]) -> CollectorRegistry:
    """A registry of one node, with its process's memory, CPU and file descriptors."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(read))
    ProcessCollector(registry=registry)
    return registry


def render(node: NodeMetrics, accept: str) -> tuple[bytes, str]:
    """(body, content type) in the format that `accept` asks for; takes milliseconds."""
    encode, content_type = choose_encoder(accept)
    return encode(registry_of(lambda: node)), content_type


def _gauge(name: str, text: str, values: float | Values, unit: str = "") -> Metric:
    return _filled(GaugeMetricFamily("tandemq_" + name, text, unit=unit), values)


def _counter(name: str, text: str, values: float | Values, unit: str = "") -> Metric:
    return _filled(CounterMetricFamily("tandemq_" + name, text, unit=unit), values, "_total")


def _filled(family: Any, values: float | Values, suffix: str = "") -> Metric:
    pairs: Values = [({}, values)] if isinstance(values, int | float) else values
    for labels, value in pairs:
        family.add_sample(family.name + suffix, dict(labels), value)
    found: Metric = family
    return found


def _histogram(name: str, text: str, latency: Latency) -> Metric:
    family = HistogramMetricFamily(f"tandemq_{name}_seconds", text, unit="seconds")
    family.add_metric([], buckets=latency.buckets(), sum_value=latency.sum)
    return family


def _call_latencies(node: NodeMetrics) -> Metric:
    family = HistogramMetricFamily(
        "tandemq_call_seconds",
        "From the first request of an event-loop turn to the replies leaving, by call answered; "
        "about one turn in eight, without calls that wait for a task.",
        labels=["call"],
        unit="seconds",
    )
    for call, latency in sorted(node.calls.items()):
        family.add_metric([label(call)], buckets=latency.buckets(), sum_value=latency.sum)
    return family


def _failover_families(node: NodeMetrics) -> Iterator[Metric]:
    """Only where there is an arbiter."""
    told = node.failover
    if told is None:
        return
    yield _gauge("arbiter_up", "1 when the arbiter answers.", not told.problem)
    yield _gauge("seat_number", "Number of the seat the arbiter holds, 0 for none.", told.no)
    yield _gauge(
        "seat",
        "1 for the seat's master and for the partner, which may be promoted.",
        [({"node": label(name), "as": role}, True) for role, name in _seated(told) if name],
    )
    yield _gauge(
        "failover_paused", "1 when this node does not take over automatically.", bool(told.paused)
    )


def _seated(told: FailoverStatus) -> tuple[tuple[str, str], ...]:
    return ("master", told.master), ("partner", told.partner)


def _node_families(node: NodeMetrics) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "tandemq_node",
        "Who this node is.",
        {
            "name": node.name,
            "node_id": node.node_id,
            "cluster_id": node.cluster_id,
            "version": node.version,
        },
    )
    yield _gauge(
        "state",
        "1 for the state the role machine is in, 0 for the others.",
        [({"state": state}, state == node.state) for state in STATES],
    )
    yield _gauge("read_only", "1 when the node is told to be a replica.", node.read_only)
    yield _gauge("writable", "1 when changing calls are acknowledged here.", node.writable)
    yield _gauge("term", "Number of the term the node is in.", node.term)
    yield _gauge("solo", "1 when the term was opened without a second node.", node.solo)
    yield from _failover_families(node)
    transitions = node.transitions.items()
    yield _counter(
        "state_transitions",
        "Changes of the role machine's state since the start.",
        [({"from": a, "to": b}, count) for (a, b), (count, _) in transitions],
    )
    yield _counter(
        "state_transition_seconds",
        "Time these changes took.",
        [({"from": a, "to": b}, seconds) for (a, b), (_, seconds) in transitions],
        "seconds",
    )
    yield _gauge("connections", "Open IPROTO connections.", node.connections)
    yield _gauge(
        "sessions",
        "Sessions with a connection (attached) or within their ttr (detached).",
        [
            ({"kind": "attached"}, node.sessions_attached),
            ({"kind": "detached"}, node.sessions_detached),
        ],
    )
    yield _counter("request_errors", "Requests answered with an error.", node.request_errors)


def _log_families(node: NodeMetrics) -> Iterator[Metric]:
    yield _gauge("lsn", "LSN of the last record made or received.", node.lsn)
    yield _gauge(
        "durable_lsn", "LSN up to which the log is as durable as configured.", node.durable_lsn
    )
    yield _gauge("commit_lsn", "LSN up to which changes are acknowledged.", node.commit_lsn)
    yield _counter("wal_written_bytes", "Bytes appended to the log.", node.wal_bytes, "bytes")
    yield _histogram("wal_sync", "Time to make the log durable.", node.wal_sync)
    yield _histogram("wal_append", "Time of a write to the log, one in eight.", node.wal_append)
    yield _histogram(
        "request_turn",
        "From the first request of an event-loop turn to its replies leaving; about one turn in "
        "eight.",
        node.turn,
    )
    yield _call_latencies(node)
    yield _gauge("snapshot_lsn", "LSN of the last snapshot of this process.", node.snapshot_lsn)
    yield _gauge(
        "snapshot_pause_seconds",
        "Longest pause a snapshot made.",
        node.snapshot_pause_seconds,
        "seconds",
    )
    yield _gauge("rescue_files", "Files of records that a forced promotion cut.", node.rescue_files)
    yield _gauge(
        "rescue_tasks",
        "Tasks in such files that were not put again; a file that cannot be read counts as one.",
        node.rescue_tasks,
    )
    yield _gauge("memory_bytes", "Resident memory.", node.memory_bytes, "bytes")
    for name, bound in (("high", node.memory_high_bytes), ("max", node.memory_max_bytes)):
        text = f"memory.{name} in bytes; 0 for none."
        yield _gauge(f"memory_{name}_bytes", text, bound, "bytes")
    yield _gauge(
        "memory_state",
        "Memory: 0 below both bounds, 1 above memory.high, 2 above memory.max (puts are refused).",
        node.memory_state,
    )
    if node.data_free_bytes is not None:
        free = "Free on the disk of the data directory, for those who are not root."
        yield _gauge("data_free_bytes", free, node.data_free_bytes, "bytes")
    yield _gauge(
        "certificate_end_timestamp_seconds",
        "When a certificate ends that the node has or trusts, as Unix time, by the setting.",
        [({"setting": one.setting}, one.ends_s) for one in node.certificates],
        "seconds",
    )
    yield _gauge(
        "problems",
        "Things that wait for an operator; the node's status says which.",
        node.problems,
    )
    yield _counter(
        "audit_trail_lost_lines",
        "Lines of the audit trail that could not be written: the disk refused or was too slow.",
        node.trail_lost,
    )
    yield _gauge(
        "tubes",
        "Tubes by type.",
        [({"type": label(kind)}, count) for kind, count in node.tubes_by_type.items()],
    )
    yield _gauge("tubes_unreadable", "Tubes whose driver failed to count.", node.tubes_failed)


def _tube_families(tubes: list[TubeMetrics]) -> Iterator[Metric]:
    def one(tube: TubeMetrics, **labels: str) -> dict[str, str]:
        return {"tube": tube.name, **labels}

    yield _gauge(
        "tube_tasks",
        "Tasks by state.",
        [(one(tube, state=state), count) for tube in tubes for state, count in tube.tasks.items()],
    )
    yield _counter(
        "tube_calls",
        "Calls and events of tasks since the node started.",
        [(one(tube, call=call), count) for tube in tubes for call, count in tube.calls.items()],
    )
    yield _counter(
        "tube_tasks_done",
        "Tasks gone for good since the node started.",
        [(one(tube), tube.done) for tube in tubes],
    )
    yield _gauge(
        "tube_waiting_consumers",
        "Takes that wait for a task.",
        [(one(tube), tube.waiting_consumers) for tube in tubes],
    )
    yield _gauge(
        "tube_waiting_producers",
        "Puts that wait for room.",
        [(one(tube), tube.waiting_producers) for tube in tubes],
    )
    yield _gauge(
        "tube_paused",
        "1 while puts into the tube, or takes from it, are paused.",
        [
            (one(tube, what=what), paused)
            for tube in tubes
            for what, paused in (("puts", tube.paused_puts), ("takes", tube.paused_takes))
        ],
    )
    yield _gauge(
        "tube_dead_letters",
        "Tasks in a tube that takes the dead letters of others.",
        [(one(tube), tube.dead_letters) for tube in tubes if tube.dead_letters is not None],
    )
    yield _gauge(
        "tube_age_max_seconds",
        "How old a ready task may become, by the tube's own option age_max.",
        [(one(tube), tube.age_max_seconds) for tube in tubes if tube.age_max_seconds is not None],
        "seconds",
    )
    yield _gauge(
        "tube_oldest_ready_age_seconds",
        "Age of the oldest ready task, of drivers that keep when a task was made.",
        [
            (one(tube), tube.oldest_ready_seconds)
            for tube in tubes
            if tube.oldest_ready_seconds is not None
        ],
        "seconds",
    )


def _peer_families(node: NodeMetrics) -> Iterator[Metric]:
    peers = [({"peer": label(peer.name or peer.address)}, peer) for peer in node.peers]
    lags = [({**labels, "role": peer.role}, peer.lag) for labels, peer in peers]
    known = [(labels, lag) for labels, lag in lags if lag is not None]
    yield _gauge(
        "peer_connected",
        "1 while the link to the peer lives.",
        [(labels, peer.connected) for labels, peer in peers],
    )
    yield _gauge(
        "peer_heard_age_seconds",
        "Time since the peer was last heard.",
        [(labels, peer.heard_seconds) for labels, peer in peers if peer.heard_seconds is not None],
        "seconds",
    )
    yield _gauge(
        "peer_clock_offset_seconds",
        "The peer's clock minus ours.",
        [
            (labels, peer.clock_offset_seconds)
            for labels, peer in peers
            if peer.clock_offset_seconds is not None
        ],
        "seconds",
    )
    for name, unit in (("records", ""), ("bytes", "bytes"), ("seconds", "seconds")):
        yield _gauge(
            f"replication_lag_{name}",
            f"What one end of the link lacks of the other's log, in {name}.",
            [(labels, getattr(lag, name)) for labels, lag in known],
            unit,
        )
