"""kombu's connection and Celery's worker over the transport."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

import tandemq.celery


@pytest.fixture
def connection(tandem: Any) -> Iterator[kombu.Connection]:
    with kombu.Connection(f"tandemq://{tandem.address}") as made:
        yield made


@pytest.fixture
def app(tandem: Any) -> Iterator[Celery]:
    made = Celery("test", broker=f"tandemq://{tandem.address}", set_as_current=False)
    made.conf.update(tandemq.celery.AFTER_THE_WORK, task_default_queue="jobs")
    yield made
    made.close()


def states(tandem: Any, tube: str) -> list[str]:
    return [state for _id, state, _data in tandem.tasks(tube)]


def wait_for(what: Any) -> None:
    deadline = time.monotonic() + 15
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_simple_queue(tandem: Any, connection: kombu.Connection) -> None:
    queue = connection.SimpleQueue("plain")
    for data in ("a", {"b": [1, None]}, b"\x00\xff"):
        queue.put(data)
    assert queue.qsize() == 3
    first = queue.get(timeout=2)
    assert first.payload == "a"
    first.ack()
    assert len(states(tandem, "plain")) == 2
    second = queue.get(timeout=2)
    second.requeue()
    # What was fetched ahead comes before what was put back.
    third, again = queue.get(timeout=2), queue.get(timeout=2)
    assert (third.payload, again.payload) == (b"\x00\xff", {"b": [1, None]})
    third.reject()
    assert sorted(states(tandem, "plain")) == ["!", "t"]  # rejected for good; the one got again
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.05)
    queue.clear()
    queue.close()
    assert states(tandem, "plain") == []


def test_what_is_in_hand_is_given_back(tandem: Any) -> None:
    with kombu.Connection(f"tandemq://{tandem.address}") as connection:
        queue = connection.SimpleQueue("left")
        queue.put("x")
        queue.get(timeout=2)
        assert states(tandem, "left") == ["t"]
    assert states(tandem, "left") == ["r"]


def test_prefetch(tandem: Any, connection: kombu.Connection) -> None:
    """No more is taken than the consumer has asked for."""
    queue = kombu.Queue("many", routing_key="many")
    with connection.Producer() as producer:
        for number in range(10):
            producer.publish(number, routing_key="many", declare=[queue])
    got: list[Any] = []
    with connection.Consumer(queue, callbacks=[lambda _b, m: got.append(m)], prefetch_count=3):
        while len(got) < 3:
            connection.drain_events(timeout=5)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.5)
        assert states(tandem, "many").count("t") == 3
        got[0].ack()
        connection.drain_events(timeout=5)
    assert [message.payload for message in got] == [0, 1, 2, 3]


def test_eta_priority_key_and_expiry(tandem: Any, app: Celery) -> None:
    """An eta waits at the server, not in a worker."""

    @app.task(name="note")
    def note(_text: str) -> None:
        return

    note.apply_async(("low",), priority=1)
    note.apply_async(("high",), priority=9)
    note.apply_async(("later",), countdown=3600)
    note.apply_async(("then",), eta=datetime.now(UTC) + timedelta(hours=2))
    note.apply_async(("gone",), expires=60)
    for _ in range(2):
        note.apply_async(("once",), headers={tandemq.celery.KEY: "order-1"}, priority=5)
    assert states(tandem, "jobs") == ["r", "r", "~", "~", "r", "r"]
    tandem.advance(61)
    assert states(tandem, "jobs") == ["r", "r", "~", "~", "r"]
    with app.connection() as connection:
        queue = connection.SimpleQueue("jobs")
        first = [queue.get(timeout=2) for _ in range(3)]
        assert [message.payload[0][0] for message in first] == ["high", "once", "low"]
        for message in first:
            message.ack()
        wait_for(lambda: states(tandem, "jobs") == ["~", "~"])
        tandem.advance(3600)
        assert queue.get(timeout=2).payload[0] == ["later"]


def test_a_worker(tandem: Any, app: Celery) -> None:
    """Acknowledged after the work; a retry waits at the server; a task sends another one."""
    done: list[str] = []

    @app.task(name="second")
    def second() -> None:
        done.append("second")

    @app.task(name="first", bind=True, max_retries=2)
    def first(self: Any) -> None:
        done.append(",".join(states(tandem, "jobs")))
        if len(done) == 1:
            raise self.retry(countdown=0.1)
        second.delay()

    with start_worker(app, perform_ping_check=False, pool="solo"):
        first.delay()
        wait_for(lambda: "second" in done)
        wait_for(lambda: states(tandem, "jobs") == [])
    assert done == ["t", "t", "second"]


def test_no_node(unused_tcp_port: int) -> None:
    connection = kombu.Connection(f"tandemq://127.0.0.1:{unused_tcp_port}", connect_timeout=0.3)
    with pytest.raises(kombu.exceptions.OperationalError, match="no writable node"):
        connection.ensure_connection(max_retries=1, interval_start=0.1)
    connection.release()


def test_several_nodes(tandem: Any, unused_tcp_port: int) -> None:
    """All URLs are nodes of one cluster: whichever serves is found."""
    urls = f"tandemq://127.0.0.1:{unused_tcp_port};tandemq://{tandem.address}"
    with kombu.Connection(urls) as connection:
        queue = connection.SimpleQueue("x")
        queue.put("here")
        assert queue.get(timeout=2).payload == "here"


def test_a_node_that_ends_while_a_worker_waits(tandem: Any, connection: kombu.Connection) -> None:
    """It answers a waiting take_many with nothing at all."""
    queue = connection.SimpleQueue("waits")
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.3)
    tandem.restart()
    queue.put("after")
    assert queue.get(timeout=10).payload == "after"


def test_without_acknowledgement(tandem: Any, connection: kombu.Connection) -> None:
    queue = connection.SimpleQueue("loose", no_ack=True)
    queue.put("x")
    assert queue.get(timeout=5).payload == "x"
    assert states(tandem, "loose") == []
