"""kombu's exchanges over processes: bindings that others declared, queues left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

import tandemq.celery
from tandemq.client.errors import AccessDenied
from tandemq.exchanges import TUBE, Binding, Bindings
from tests.brokers.test_celery import wait_for

NEWS = kombu.Exchange("news", type="fanout")


@pytest.fixture
def processes(tandem: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[kombu.Connection]]:
    """Two connections that know of each other what the server tells them."""
    made = []
    for _ in range(2):
        connection = kombu.Connection(f"tandemq://{tandem.address}")
        connection.transport.state = kombu.transport.virtual.base.BrokerState()
        made.append(connection)
    yield made
    for connection in made:
        connection.release()


def drained(connection: kombu.Connection, queue: kombu.Queue) -> list[Any]:
    got: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda body, _m: got.append(body)], no_ack=True):
        while True:
            try:
                connection.drain_events(timeout=0.5)
            except TimeoutError:
                return got


def test_each_queue_of_a_fanout_gets_a_copy(processes: list[kombu.Connection]) -> None:
    here, there = processes
    queues = [kombu.Queue(name, NEWS) for name in ("one", "two")]
    for queue in queues:
        queue(here).declare()
    with there.Producer(exchange=NEWS) as producer:
        producer.publish("told", declare=[NEWS])
    assert [drained(here, queue) for queue in queues] == [["told"], ["told"]]


def test_a_reply_finds_the_queue_that_another_process_bound(
    processes: list[kombu.Connection],
) -> None:
    here, there = processes
    replies = kombu.Exchange("replies", type="direct", durable=False)
    topics = kombu.Exchange("topics", type="topic")
    mine = kombu.Queue("mine", replies, routing_key="ticket-1")
    some = kombu.Queue("some", topics, routing_key="worker.*")
    for queue in (mine, some):
        queue(here).declare()
    with there.Producer() as producer:
        producer.publish(1, exchange=replies, routing_key="ticket-1", declare=[replies])
        producer.publish(2, exchange=topics, routing_key="worker.up", declare=[topics])
        producer.publish(3, exchange=topics, routing_key="task.up", declare=[topics])
    assert drained(here, mine) == [1]
    assert drained(here, some) == [2]


def test_a_queue_ends_with_its_consumer(tandem: Any, processes: list[kombu.Connection]) -> None:
    here, there = processes
    passing = kombu.Queue("passing", NEWS, auto_delete=True)
    passing(here).declare()
    assert drained(here, passing) == []
    with tandem.connect_sync() as client:
        assert client.call("queue.tube", "passing") == [False]
    assert tandem.tasks(TUBE) == []
    with there.Producer(exchange=NEWS) as producer:
        producer.publish("nobody hears it", declare=[NEWS])


def test_what_a_killed_consumer_left_is_swept_away(tandem: Any) -> None:
    """By the next that binds anything, and not before it was silent for long."""
    with tandem.connect_sync() as client:
        dropped: list[str] = []

        def drop(queue: str) -> None:
            dropped.append(queue)
            living.forget(queue)

        dead, living = (Bindings(client.call, drop) for _ in range(2))
        dead.add(Binding("news", "", None, "dead", True, 5.0))
        living.add(Binding("news", "", None, "living", True, 5.0))
        living.add(Binding("news", "", None, "lasting"))
        tandem.advance(500)
        living.alive("living")
        living.add(Binding("news", "", None, "lasting2"))
        assert dropped == []
        tandem.advance(300)
        living.add(Binding("news", "", None, "lasting3"))
        assert dropped == ["dead"]
        left = ["lasting", "living", "lasting2", "lasting3"]
        assert [found.queue for found in living.of("news")] == left
        assert len(tandem.tasks(TUBE)) == 4


def test_remote_control_and_events(tandem: Any) -> None:
    """`celery inspect`, `celery control` and what Flower listens to."""
    app = Celery("test", broker=f"tandemq://{tandem.address}", set_as_current=False)
    app.conf.update(tandemq.celery.AFTER_THE_WORK, task_default_queue="jobs")
    app.conf.worker_send_task_events = True

    @app.task(name="done")
    def done() -> None:
        return

    seen: list[str] = []
    handlers = {"*": lambda event: seen.append(event["type"])}
    with start_worker(app, perform_ping_check=False, pool="solo"), app.connection() as made:
        events = app.events.Receiver(made, handlers=handlers)
        with events.consumer_context() as (connection, _channel, _consumers):
            wait_for(lambda: app.control.inspect(timeout=1).ping())
            assert app.control.rate_limit("done", "10/s", reply=True, timeout=2)
            done.delay()
            deadline = time.monotonic() + 15
            while "task-succeeded" not in seen:
                assert time.monotonic() < deadline
                connection.drain_events(timeout=5)
    assert "task-received" in seen
    app.close()


def test_a_user_who_may_not_read_the_bindings_knows_its_own() -> None:
    def refused(name: str, *_args: Any) -> list[Any]:
        raise AccessDenied(f"{name} access is denied", 42, name)

    bindings = Bindings(refused, lambda _queue: None)
    bindings.add(Binding("news", "", None, "one"))
    assert bindings.of("news") == []
    bindings.forget("one")
