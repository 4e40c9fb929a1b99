"""Dramatiq's worker over the broker: acknowledgement, delays, retries in one step, dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pytest
from dramatiq.errors import QueueJoinTimeout, QueueNotFound

from tandemq.dramatiq import TandemBroker


@pytest.fixture
def broker(tandem: Any) -> Iterator[TandemBroker]:
    before = dramatiq.broker.global_broker
    made = TandemBroker(tandem.address)
    dramatiq.set_broker(made)
    yield made
    made.close()
    dramatiq.broker.global_broker = before


@pytest.fixture
def worker(broker: TandemBroker) -> Iterator[dramatiq.Worker]:
    made = dramatiq.Worker(broker, worker_timeout=100, worker_threads=4)
    made.start()
    yield made
    made.stop()


def until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 15
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def states(tandem: Any, tube: str) -> list[str]:
    return [state for _id, state, _data in tandem.tasks(tube)]


def test_acknowledged_after_the_work(tandem: Any, broker: TandemBroker, worker: Any) -> None:
    seen: list[list[str]] = []

    @dramatiq.actor
    def look() -> None:
        seen.append(states(tandem, "default"))

    look.send()
    broker.join("default", timeout=10_000)
    assert seen == [["t"]]
    assert states(tandem, "default") == []


def test_delay_priority_key_and_life(tandem: Any, broker: TandemBroker) -> None:
    done: list[str] = []

    @dramatiq.actor
    def note(text: str) -> None:
        done.append(text)

    note.send_with_options(args=("low",), broker_priority=1)
    note.send_with_options(args=("high",), broker_priority=9)
    note.send_with_options(args=("later",), delay=3_600_000)
    note.send_with_options(args=("too late",), ttl=1000, delay=0)
    for _ in range(2):
        note.send_with_options(args=("once",), key="order-1", broker_priority=5)
    assert states(tandem, "default") == ["r", "r", "~", "r", "r"]
    tandem.advance(2)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    # What runs has been noted before it is acknowledged: an hour now would end its time to run.
    until(lambda: states(tandem, "default") == ["~"])
    assert len(done) == 3
    tandem.advance(3600)
    broker.join("default", timeout=10_000)
    worker.stop()
    assert done == ["high", "once", "low", "later"]


def test_retries_are_one_step(tandem: Any, broker: TandemBroker, worker: Any) -> None:
    """A failed delivery is replaced by the next try in one transaction: never two of them."""
    tries: list[int] = []

    @dramatiq.actor(max_retries=3, min_backoff=10, max_backoff=20)
    def fails(times: int) -> None:
        tries.append(times)
        assert len(states(tandem, "default")) == 1
        if tries.count(times) <= times:
            raise RuntimeError("no")

    fails.send(2)
    broker.join("default", timeout=10_000)
    assert tries == [2, 2, 2]
    with tandem.connect_sync() as client:
        calls = client.statistics("default")["calls"]
    assert calls["put"] == 3
    assert calls["ack"] == 3
    assert states(tandem, "default.XQ") == []


def test_given_up(tandem: Any, broker: TandemBroker, worker: Any) -> None:
    @dramatiq.actor(max_retries=1, min_backoff=10, max_backoff=20)
    def fails() -> None:
        raise RuntimeError("no")

    fails.send()
    broker.join("default", timeout=10_000)
    assert states(tandem, "default.XQ") == ["r"]
    broker.flush_all()
    assert states(tandem, "default.XQ") == []


def test_what_holds_no_message(tandem: Any, broker: TandemBroker, worker: Any) -> None:
    @dramatiq.actor
    def fine() -> None:
        return

    fine.send()
    with tandem.connect_sync() as client:
        client.tube("default").put({"not": "a message"})
    broker.join("default", timeout=10_000)
    assert [data for _id, _state, data in tandem.tasks("default.XQ")] == [{"not": "a message"}]


def test_a_worker_that_ends_gives_back_what_it_has_not_begun(
    tandem: Any, broker: TandemBroker
) -> None:
    begun: list[int] = []

    @dramatiq.actor
    def slow(number: int) -> None:
        begun.append(number)
        time.sleep(0.3)

    for number in range(6):
        slow.send(number)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    until(lambda: begun)
    worker.stop()
    left = states(tandem, "default")
    assert len(begun) + len(left) == 6
    assert set(left) == {"r"}


def test_order_by_name(tandem: Any) -> None:
    before = dramatiq.broker.global_broker
    ordered = TandemBroker(tandem.address, ordered=True)
    dramatiq.set_broker(ordered)
    running: set[str] = set()
    done: list[str] = []

    @dramatiq.actor
    def step(customer: str, number: int) -> None:
        assert customer not in running
        running.add(customer)
        time.sleep(0.02)
        running.discard(customer)
        done.append(f"{customer}{number}")

    worker = dramatiq.Worker(ordered, worker_timeout=100, worker_threads=4)
    worker.start()
    try:
        for number in range(4):
            for customer in "ab":
                step.send_with_options(args=(customer, number), order=customer)
        ordered.join("default", timeout=10_000)
    finally:
        worker.stop()
        ordered.close()
        dramatiq.broker.global_broker = before
    assert [one for one in done if one[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert len(done) == 8


def test_refusals(broker: TandemBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.consume("never declared")
    with pytest.raises(QueueNotFound):
        broker.join("never declared")

    @dramatiq.actor(queue_name="waits")
    def waits() -> None:
        return

    waits.send()
    with pytest.raises(QueueJoinTimeout):
        broker.join("waits", timeout=50)


def test_what_was_taken_together_and_never_handed_over_goes_back(
    tandem: Any, broker: TandemBroker
) -> None:
    broker.declare_queue("notes")

    @dramatiq.actor(queue_name="notes")
    def note(_number: int) -> None:
        return

    for number in range(5):
        note.send(number)
    consumer = broker.consume("notes", prefetch=3, timeout=1000)
    first = next(consumer)
    assert first is not None
    assert sorted(states(tandem, "notes")) == ["r", "r", "t", "t", "t"]
    consumer.close()
    assert sorted(states(tandem, "notes")) == ["r", "r", "r", "r", "t"]
    consumer.ack(first)
    assert states(tandem, "notes") == ["r", "r", "r", "r"]
