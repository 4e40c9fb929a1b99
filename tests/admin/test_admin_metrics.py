"""Metrics: names, units, bounds, and that they say what the engine does."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as families

from tandemq_server.admin.prometheus import registry_of
from tandemq_server.engine import admin
from tandemq_server.node.loop.timing import MEASURE_EVERY, Turns
from tandemq_server.node.observe import metrics as m
from tandemq_server.node.observe.answers import Lag, RetryLater
from tests.admin.fake_backend import FakeBackend, running
from tests.admin.harness import api
from tests.node.harness import Bench, node

pytestmark = pytest.mark.asyncio

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families(text)
        for sample in family.samples
    }


def scrape(bench: Bench, sync: m.Latency | None = None, now_us: int | None = None) -> Samples:
    from prometheus_client import generate_latest

    core, now = bench.core, now_us or bench.shell.clock.now()
    registry = registry_of(lambda: m.read_node(core, bench.shell.wal, sync or m.Latency(), now))
    return samples(generate_latest(registry).decode())


async def test_what_the_engine_does_is_counted() -> None:
    async with node() as bench:
        wire = await bench.dial()
        for _ in range(3):
            await wire.call("queue.tube.fifottl:put", "x")
        await wire.call("queue.tube.fifottl:take", 0)
        await wire.call("queue.tube.fifottl:ack", 0)
        await wire.call("queue.tube.fifottl:take", 0)
        await wire.call("queue.tube.nowhere:take", 0)
        waiting = await bench.dial()
        waiting.send_call("queue.tube.fifo:take", 100)
        assert await waiting.ping()
        sync = m.Latency()
        sync.observe(0.003)
        now = bench.core.engine.now + 5_000_000
        found = scrape(bench, sync, now)

        def value(name: str, **labels: str) -> float:
            return found["tandemq_" + name, tuple(sorted(labels.items()))]

        assert value("tube_tasks", tube="fifottl", state="ready") == 1
        assert value("tube_tasks", tube="fifottl", state="taken") == 1
        assert value("tube_calls_total", tube="fifottl", call="put") == 3
        assert value("tube_calls_total", tube="fifottl", call="take") == 2
        assert value("tube_tasks_done_total", tube="fifottl") == 1
        assert value("tube_waiting_consumers", tube="fifo") == 1
        assert value("tube_oldest_ready_age_seconds", tube="fifottl") == pytest.approx(5, abs=0.5)
        assert value("tube_oldest_ready_age_seconds", tube="utubettl") == 0
        assert ("tandemq_tube_oldest_ready_age_seconds", (("tube", "fifo"),)) not in found
        assert value("connections") == 2
        assert value("sessions", kind="attached") == 1
        assert value("request_errors_total") == 1
        assert value("lsn") == bench.core.engine.lsn
        assert value("state", state="RUNNING") == 1
        assert value("state", state="WAITING") == 0
        assert value("wal_written_bytes_total") == bench.shell.wal.bytes_written > 0
        assert value("wal_sync_seconds_count") == 1
        assert value("wal_sync_seconds_bucket", le="0.005") == 1
        assert value("wal_sync_seconds_bucket", le="0.0025") == 0
        assert found["process_resident_memory_bytes", ()] > 1e6
        assert found["process_cpu_seconds_total", ()] > 0


async def test_every_answered_call_of_a_measured_turn_is_in_its_histogram() -> None:
    async with node() as bench:
        turns = bench.shell.turns = Turns(gap=lambda: 1)
        wire = await bench.dial()
        await wire.call("queue.identify")
        for number in range(4):
            await wire.call("queue.tube.fifo:put", number)
        await wire.call("queue.tube.fifo:take", 0)
        await wire.call("queue.tube.fifo:release", 0)
        for name in ("ack", "ack", "nonsense"):
            await wire.call(f"queue.tube.fifo:{name}", 0)
        for _ in range(5):
            wire.send_call("queue.tube.fifo:take", 0)
        wire.send_call("queue.tube.fifo:take", 60)
        assert [(await wire.receive())[1] for _ in range(5)] == [0] * 5
        found = {kind: sum(one.counts) for kind, one in turns.calls.items()}
        # What was refused and what still waits is nobody's latency.
        assert found == {"identify": 1, "put": 4, "take": 6, "release": 1}
        assert sum(turns.whole.counts) >= 10
        assert 0 < turns.calls["put"].sum <= turns.whole.sum


async def test_a_tube_dropped_and_made_anew_within_a_measured_turn() -> None:
    async with node() as bench:
        bench.shell.turns = Turns(gap=lambda: 1)
        wire = await bench.dial()
        for name, *args in (
            ("queue.tube.fifo:put", "old"),
            ("queue.tube.fifo:put", "old"),
            ("queue.tube.fifo:drop",),
            ("queue.tube.fifo:put", "nowhere"),
            ("queue.create_tube", "fifo", "fifottl"),
            ("queue.tube.fifo:put", "new", {"pri": 1}),
        ):
            wire.send_call(name, *args)
        answers = [await wire.receive() for _ in range(6)]
        assert [code for _, code, _ in answers] == [0, 0, 0, 33, 0, 0]
        assert answers[-1][2][0x30] == [[0, "r", "new"]]
        assert sum(bench.shell.turns.calls["put"].counts) == 3


async def test_most_turns_are_not_measured_and_the_table_of_calls_comes_back() -> None:
    gaps = iter((3, 2, 1000))
    async with node() as bench:
        turns = bench.shell.turns = Turns(gap=lambda: next(gaps))
        wire = await bench.dial()
        (connection,) = bench.core.connections.values()
        for number in range(8):
            await wire.call("queue.tube.fifo:put", number)
            assert connection.calls is bench.core.table_of(connection)
        assert sum(turns.calls["put"].counts) == sum(turns.whole.counts) == 2
    assert {Turns()._until for _ in range(500)} == set(range(1, 2 * MEASURE_EVERY))


async def test_tubes_beyond_the_limit_are_one() -> None:
    async with node() as bench:
        engine = bench.core.engine
        for number in range(7):
            admin.create_tube(engine, f"t{number}", "fifo", {})
        admin.create_tube(engine, m.OTHER, "fifo", {})
        for tube in engine.tubes.values():
            tube.calls["put"] = 1
        found, failed = m.read_tubes(engine.tubes.values(), engine.now, tubes_max=8)
        assert failed == 0
        assert [tube.name for tube in found][:5] == list(engine.tubes)[:5]
        assert found[-1].name == m.OTHER
        assert len(found) == 9
        assert found[-1].calls["put"] == 5
        assert sum(tube.calls["put"] for tube in found) == len(engine.tubes)
        # A tube that is called like the rest is one of them.
        found, _ = m.read_tubes([engine.tubes[m.OTHER], engine.tubes["t6"]], 0, tubes_max=1)
        assert len({tube.name for tube in found}) == len(found)


async def test_names_nobody_could_print_are_labels_all_the_same() -> None:
    async with node() as bench:
        engine = bench.core.engine
        for name in ("x" * 500, "x" * 501, 'quo"te', "back\\slash"):
            admin.create_tube(engine, name, "fifo", {})
        text_labels = {dict(labels).get("tube", "") for _, labels in scrape(bench)}
        assert max(map(len, text_labels)) == m.LABEL_MAX
        assert {'quo"te', "back\\slash"} <= text_labels
    assert m.label("a\udcffb") == "a\\udcffb"


async def test_a_driver_that_fails_to_count_spoils_only_its_own_tube() -> None:
    async with node() as bench:

        def broken() -> dict[str, int]:
            raise RuntimeError("no counting today")

        bench.core.engine.tubes["fifo"].driver.counts = broken  # type: ignore[method-assign]
        found = scrape(bench)
        assert found["tandemq_tubes_unreadable", ()] == 1
        assert ("tandemq_tube_tasks", (("state", "ready"), ("tube", "fifo"))) not in found
        assert ("tandemq_tube_tasks", (("state", "ready"), ("tube", "utube"))) in found


async def test_the_oldest_ready_task_behind_many_that_are_not() -> None:
    async with node() as bench:
        wire = await bench.dial()
        for _ in range(4):
            await wire.call("queue.tube.fifottl:put", "x")
        for task in range(3):
            await wire.call("queue.tube.fifottl:bury", task)
        tube = bench.core.engine.tubes["fifottl"]
        now = tube.space.rows[3][6] + 2_000_000
        assert m.oldest_ready(tube, now, 100) == (2.0, 4)
        assert m.oldest_ready(tube, now, 2) == (2.0, 2)
        await wire.call("queue.tube.fifottl:bury", 3)
        assert m.oldest_ready(tube, now, 100) == (0.0, 4)
        assert m.oldest_ready(tube, now, 2) == (None, 2)


async def test_peers_transitions_and_the_served_page() -> None:
    status = running()
    peer = replace(status.peers[0], lag=Lag(5, 500, 0.5))
    backend = FakeBackend(replace(status, peers=(peer,)))
    plain = backend.metrics()
    plain.transitions = {("STARTUP", "RUNNING"): (2, 0.25)}
    plain.calls = {"put": m.Latency((0.1, 1.0)), "take": m.Latency((0.1, 1.0))}
    plain.calls["put"].observe(0.5, 3)
    backend.metrics = lambda: plain  # type: ignore[method-assign]
    async with api(backend) as node_api:
        status_code, text, headers = await node_api.ask("GET", "/metrics")
        assert status_code == 200
        assert headers["Content-Type"].startswith("text/plain")
        found = samples(text)
        link = (("peer", "b"), ("role", "downstream"))
        assert found["tandemq_replication_lag_records", link] == 5
        assert found["tandemq_replication_lag_bytes", link] == 500
        assert found["tandemq_replication_lag_seconds", link] == 0.5
        assert found["tandemq_peer_connected", (("peer", "b"),)] == 1
        assert found["tandemq_call_seconds_bucket", (("call", "put"), ("le", "0.1"))] == 0
        assert found["tandemq_call_seconds_bucket", (("call", "put"), ("le", "1.0"))] == 3
        assert found["tandemq_call_seconds_sum", (("call", "put"),)] == pytest.approx(1.5)
        assert found["tandemq_call_seconds_count", (("call", "take"),)] == 0
        way = (("from", "STARTUP"), ("to", "RUNNING"))
        assert found["tandemq_state_transitions_total", way] == 2
        assert found["tandemq_state_transition_seconds_total", way] == 0.25
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with node_api.session.get(node_api.url + "/metrics", headers=accept) as response:
            assert response.content_type == "application/openmetrics-text"
            assert list(openmetrics(await response.text()))


async def test_names_units_and_help_by_convention() -> None:
    async with api() as node_api:
        _, text, _ = await node_api.ask("GET", "/metrics")
        for family in families(text):
            if not family.name.startswith("tandemq_"):
                assert family.name.startswith("process_")
                continue
            assert re.fullmatch(r"tandemq_[a-z_]+", family.name)
            assert family.documentation.endswith("."), family.name
            assert not re.search(r"_(ms|us|kb|mb|minutes)(_|$)", family.name)
            for sample in family.samples:
                assert set(sample.labels) <= {
                    *("tube", "state", "call", "kind", "type", "peer", "role", "from", "to"),
                    *("le", "name", "node_id", "cluster_id", "version", "what"),
                }


async def test_registering_reads_nothing_and_a_latency_costs_one_bucket() -> None:
    def unready() -> m.NodeMetrics:
        raise RetryLater("not yet")

    registry_of(unready)
    latency = m.Latency((0.1, 1.0))
    for seconds in (0.1, 0.1000001, 5.0):
        latency.observe(seconds)
    assert latency.buckets() == [("0.1", 1), ("1.0", 2), ("+Inf", 3)]
    assert latency.sum == pytest.approx(5.2000001)
    await asyncio.sleep(0)
