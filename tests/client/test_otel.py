"""tandemq.otel with the real OpenTelemetry SDK and its exporters in memory, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tandemq
from tandemq import otel
from tandemq.client.worker import work
from tests.cluster.cluster_nodes import Member, free_ports

pytestmark = [pytest.mark.integration]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    ports = free_ports(2)
    member = Member(tmp_path_factory.mktemp("node"), "a", ports[0], ports[1], [])
    member.start("--ttr", "30")
    yield member
    member.end()


class Told:
    """What was exported."""

    def __init__(self, links: bool = False) -> None:
        self.links = links
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        otel.instrument(tracers, MeterProvider([self.reader]), links=links)

    def spans(self, kind: trace.SpanKind) -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if one.kind is kind]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def told(request: pytest.FixtureRequest) -> Iterator[Told]:
    yield Told(links=getattr(request, "param", False))
    otel.uninstrument()


PRODUCER, CONSUMER = trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER


@pytest.mark.asyncio
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_worker_goes_on_with_the_producers_trace(
    node: Member, told: Told, threaded: bool
) -> None:
    seen: list[trace.SpanContext] = []
    stop = asyncio.Event()

    def note(task: Any) -> None:
        seen.append(trace.get_current_span().get_span_context())
        if len(seen) == 3:
            stop.set()

    async def handle(task: tandemq.Task) -> None:
        note(task)

    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube(f"jobs{threaded}", "fifottl")
        number = await tube.put("one")
        await tube.put_many(iter(["two", "three"]))
        loop = asyncio.get_running_loop()

        def plain(task: Any) -> None:
            loop.call_soon_threadsafe(asyncio.ensure_future, asyncio.sleep(0))
            note(task)

        async with asyncio.timeout(60):
            await asyncio.gather(work(tube, plain if threaded else handle, 1, stop), _over(stop))
    put, many = told.spans(PRODUCER)
    assert (put.name, many.name) == (f"put {tube.name}", f"put_many {tube.name}")
    assert put.attributes is not None
    assert many.attributes is not None
    assert put.attributes["messaging.system"] == "tandemq"
    assert put.attributes["messaging.destination.name"] == tube.name
    assert put.attributes["messaging.operation.type"] == "send"
    assert put.attributes["messaging.message.id"] == str(number)
    assert put.attributes["server.port"] == node.port
    assert many.attributes["messaging.batch.message_count"] == 2
    worked = told.spans(CONSUMER)
    assert [one.name for one in worked] == [f"process {tube.name}"] * 3
    parents = [one.parent.span_id for one in worked if one.parent is not None]
    assert put.context is not None
    assert many.context is not None
    assert parents == [put.context.span_id, many.context.span_id, many.context.span_id]
    assert [one.span_id for one in seen] == [one.context.span_id for one in worked if one.context]
    (waited,) = told.points("tandemq.queue.wait")
    assert waited.count == 3
    assert 0 <= waited.min <= waited.max < 60
    assert sum(one.value for one in told.points("messaging.client.sent.messages")) == 3
    assert sum(one.value for one in told.points("messaging.client.consumed.messages")) == 3
    assert sum(one.count for one in told.points("messaging.process.duration")) == 3
    assert sum(one.count for one in told.points("messaging.client.operation.duration")) == 2


async def _over(stop: asyncio.Event) -> None:
    while not stop.is_set():  # a thread sets it, which wakes nobody
        await asyncio.sleep(0.05)


@pytest.mark.asyncio
@pytest.mark.parametrize("told", [True], indirect=True)
async def test_links_and_failures(node: Member, told: Told) -> None:
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube("links", "fifottl", max_attempts=1)
        await tube.put("one", headers={"mine": "x"})
        await tube.put("two")
        for data in ("one", "two"):
            task = await tube.take(5)
            assert task is not None
            assert task.data == data
            with pytest.raises(ZeroDivisionError):
                async with task:
                    1 / 0  # noqa: B018
        with pytest.raises(tandemq.TubeMissing):
            await client.tube("nobody").put("x")
    put, bare, refused = (told.spans(PRODUCER)[at] for at in (1, 0, 2))
    own, linked = told.spans(CONSUMER)
    assert own.parent is None
    assert linked.parent is None
    assert not own.links, "its producer sent headers of its own"
    assert put.context is not None
    assert bare.name == put.name
    assert [one.context.span_id for one in linked.links] == [put.context.span_id]
    for span, kind in ((linked, "ZeroDivisionError"), (refused, "TubeMissing")):
        assert span.attributes is not None
        assert span.attributes["error.type"] == kind
        assert span.status.status_code is trace.StatusCode.ERROR
        assert any(one.name == "exception" for one in span.events)
    errors = [one.attributes.get("error.type") for one in told.points("messaging.process.duration")]
    assert errors == ["ZeroDivisionError"]


@pytest.mark.asyncio
@pytest.mark.parametrize("told", [False, True], indirect=True, ids=["parents", "links"])
async def test_what_was_put_together_and_what_follows_a_task(node: Member, told: Told) -> None:
    """Tasks of one put_many, and those of a finish, go on from the span that sent them."""
    name = f"together-{told.links}"
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube(name, "fifottl")
        await client.create_tube(f"{name}-next", "fifottl")
        await tube.put_many(["one", "two"])
        for followers in ([(f"{name}-next", "a"), (f"{name}-next", "b", {"pri": 1})], []):
            task = await tube.take(5)
            assert task is not None
            async with task:
                await task.finish(followers)
        for _ in range(2):
            task = await client.tube(f"{name}-next").take(5)
            assert task is not None
            async with task:
                pass
    many, finish = told.spans(PRODUCER)
    assert (many.name, finish.name) == (f"put_many {name}", f"finish {name}-next")
    assert finish.attributes is not None
    assert finish.attributes["messaging.batch.message_count"] == 2
    assert finish.attributes["messaging.destination.name"] == f"{name}-next"
    one, two, a, b = told.spans(CONSUMER)
    assert finish.parent is not None
    assert finish.parent.span_id == one.context.span_id

    def comes_from(span: ReadableSpan) -> list[int]:
        if told.links:
            assert span.parent is None
            return [link.context.span_id for link in span.links]
        assert not span.links
        return [] if span.parent is None else [span.parent.span_id]

    assert comes_from(one) == comes_from(two) == [many.context.span_id]
    assert comes_from(a) == comes_from(b) == [finish.context.span_id]
    assert sum(one.value for one in told.points("messaging.client.sent.messages")) == 4
    assert sum(point.count for point in told.points("tandemq.queue.wait")) == 4


def test_the_client_without_a_loop(node: Member, told: Told) -> None:
    tracer = trace.get_tracer("tests", tracer_provider=TracerProvider())
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        tube = client.create_tube("sync", "fifottl")
        with tracer.start_as_current_span("request") as span:
            tube.put("one", delay=0.2)
            here = span.get_span_context()
        task = tube.take(30)
        assert task is not None
        before = trace.get_current_span()
        with task:
            inside = trace.get_current_span().get_span_context()
        assert trace.get_current_span() is before
    (put,), (worked,) = told.spans(PRODUCER), told.spans(CONSUMER)
    assert put.parent is not None
    assert put.parent.span_id == here.span_id
    assert worked.context is not None
    assert worked.context.span_id == inside.span_id
    assert worked.context.trace_id == here.trace_id
    (waited,) = told.points("tandemq.queue.wait")
    assert waited.count == 1


@pytest.mark.asyncio
async def test_baggage_that_fills_the_headers_makes_no_put_fail(node: Member, told: Told) -> None:
    full = context.get_current()
    for number in range(60):
        full = baggage.set_baggage(f"key{number}", "x" * 60, full)
    token = context.attach(full)
    try:
        async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
            tube = await client.create_tube("baggage", "fifottl")
            await tube.put("one")
            task = await tube.take(5)
    finally:
        context.detach(token)
    assert task is not None
    assert "traceparent" in task.headers


def test_twice_is_refused_and_taken_back_is_as_before(told: Told) -> None:
    with pytest.raises(RuntimeError, match="instrumented already"):
        otel.instrument()
    otel.uninstrument()
    for kind, name in otel._METHODS:
        assert not hasattr(getattr(kind, name), "__wrapped__")
