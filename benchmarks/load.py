"""Load over the stock asyncio connector: single calls and batches, many requests in flight.

Here: coroutines that send and count. Must not be here: timing, goals, servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

import asynctnt

Connections = Sequence[asynctnt.Connection]


@dataclass(frozen=True, slots=True)
class Shape:
    """How hard to push: requests in flight on each connection, payload bytes, tasks a batch."""

    in_flight: int = 64
    payload_bytes: int = 100
    batch: int = 100
    batches_in_flight: int = 4


class Work:
    """A shared count-down: lanes draw from it until it is used up."""

    def __init__(self, amount: int) -> None:
        self.left = amount
        self.done = 0

    def draw(self, most: int = 1) -> int:
        """Up to `most` units, 0 when none is left."""
        share = min(most, self.left)
        self.left -= share
        return share


async def _lanes(
    connections: Connections,
    in_flight: int,
    lane: Callable[[asynctnt.Connection, int], Coroutine[None, None, None]],
) -> None:
    """Run `lane(connection, number)` `in_flight` times on each connection, all at once."""
    number = 0
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            for _ in range(in_flight):
                group.create_task(lane(connection, number))
                number += 1


async def ping(connections: Connections, shape: Shape, count: int) -> int:
    """IPROTO PING, the cheapest request there is; returns how many were answered."""
    work = Work(count)

    async def lane(connection: asynctnt.Connection, _: int) -> None:
        while work.draw():
            await connection.ping()

    await _lanes(connections, shape.in_flight, lane)
    return count


async def put(
    connections: Connections,
    shape: Shape,
    tube: str,
    count: int,
    sub_queue: Callable[[int], str] | None = None,
) -> int:
    """`count` puts; `sub_queue(number)` names the sub-queue of a lane, None for drivers without."""
    work, name, data = Work(count), f"queue.tube.{tube}:put", "x" * shape.payload_bytes

    async def lane(connection: asynctnt.Connection, number: int) -> None:
        options = {} if sub_queue is None else {"utube": sub_queue(number)}
        while work.draw():
            await connection.call(name, [data, options])

    await _lanes(connections, shape.in_flight, lane)
    return count


async def take_ack(connections: Connections, shape: Shape, tube: str, count: int) -> int:
    """Take and acknowledge `count` tasks, or until no lane finds any; returns 2 x tasks done.

    A lane that finds nothing ends and leaves its share to the others: with utubes the rest may be
    in sub-queues that are busy at that moment.
    """
    work, take, ack = Work(count), f"queue.tube.{tube}:take", f"queue.tube.{tube}:ack"

    async def lane(connection: asynctnt.Connection, _: int) -> None:
        while work.draw():
            body = (await connection.call(take, [0])).body
            if not body or not body[0]:
                work.left += 1
                return
            await connection.call(ack, [body[0][0]])
            work.done += 1

    await _lanes(connections, shape.in_flight, lane)
    return 2 * work.done


def batch_rows(shape: Shape, size: int, sub_queue: str | None) -> list[list[object]]:
    """`[[data, options], ...]` for one put_many."""
    options = {} if sub_queue is None else {"utube": sub_queue}
    return [["x" * shape.payload_bytes, options] for _ in range(size)]


async def put_batches(
    connections: Connections, shape: Shape, tube: str, count: int, sub_queues: int = 0
) -> int:
    """`count` tasks through put_many, spread over `sub_queues` when that is not 0."""
    work, name, turn = Work(count), f"queue.tube.{tube}:put_many", 0

    async def lane(connection: asynctnt.Connection, _: int) -> None:
        nonlocal turn
        while size := work.draw(shape.batch):
            turn += 1
            sub_queue = str(turn % sub_queues) if sub_queues else None
            await connection.call(name, [batch_rows(shape, size, sub_queue)])

    await _lanes(connections, shape.batches_in_flight, lane)
    return count


async def take_ack_batches(connections: Connections, shape: Shape, tube: str, count: int) -> int:
    """take_many, then ack_many of what came, until `count` tasks or none; returns tasks done."""
    work, prefix = Work(count), f"queue.tube.{tube}"

    async def lane(connection: asynctnt.Connection, _: int) -> None:
        while size := work.draw(shape.batch):
            reply = await connection.call(f"{prefix}:take_many", [size])
            tasks = reply.body[0] if reply.body else []
            if not tasks:
                work.left += size
                return
            await connection.call(f"{prefix}:ack_many", [[task[0] for task in tasks]])
            work.done += len(tasks)
            work.left += size - len(tasks)

    await _lanes(connections, shape.batches_in_flight, lane)
    return work.done
