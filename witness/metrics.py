"""What the witness counts, in Prometheus's format. Names are promises to dashboards and alerts."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tandemq_server.config.certificates import CertificateEnd
from tandemq_server.witness.register import Registers

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Counters of one witness, and what its registers hold when they are asked."""

    def __init__(
        self, registers: Registers, living: Living, certificates: tuple[CertificateEnd, ...]
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.swaps = Counter(
            "tandemq_witness_swaps",
            "Swaps by outcome: made, lost (the register had moved on), refused.",
            ["outcome"],
            registry=self.registry,
        )
        self.requests = Counter(
            "tandemq_witness_requests",
            "Requests by call and status.",
            ["call", "status"],
            registry=self.registry,
        )
        self.swap_seconds = Histogram(
            "tandemq_witness_swap_seconds",
            "How long a swap took, its sync included.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        for outcome in ("made", "lost", "refused"):
            self.swaps.labels(outcome)
        self.registry.register(_Held(registers, living, certificates))
        ProcessCollector(registry=self.registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) in the format that `accept` asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class Living:
    """How many nodes of a cluster live, and how long the witness itself slept, in seconds."""

    def count(self, cluster: str) -> int:
        raise NotImplementedError

    def slept_s(self) -> float:
        raise NotImplementedError


class _Held(Collector):
    def __init__(
        self, registers: Registers, living: Living, certificates: tuple[CertificateEnd, ...]
    ) -> None:
        self._registers = registers
        self._living = living
        self._certificates = certificates

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        registers = self._registers
        numbers = GaugeMetricFamily(
            "tandemq_witness_seat_number", "Number of the seat, by cluster.", labels=["cluster"]
        )
        alone = GaugeMetricFamily(
            "tandemq_witness_seat_alone",
            "1 while no node may be promoted, by cluster.",
            labels=["cluster"],
        )
        nodes = GaugeMetricFamily(
            "tandemq_witness_nodes_alive", "Nodes whose key lives, by cluster.", labels=["cluster"]
        )
        for cluster, held in registers.clusters.items():
            if held.reading.seat is not None:
                numbers.add_metric([cluster], held.reading.seat.no)
                alone.add_metric([cluster], float(held.reading.seat.partner is None))
            nodes.add_metric([cluster], self._living.count(cluster))
        yield numbers
        yield alone
        yield nodes
        # Named as a node's, so that one alert watches both.
        ends = GaugeMetricFamily(
            "tandemq_certificate_end_timestamp_seconds",
            "When the witness's certificate ends, as Unix time, by the setting.",
            labels=["setting"],
        )
        for one in self._certificates:
            ends.add_metric([one.setting], one.ends_s)
        yield ends
        yield GaugeMetricFamily(
            "tandemq_witness_log_bytes", "Size of the register's file.", registers.size
        )
        yield GaugeMetricFamily(
            "tandemq_witness_slept_seconds",
            "How long the process itself was kept from running since it started.",
            self._living.slept_s(),
        )
