"""OpenTelemetry for the client and its workers, by the conventions for messaging systems.

    from tandemq import otel
    otel.instrument()      # once, where the program sets up its providers; extra `tandemq[otel]`

A put makes a producer span, whose context goes along in the task's headers; work on a task is a
consumer span, its child or, with `links=True`, a trace of its own that links to it. Metrics:
how many tasks were sent and worked on, how long that took, how long a task waited for its first
worker. Must not be here: exporters and providers, which are the program's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import metrics, trace

from tandemq.client.sync import SyncTask
from tandemq.client.task import Task
from tandemq.client.tracing import fitting, traced
from tandemq.client.tube import Tube

SYSTEM, NAME = "tandemq", "tandemq.otel"
#: When a task was to be begun at the earliest, in microseconds since 1970 by the producer's clock.
DUE_HEADER = "tandemq-due"
_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_WAITS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 3600, 21600, 86400)
_METHODS: tuple[tuple[type, str], ...] = (
    *((Tube, "put"), (Tube, "put_many"), (Task, "finish")),
    *((Task, "enter"), (Task, "__aexit__")),
    *((SyncTask, "__enter__"), (SyncTask, "__exit__")),
)
_stock: dict[tuple[type, str], Any] = {}


def instrument(
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    *,
    links: bool = False,
) -> None:
    """Trace and count all clients of this process from now on; the global providers unless given.

    links: consumer spans begin traces of their own and link to the producer's, instead of being
    its children. Raises RuntimeError when that was done before.
    """
    if _stock:
        raise RuntimeError("the client is instrumented already")
    told = _Told(tracer_provider, meter_provider, links)
    _stock.update({(kind, name): getattr(kind, name) for kind, name in _METHODS})
    put, put_many, finish, enter, leave, enter_sync, leave_sync = _stock.values()
    for (kind, name), method in zip(
        _METHODS,
        (
            told.sending(put, lambda _data: 1),
            told.sending(put_many, len),
            told.finishing(finish),
            told.entering(enter),
            told.leaving(leave),
            _entering(enter_sync),
            _leaving(leave_sync),
        ),
        strict=True,
    ):
        setattr(kind, name, method)


def uninstrument() -> None:
    """As before `instrument`; tasks in hand are told of no more."""
    for (kind, name), method in _stock.items():
        setattr(kind, name, method)
    _stock.clear()


class _Told:
    """Spans and instruments of one `instrument`."""

    def __init__(
        self,
        tracers: trace.TracerProvider | None,
        meters: metrics.MeterProvider | None,
        links: bool,
    ) -> None:
        self.links = links
        self.tracer = trace.get_tracer(NAME, tracer_provider=tracers)
        meter = metrics.get_meter(NAME, meter_provider=meters)
        self.sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Tasks put, or tried to."
        )
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Tasks given to this process."
        )
        self.operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long a put took.",
            explicit_bucket_boundaries_advisory=_DURATIONS,
        )
        self.process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long a task was worked on.",
            explicit_bucket_boundaries_advisory=_DURATIONS,
        )
        self.wait = meter.create_histogram(
            "tandemq.queue.wait",
            "s",
            "From when a task could be begun (put, and its delay) to its first worker.",
            explicit_bucket_boundaries_advisory=_WAITS,
        )

    def sending(
        self, method: Callable[..., Awaitable[Any]], count: Callable[[Any], int]
    ) -> Callable[..., Awaitable[Any]]:
        """A put in a producer span; what it raises is recorded, and goes on."""

        @wraps(method)
        async def put(tube: Tube, data: Any, **options: Any) -> Any:
            if method.__name__ == "put_many":
                data = list(data)
            about = _about(tube, "send", method.__name__)
            number = count(data)
            began = time.perf_counter()
            with self.tracer.start_as_current_span(
                f"{method.__name__} {tube.name}",
                kind=trace.SpanKind.PRODUCER,
                attributes=about
                | ({"messaging.batch.message_count": number} if number != 1 else {}),
            ) as span:
                try:
                    answer = await method(tube, data, **_with_headers(options))
                except BaseException as error:
                    about["error.type"] = type(error).__name__
                    span.set_attribute("error.type", type(error).__name__)
                    raise
                finally:
                    self.sent.add(number, about)
                    self.operation.record(time.perf_counter() - began, about)
                if isinstance(answer, int):
                    span.set_attribute("messaging.message.id", str(answer))
                return answer

        return put

    def finishing(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """What follows a task is sent in one producer span, a child of the work on it."""

        @wraps(method)
        async def finish(task: Task, puts: Iterable[tuple[Any, ...]]) -> Any:
            rows = [tuple(one) for one in puts]
            if not rows:
                return await method(task, rows)
            tubes = Counter(str(name) for name, *_ in rows)
            abouts = {name: _about(task.tube, "send", "finish", name) for name in tubes}
            with self.tracer.start_as_current_span(
                f"finish {' '.join(tubes)}",
                kind=trace.SpanKind.PRODUCER,
                attributes=abouts[next(iter(tubes))] | {"messaging.batch.message_count": len(rows)},
            ) as span:
                error = {}
                try:
                    return await method(task, [_with_header_row(one) for one in rows])
                except BaseException as failure:
                    error = {"error.type": type(failure).__name__}
                    span.set_attributes(error)
                    raise
                finally:
                    for name, number in tubes.items():
                        self.sent.add(number, abouts[name] | error)

        return finish

    def entering(self, method: Callable[..., Awaitable[Task]]) -> Callable[..., Awaitable[Task]]:
        """The block of a task is its consumer span, current for what runs in it."""

        @wraps(method)
        async def enter(task: Task, block: Any) -> Task:
            about = _about(task.tube, "process", "process")
            sender = trace.get_current_span(task.trace_context or contexts.Context())
            where = sender.get_span_context()
            linked = [trace.Link(where)] if self.links and where.is_valid else []
            span = self.tracer.start_span(
                f"process {task.tube.name}",
                context=contexts.Context() if self.links else task.trace_context,
                kind=trace.SpanKind.CONSUMER,
                links=linked,
                attributes={
                    **about,
                    "messaging.message.id": str(task.id),
                    "tandemq.task.attempt": task.attempt,
                },
            )
            self.consumed.add(1, about)
            if task.attempt == 1 and (waited := _waited(task)) is not None:
                self.wait.record(waited, about)
            # A block of another thread has its context there.
            token = contexts.attach(trace.set_span_in_context(span)) if block else None
            _spans[task] = span, token, time.perf_counter()
            return await method(task, block)

        return enter

    def leaving(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The end of the block, acked or given back; what became of it is in the span."""

        @wraps(method)
        async def leave(
            task: Task,
            kind: type[BaseException] | None,
            error: BaseException | None,
            where: TracebackType | None,
        ) -> Any:
            begun = _spans.pop(task, None)
            if begun is None:
                return await method(task, kind, error, where)
            span, token, since = begun
            raised: BaseException | None = error
            try:
                return await method(task, kind, error, where)
            except BaseException as failure:
                raised = failure
                raise
            finally:
                about = _about(task.tube, "process", "process")
                if raised is not None:
                    about["error.type"] = type(raised).__name__
                    span.set_attribute("error.type", type(raised).__name__)
                    span.record_exception(raised)
                    span.set_status(trace.StatusCode.ERROR, task.next_try or str(raised))
                self.process.record(time.perf_counter() - since, about)
                if token is not None:
                    contexts.detach(token)
                span.end()

        return leave


