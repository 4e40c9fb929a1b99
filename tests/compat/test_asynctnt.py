"""asynctnt and asynctnt-queue of PyPI, as an asyncio application uses them.

One connection carries many requests at once; a waiting take holds up none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import asynctnt
import pytest
from asynctnt.exceptions import TarantoolDatabaseError
from asynctnt_queue import Queue, Tube

from tests.compat.compat_server import Server

Work = Callable[[asynctnt.Connection, asynctnt.Connection], Coroutine[Any, Any, None]]


def on_two_connections(server: Server, work: Work) -> None:
    """Run `work(first, second)` with two fresh connections."""

    async def run() -> None:
        async with (
            asynctnt.Connection(host="127.0.0.1", port=server.port) as first,
            asynctnt.Connection(host="127.0.0.1", port=server.port) as second,
        ):
            await asyncio.wait_for(work(first, second), 30)

    asyncio.run(run())


async def new_tube(connection: asynctnt.Connection, name: str, kind: str) -> Tube:
    await connection.call("queue.create_tube", [name, kind])
    return Queue(connection).tube(name)


async def told(task: Awaitable[Any]) -> tuple[int, str, Any]:
    """(id, status letter, payload) of the task an operation returns."""
    found = await task
    return found.task_id, found.status.value, found.data


def test_every_call(server: Server) -> None:
    async def work(first: asynctnt.Connection, _second: asynctnt.Connection) -> None:
        tube = await new_tube(first, "asynctnt_calls", "fifottl")
        assert await told(tube.put("data")) == (0, "r", "data")
        payload = {"a": [1, None]}
        assert await told(tube.put(payload, pri=1, ttl=60, ttr=30.5)) == (1, "r", payload)
        assert await told(tube.put("late", delay=0.02)) == (2, "~", "late")
        assert await told(tube.peek(1)) == (1, "r", payload)
        task = await tube.take(1)
        assert await told(task.touch(5)) == (0, "t", "data")
        assert await told(task.release()) == (0, "r", "data")
        assert await told(tube.take()) == (0, "t", "data")
        assert await told(tube.release(0, delay=0.02)) == (0, "~", "data")
        first_id, second_id = [(await tube.take(2)).task_id for _ in range(2)]
        assert {first_id, second_id} < {0, 1, 2}
        assert await told(tube.bury(1)) == (1, "!", payload)
        assert await tube.kick(5) == 1
        assert await told(tube.delete(1)) == (1, "-", payload)
        for task_id in {first_id, second_id} - {1}:
            assert (await tube.ack(task_id)).status.value == "-"
        found = await Queue(first).statistics("asynctnt_calls")
        assert found["calls"]["put"] == 3
        assert found["calls"]["take"] == 4
        assert "asynctnt_calls" in await Queue(first).statistics()
        (altered,) = await first.call("queue.alter_tube", ["asynctnt_calls", {"capacity": 7}])
        assert altered["opts"]["capacity"] == 7

    on_two_connections(server, work)


def test_waiting_and_pipelining(server: Server) -> None:
    async def work(first: asynctnt.Connection, second: asynctnt.Connection) -> None:
        tube = await new_tube(first, "asynctnt_pipe", "fifo")
        other = Queue(second).tube("asynctnt_pipe")
        waiting = [asyncio.create_task(tube.take(20)) for _ in range(50)]
        await first.ping()
        assert not any(task.done() for task in waiting), "nothing to take yet"
        await asyncio.gather(*(other.put(number) for number in range(50)))
        taken = await asyncio.gather(*waiting)
        assert [task.data for task in taken] == list(range(50)), "served in order of arrival"
        acked = await asyncio.gather(*(task.ack() for task in taken))
        assert {task.status.value for task in acked} == {"-"}
        assert await tube.take(0.01) is None

    on_two_connections(server, work)


def test_identify_on_two_connections(server: Server) -> None:
    async def work(first: asynctnt.Connection, second: asynctnt.Connection) -> None:
        tube = await new_tube(first, "asynctnt_session", "fifo")
        (uuid,) = (await first.call("queue.identify")).body
        uuid_bytes = uuid if isinstance(uuid, bytes) else uuid.encode()
        assert len(uuid_bytes) == 16
        assert (await second.call("queue.identify", [uuid])).body == [uuid]
        await tube.put("x")
        await tube.take(0)
        assert await told(Queue(second).tube("asynctnt_session").ack(0)) == (0, "-", "x")

    on_two_connections(server, work)


def test_errors(server: Server) -> None:
    async def work(first: asynctnt.Connection, _second: asynctnt.Connection) -> None:
        tube = await new_tube(first, "asynctnt_errors", "fifo")
        with pytest.raises(TarantoolDatabaseError) as caught:
            await tube.ack(0)
        assert (caught.value.code, caught.value.message) == (32, "Task was not taken")
        with pytest.raises(TarantoolDatabaseError) as caught:
            await Queue(first).tube("asynctnt_nothing").put("x")
        assert caught.value.code == 33
        assert first.is_connected

    on_two_connections(server, work)


def test_select_with_the_fetched_schema(server: Server) -> None:
    async def work(first: asynctnt.Connection, _second: asynctnt.Connection) -> None:
        tube = await new_tube(first, "asynctnt_schema", "fifo")
        await tube.put("x")
        await first.refetch_schema()
        (row,) = (await first.select("asynctnt_schema")).body
        assert list(row) == [0, "r", "x"]
        assert row["status"] == "r"

    on_two_connections(server, work)


def test_login(guarded: Server) -> None:
    async def run() -> None:
        connection = asynctnt.Connection(
            host="127.0.0.1", port=guarded.port, username="worker", password="worker's secret"
        )
        await asyncio.wait_for(connection.connect(), 10)
        assert (await connection.call("box.session.user")).body == ["worker"]
        await connection.disconnect()

    asyncio.run(run())


@pytest.mark.parametrize(("user", "password"), [("worker", "wrong"), ("nobody", "x")])
def test_login_refused(guarded: Server, user: str, password: str) -> None:
    async def run() -> None:
        connection = asynctnt.Connection(
            host="127.0.0.1",
            port=guarded.port,
            username=user,
            password=password,
            reconnect_timeout=0,
        )
        with pytest.raises(TarantoolDatabaseError) as caught:
            await asyncio.wait_for(connection.connect(), 10)
        assert caught.value.code == 47
        await connection.disconnect()

    asyncio.run(run())
