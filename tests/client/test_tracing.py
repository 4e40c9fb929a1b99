"""Trace context with the real OpenTelemetry SDK: from a producer's span to its worker's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider

import tandemq
from tandemq.client import tracing
from tests.cluster.cluster_nodes import Member, free_ports

pytestmark = [pytest.mark.integration]
tracer = TracerProvider().get_tracer("tests")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    ports = free_ports(2)
    member = Member(tmp_path_factory.mktemp("node"), "a", ports[0], ports[1], [])
    member.start("--ttr", "30")
    yield member
    member.end()


def parent_of(task: tandemq.Task) -> tuple[int, int]:
    """(trace id, parent's span id) of a span that a worker begins for a task."""
    with tracer.start_as_current_span("work", context=task.trace_context) as span:
        assert span.parent is not None
        return span.get_span_context().trace_id, span.parent.span_id


@pytest.mark.asyncio
async def test_the_workers_span_is_the_producers_child(node: Member) -> None:
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube("traced", "fifo")
        with tracer.start_as_current_span("produce") as span:
            here = span.get_span_context()
            await tube.put("one")
            await tube.put_many(["two", "three"])
        first = await tube.take(1)
        assert first is not None
        assert parent_of(first) == (here.trace_id, here.span_id)
        for task in await tube.take_many(2):
            assert parent_of(task) == (here.trace_id, here.span_id)
            await task.release()
        # What a worker puts belongs to the worker's span, also when putting is part of its ack.
        with tracer.start_as_current_span("work", context=first.trace_context) as worker:
            await first.finish([("traced", "next"), ("traced", "bare", {"headers": {}})])
        tasks = {task.data: task for task in await tube.take_many(10)}
        assert parent_of(tasks["next"]) == (here.trace_id, worker.get_span_context().span_id)
        assert tasks["bare"].headers == {}
        assert tasks["bare"].trace_context is None


@pytest.mark.asyncio
async def test_no_span_no_headers_and_ones_own_go_first(node: Member) -> None:
    async with tandemq.connect(f"127.0.0.1:{node.port}") as client:
        tube = await client.create_tube("plain", "fifo")
        await tube.put("none")
        with tracer.start_as_current_span("produce"):
            await tube.put("own", headers={"tenant": "a"})
            # Baggage beyond what a task may carry must not make the put fail.
            attached = context.attach(baggage.set_baggage("big", "x" * 8000))
            try:
                await tube.put("heavy")
            finally:
                context.detach(attached)
            with pytest.raises(tandemq.Refused, match="Invalid header traceparent"):
                await tube.put("wrong", headers={"traceparent": "nonsense"})
        none, own, heavy = await tube.take_many(5)
        assert none.headers == {}
        assert own.headers == {"tenant": "a"}
        assert set(heavy.headers) == {"traceparent"}


def test_the_synchronous_face_sends_the_callers_context(node: Member) -> None:
    with tandemq.connect_sync(f"127.0.0.1:{node.port}") as client:
        tube = client.create_tube("sync", "fifo")
        with tracer.start_as_current_span("produce") as span:
            tube.put("one")
        task = tube.take(1)
        assert task is not None
        assert f"{span.get_span_context().trace_id:032x}" in task.headers["traceparent"]
        assert parent_of(task.task)[1] == span.get_span_context().span_id


def test_without_the_library_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "propagate", None)
    with tracer.start_as_current_span("produce"):
        assert tracing.traced({"pri": 1}) == {"pri": 1}
    assert tracing.context_of({"traceparent": "x"}) is None