def _entering(method: Callable[..., SyncTask]) -> Callable[..., SyncTask]:
    """The block of a thread: the span is current there, too."""

    @wraps(method)
    def enter(task: SyncTask) -> SyncTask:
        method(task)
        begun = _spans.get(task.task)
        if begun is not None:
            _tokens[task.task] = contexts.attach(trace.set_span_in_context(begun[0]))
        return task

    return enter


def _leaving(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def leave(task: SyncTask, *about: Any) -> None:
        token = _tokens.pop(task.task, None)
        if token is not None:
            contexts.detach(token)
        method(task, *about)

    return leave


#: What contexts of threads replaced.
_tokens: dict[Task, Any] = {}
#: Tasks in hand: their span, what its context replaced, when that was.
_spans: dict[Task, tuple[trace.Span, Any, float]] = {}


def _about(tube: Tube, kind: str, name: str, to: str | None = None) -> dict[str, Any]:
    """What spans and metrics have in common; `to`: another tube than the one at hand."""
    host, _, port = tube.link.node.rpartition(":")
    found: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.destination.name": to or tube.name,
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
    }
    return found | ({"server.address": host, "server.port": int(port)} if host else {})


def _with_headers(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the trace's headers and when the task is due, unless they name headers."""
    if "headers" in options:
        return options
    found = traced(options)
    due = time.time() + float(options.get("delay") or 0.0)
    headers = {**found.get("headers", {}), DUE_HEADER: f"{due * 1e6:.0f}"}
    return {**found, "headers": fitting(headers)}


def _with_header_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A put of `finish`, `(tube, data)` or `(tube, data, options)`, likewise."""
    options = row[2] if len(row) > 2 and row[2] else {}
    return (*row[:2], _with_headers(dict(options)))


def _waited(task: Task) -> float | None:
    """Seconds since the task was due; None where its producer said nothing of it."""
    due = task.headers.get(DUE_HEADER, "")
    return max(0.0, time.time() - int(due) / 1e6) if due.isdecimal() else None
