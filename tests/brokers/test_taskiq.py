"""Taskiq's worker over the broker: when tasks are acknowledged, and what labels mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from taskiq import BrokerMessage
from taskiq.receiver import Receiver

import tandemq
import tandemq.testing
from tandemq.taskiq import TandemBroker

pytestmark = [pytest.mark.asyncio]


@asynccontextmanager
async def working(broker: TandemBroker, at_once: int = 4) -> AsyncIterator[None]:
    """A worker, until the block ends; then it finishes what it has."""
    await broker.startup()
    stop = asyncio.Event()
    receiver = Receiver(broker, max_async_tasks=at_once, run_startup=False)
    running = asyncio.create_task(receiver.listen(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(running, 10)
        await broker.shutdown()


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(15):
        while not what():
            await asyncio.sleep(0.01)


def states(tandem: Any, tube: str) -> list[str]:
    return [state for _id, state, _data in tandem.tasks(tube)]


async def test_acknowledged_after_the_work(tandem: Any) -> None:
    broker, go = TandemBroker(tandem.address), asyncio.Event()
    begun: list[int] = []

    @broker.task("slow")
    async def slow(number: int) -> None:
        begun.append(number)
        await go.wait()

    async with working(broker):
        await slow.kiq(1)
        await until(lambda: begun)
        assert await asyncio.to_thread(states, tandem, "taskiq") == ["t"]
        go.set()
        await asyncio.sleep(0.2)
        assert await asyncio.to_thread(states, tandem, "taskiq") == []


async def test_a_worker_that_ends_gives_back_what_it_has_not_begun(tandem: Any) -> None:
    broker, go = TandemBroker(tandem.address), asyncio.Event()
    begun: list[int] = []

    @broker.task("one")
    async def one(number: int) -> None:
        begun.append(number)
        await go.wait()

    async with working(broker, 1):
        for number in range(4):
            await one.kiq(number)
        await until(lambda: begun)
        asyncio.get_running_loop().call_later(0.3, go.set)
    left = await asyncio.to_thread(states, tandem, "taskiq")
    assert len(begun) + len(left) == 4
    assert set(left) <= {"r"}


async def test_delay_priority_and_key(tandem: Any) -> None:
    broker = TandemBroker(tandem.address)
    done: list[str] = []

    @broker.task("note")
    async def note(text: str) -> None:
        done.append(text)

    await broker.startup()
    send = note.kicker()
    await send.with_labels(priority=1).kiq("low")
    await note.kicker().with_labels(priority=9).kiq("high")
    await note.kicker().with_labels(delay=3600).kiq("later")
    for _ in range(2):
        await note.kicker().with_labels(key="order-1", priority=5).kiq("once")
    assert await asyncio.to_thread(states, tandem, "taskiq") == ["r", "r", "~", "r"]
    async with working(broker, 1):
        await until(lambda: len(done) == 3)
        await asyncio.to_thread(tandem.advance, 3600)
        await until(lambda: len(done) == 4)
    assert done == ["high", "once", "low", "later"]


async def test_order_by_name(tandem: Any) -> None:
    broker = TandemBroker(tandem.address, tube="ordered", ordered=True)
    running: dict[str, int] = {}
    beside: list[int] = []
    done: list[str] = []

    @broker.task("step")
    async def step(customer: str, number: int) -> None:
        assert running.get(customer, 0) == 0
        running[customer] = 1
        beside.append(sum(running.values()))
        await asyncio.sleep(0.02)
        running[customer] = 0
        done.append(f"{customer}{number}")

    async with working(broker, 8):
        for number in range(4):
            for customer in "ab":
                await step.kicker().with_labels(order=customer).kiq(customer, number)
        await until(lambda: len(done) == 8)
    assert [one for one in done if one[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert max(beside) == 2
    plain = TandemBroker(tandem.address)
    with pytest.raises(ValueError, match="ordered=True"):
        await plain.kick(
            BrokerMessage(task_id="1", task_name="x", message=b"x", labels={"order": "a"})
        )
    await plain.shutdown()


async def test_attempts_and_dead_letters(tandem: Any) -> None:
    broker = TandemBroker(
        tandem.address, max_attempts=3, dead_letter="given-up", tube_options={"retry_delay": 0.01}
    )
    tries: list[str] = []

    @broker.task("fails")
    async def fails(times: int) -> None:
        tries.append(f"of {times}")
        if tries.count(f"of {times}") <= times:
            raise RuntimeError("no")

    async with working(broker):
        await fails.kiq(2)
        await fails.kiq(7)
        await until(lambda: len(tries) == 6)
        await asyncio.sleep(0.2)
    assert sorted(tries) == ["of 2"] * 3 + ["of 7"] * 3
    assert await asyncio.to_thread(states, tandem, "taskiq") == []
    assert await asyncio.to_thread(states, tandem, "given-up") == ["r"]
    with pytest.raises(ValueError, match="without max_attempts"):
        TandemBroker(dead_letter="x")


async def test_the_task_in_hand_survives_a_change_of_roles(tmp_path: Path) -> None:
    """The worker's session is claimed again; the task is not given to another."""
    with tandemq.testing.node(tmp_path, queue__in_replicaset=True) as shared:
        await held_through_a_change(shared)


async def held_through_a_change(tandem: Any) -> None:
    broker, go = TandemBroker(tandem.address), asyncio.Event()
    begun: list[int] = []

    @broker.task("long")
    async def long(number: int) -> None:
        begun.append(number)
        await go.wait()

    async with working(broker):
        await long.kiq(1)
        await until(lambda: begun)
        await asyncio.to_thread(tandem.read_only)
        await asyncio.to_thread(tandem.read_only, False)
        go.set()
        await long.kiq(2)
        await until(lambda: len(begun) == 2)
        await asyncio.sleep(0.3)
    assert begun == [1, 2]
    assert await asyncio.to_thread(states, tandem, "taskiq") == []


async def test_no_node(unused_tcp_port: int) -> None:
    broker = TandemBroker(f"127.0.0.1:{unused_tcp_port}", timeout=0.3)
    with pytest.raises(tandemq.Unavailable):
        await broker.startup()
    await broker.shutdown()
