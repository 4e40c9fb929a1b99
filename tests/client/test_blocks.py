"""The block around a task: touched, acked, given back, given up, lost, or cancelled anywhere."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import tandemq
from tests.client.cutter import Cutter
from tests.cluster.cluster_nodes import Member

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]


async def taken(tube: tandemq.Tube) -> tandemq.Task:
    task = await tube.take(5)
    assert task is not None
    return task


async def state(client: tandemq.Client, tube: str, task_id: int) -> str:
    return str((await client.call(f"queue.tube.{tube}:peek", task_id))[0][1])


async def test_the_ttr_is_the_servers_and_counts_from_the_take(direct: tandemq.Client) -> None:
    await direct.create_tube("learned", ttr=2)
    tube = direct.tube("learned")
    await tube.put_many(["short", "own"])
    task, own = await taken(tube), await taken(tube)
    assert task.ttr == 2.0
    await asyncio.sleep(0.8)  # in hand, and more than half of it is gone
    async with task:
        await asyncio.sleep(1.7)
        assert await state(direct, "learned", 0) == "t"
    with pytest.raises(tandemq.LeaseLost):
        await own.ack()  # nobody touched that one
    await tube.put("x", ttr=100)
    assert {(await taken(tube)).ttr for _ in range(2)} == {2.0, 100.0}
    assert (await taken(await tube_with(direct, "endless", "fifottl"))).ttr is None


async def tube_with(client: tandemq.Client, name: str, kind: str, **options: Any) -> tandemq.Tube:
    tube = await client.create_tube(name, kind, **options)
    await tube.put("x")
    return tube


async def test_no_answer_for_a_whole_ttr_is_a_loss(client: tandemq.Client, cutter: Cutter) -> None:
    tube = await tube_with(client, "deaf", "fifottl", ttr=0.6)
    with pytest.raises(tandemq.LeaseLost, match=r"no touch was answered for 0\.6 s"):
        async with await taken(tube):
            cutter.freeze()
            await asyncio.sleep(30)
    cutter.thaw()


async def test_the_tube_gives_up_where_it_says_when(direct: tandemq.Client) -> None:
    """A client that buried first would keep the task from its dead letters."""
    await direct.create_tube("given-up", "fifo")
    options: dict[str, Any] = {"max_attempts": 7, "dead_letter": "given-up", "retry_delay": 0}
    tube = await tube_with(direct, "strict", "fifottl", **options)
    reasons = []
    for attempt in range(1, 8):
        task = await taken(tube)
        assert task.attempt == attempt
        reasons.append(task.reason)
        with pytest.raises(ZeroDivisionError):
            async with task:
                raise ZeroDivisionError("é" * 1000)
    assert reasons[0] is None
    assert reasons[1] == "ZeroDivisionError: " + "é" * 490, "cut to what the server keeps"
    info = (await direct.call("queue.tube.given-up:info", 0))[0]
    assert (info["from_tube"], info["from_attempts"]) == ("strict", 7)


async def test_the_tubes_own_delays_hold_unless_the_client_has_some(direct: tandemq.Client) -> None:
    await tube_with(direct, "slow", "fifottl", retry_delay=500, retry_jitter=0)
    task = await taken(direct.tube("slow"))
    with pytest.raises(ZeroDivisionError):
        async with task:
            raise ZeroDivisionError
    assert await state(direct, "slow", 0) == "~"
    assert await direct.call("queue.tube.slow:bulk", "kick", {"state": "delayed"})
    again = await taken(direct.tube("slow", backoff=0.01))
    with pytest.raises(ZeroDivisionError):
        async with again:
            raise ZeroDivisionError
    third = await taken(direct.tube("slow"))
    assert third.attempt == 3
    await third.ack()


async def test_a_lost_block_leaves_no_cancellation_behind(direct: tandemq.Client) -> None:
    """Whoever finds out: the block's own call, or the touches beside it."""
    tube = await tube_with(direct, "own-call", "fifo")
    task = await taken(tube)
    with pytest.raises(tandemq.LeaseLost):
        async with task:
            await direct.call("queue.tube.own-call:release_all")
            await task.ack()
    await asyncio.sleep(0)  # would raise CancelledError here
    me = asyncio.current_task()
    assert me is not None
    assert me.cancelling() == 0
    touched = await tube_with(direct, "swallowed", "fifottl", ttr=0.6)
    with pytest.raises(tandemq.LeaseLost):
        async with await taken(touched):
            await direct.call("queue.tube.swallowed:release_all")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(30)
    await asyncio.sleep(0)
    assert me.cancelling() == 0


async def test_a_deadline_around_a_block(client: tandemq.Client, cutter: Cutter) -> None:
    """A cancelled block gives its task back; cancelled while it acks, the ack is seen through."""
    tube = await tube_with(client, "deadline", "fifo")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), await taken(tube):
            await asyncio.sleep(30)
    assert await state(client, "deadline", 0) == "r"
    task = await taken(tube)

    async def work() -> None:
        async with task:
            cutter.freeze()

    working = asyncio.create_task(work())
    asked = asyncio.get_running_loop().time()
    while not cutter_has(client):
        assert asyncio.get_running_loop().time() < asked + 10
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.sleep(0.05)
    assert not working.done()
    cutter.thaw()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert task.ended
    assert (await client.statistics("deadline"))["tasks"]["total"] == 0


async def test_an_ack_that_found_no_node_leaves_nothing_taken(
    node: Member, direct: tandemq.Client
) -> None:
    await tube_with(direct, "unacked", "fifo")
    hasty = direct.tube("unacked", timeout=0.3)
    for error in (None, KeyError("x")):
        with pytest.raises(tandemq.Unavailable if error is None else KeyError):
            async with await taken(hasty):
                await asyncio.to_thread(node.role, True)
                if error is not None:
                    raise error
        await asyncio.to_thread(node.role, False)
    task = await taken(direct.tube("unacked"))
    await task.ack()


def cutter_has(client: tandemq.Client) -> bool:
    """Whether a call is under way."""
    return client.link._flying > 0


async def test_finish_and_room(direct: tandemq.Client) -> None:
    await direct.create_tube("next", "fifo", capacity=1, overflow="wait")
    tube = await tube_with(direct, "steps", "fifo")
    task = await taken(tube)
    with pytest.raises(tandemq.Refused, match="No room"):
        await task.finish([("next", 1), ("next", 2)])
    async with task:
        assert await task.finish([("next", 1)]) == [0]
    follower = direct.tube("next")
    with pytest.raises(tandemq.Refused, match=r"Tube next is full: no room within 0\.05 s"):
        await follower.put(2, wait=0.05)
    waiting = asyncio.create_task(follower.put(2, wait=20, timeout=1))
    await (await taken(follower)).ack()
    assert await waiting == 1
