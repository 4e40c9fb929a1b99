"""One shape of load on each peer, over the client its users have: put N, then take and ack N.

Here: what is sent. Must not be here: servers, timing, tables. A client that is not installed is
named by `PeerMissing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from benchmarks import beanstalk, load
from benchmarks.broker_servers import PeerMissing
from benchmarks.target import Effort
from demo.crowd import connect, disconnect

#: PostgreSQL has a process a connection: so many of them, one request in flight on each.
POSTGRES_CONNECTIONS = 16
#: Pulls in flight on each connection of NATS: each is a subscription of its own.
NATS_PULLS = 16


class Load(Protocol):
    """Both return the operations that were answered: one a put, two a task taken and acked."""

    async def put(self, count: int) -> int: ...

    async def take_ack(self, count: int) -> int: ...


def package(name: str, called: str = "") -> Any:
    """A client's module. Raises PeerMissing, which names the package."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise PeerMissing(f"the Python package {called or name} is missing") from None


async def lanes(count: int, lane: Callable[[int], Awaitable[None]]) -> None:
    """`count` of them at once; the first error ends all."""
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(_awaited(lane(number)))


async def _awaited(one: Awaitable[Any]) -> None:
    await one


async def spread(amount: int, count: int, one: Callable[[int], Awaitable[Any]]) -> int:
    """`one(lane)` so often, by `count` lanes at once; the amount."""
    work = load.Work(amount)

    async def lane(number: int) -> None:
        while work.draw():
            await one(number)

    await lanes(count, lane)
    return amount


class Iproto:
    """Tandem, and Tarantool with its queue module: the same calls over the same connector."""

    def __init__(self, connections: Any, effort: Effort) -> None:
        self._many = (connections, effort.shape, "fifo")

    async def put(self, count: int) -> int:
        return await load.put(*self._many, count)

    async def take_ack(self, count: int) -> int:
        return await load.take_ack(*self._many, count)


@contextlib.asynccontextmanager
async def iproto(url: str, effort: Effort, creates: bool = False) -> AsyncIterator[Load]:
    """creates: the tube is not there yet. (Tarantool cannot answer with what its call returns.)"""
    host, _, port = url.rpartition(":")
    connections = await connect(host, int(port), effort.connections)
    try:
        if creates:
            await connections[0].call("queue.create_tube", ["fifo", "fifo"])
        yield Iproto(connections, effort)
    finally:
        await disconnect(connections)


@contextlib.asynccontextmanager
async def beanstalkd(url: str, effort: Effort) -> AsyncIterator[Load]:
    host, _, port = url.rpartition(":")
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(beanstalk.Connection, host, int(port)))[1]
        for _ in range(effort.connections)
    ]
    try:
        yield Beanstalk(connections, effort)
    finally:
        for connection in connections:
            connection.close()


class Beanstalk:
    def __init__(self, connections: list[beanstalk.Connection], effort: Effort) -> None:
        self._many = (connections, effort.shape.in_flight)
        self._bytes = effort.shape.payload_bytes

    async def put(self, count: int) -> int:
        return await beanstalk.put(*self._many, self._bytes, count)

    async def take_ack(self, count: int) -> int:
        return await beanstalk.take_ack(*self._many, count)


@contextlib.asynccontextmanager
async def redis(url: str, effort: Effort) -> AsyncIterator[Load]:
    """A stream and one group of consumers."""
    aioredis = package("redis.asyncio", "redis")
    each = effort.shape.in_flight
    clients = [aioredis.from_url(url, max_connections=each) for _ in range(effort.connections)]
    await clients[0].xgroup_create("s", "g", mkstream=True)
    try:
        yield Redis(clients, effort)
    finally:
        for client in clients:
            await client.aclose()


class Redis:
    def __init__(self, clients: list[Any], effort: Effort) -> None:
        self._clients, self._many = clients, effort.in_flight
        self._data = {"d": b"x" * effort.shape.payload_bytes}

    def _client(self, lane: int) -> Any:
        return self._clients[lane % len(self._clients)]

    async def put(self, count: int) -> int:
        return await spread(
            count, self._many, lambda lane: self._client(lane).xadd("s", self._data)
        )

    async def take_ack(self, count: int) -> int:
        async def one(lane: int) -> None:
            client = self._client(lane)
            found = await client.xreadgroup("g", f"c{lane}", {"s": ">"}, count=1)
            await client.xack("s", "g", found[0][1][0][0])

        return 2 * await spread(count, self._many, one)


@contextlib.asynccontextmanager
async def nats(url: str, effort: Effort) -> AsyncIterator[Load]:
    """A work-queue stream in files, one durable consumer, pulled from."""
    client, api = package("nats", "nats-py"), package("nats.js.api", "nats-py")
    connections = [await client.connect(url) for _ in range(effort.connections)]
    streams = [connection.jetstream() for connection in connections]
    await streams[0].add_stream(
        api.StreamConfig(
            name="S",
            subjects=["s"],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.FILE,
        )
    )
    await streams[0].add_consumer(
        "S",
        api.ConsumerConfig(
            durable_name="d", ack_policy="explicit", max_ack_pending=100_000, filter_subject="s"
        ),
    )
    try:
        yield Nats(streams, effort)
    finally:
        for connection in connections:
            await connection.close()


class Nats:
    def __init__(self, streams: list[Any], effort: Effort) -> None:
        self._streams, self._many = streams, effort.in_flight
        self._data = b"x" * effort.shape.payload_bytes

    async def put(self, count: int) -> int:
        streams = self._streams
        return await spread(
            count, self._many, lambda lane: streams[lane % len(streams)].publish("s", self._data)
        )

    async def take_ack(self, count: int) -> int:
        work = load.Work(count)

        async def lane(number: int) -> None:
            stream = self._streams[number % len(self._streams)]
            pulled = await stream.pull_subscribe("s", durable="d", stream="S")
            while work.draw():
                # An ack is confirmed, as those of the others are.
                await (await pulled.fetch(1, timeout=30))[0].ack_sync()

        await lanes(NATS_PULLS * len(self._streams), lane)
        return 2 * count


@contextlib.asynccontextmanager
async def postgres(url: str, effort: Effort) -> AsyncIterator[Load]:
    """A table, `for update skip locked` and a partial index, as queues on PostgreSQL do it."""
    asyncpg = package("asyncpg")
    pool = await asyncpg.create_pool(
        url, min_size=POSTGRES_CONNECTIONS, max_size=POSTGRES_CONNECTIONS
    )
    await pool.execute(
        "create table q(id bigserial primary key, state smallint default 0, d bytea);"
        "create index on q(id) where state = 0"
    )
    try:
        yield Postgres(pool, effort)
    finally:
        await pool.close()


class Postgres:
    TAKE = (
        "update q set state = 1 where id = (select id from q where state = 0 order by id limit 1"
        " for update skip locked) returning id, d"
    )

    def __init__(self, pool: Any, effort: Effort) -> None:
        self._pool, self._effort = pool, effort

    async def put(self, count: int) -> int:
        work, data = load.Work(count), b"x" * self._effort.shape.payload_bytes

        async def lane(_: int) -> None:
            async with self._pool.acquire() as connection:
                insert = await connection.prepare("insert into q(d) values($1) returning id")
                while work.draw():
                    await insert.fetchval(data)

        await lanes(POSTGRES_CONNECTIONS, lane)
        return count

    async def take_ack(self, count: int) -> int:
        work = load.Work(count)

        async def lane(_: int) -> None:
            async with self._pool.acquire() as connection:
                take = await connection.prepare(self.TAKE)
                ack = await connection.prepare("delete from q where id = $1")
                while work.draw():
                    await ack.fetch((await take.fetchrow())[0])

        await lanes(POSTGRES_CONNECTIONS, lane)
        return 2 * count


@contextlib.asynccontextmanager
async def rabbitmq(url: str, effort: Effort, kind: str) -> AsyncIterator[Load]:
    """A durable queue of that kind, persistent messages, publisher confirms."""
    pika = package("aio_pika", "aio-pika")
    connections = [await pika.connect(url) for _ in range(effort.connections)]
    channels = [await one.channel(publisher_confirms=True) for one in connections]
    await channels[0].declare_queue("q", durable=True, arguments={"x-queue-type": kind})
    try:
        yield Rabbitmq(pika, channels, effort)
    finally:
        for connection in connections:
            await connection.close()


class Rabbitmq:
    """Messages are pushed, as its users have it; an ack is not confirmed by the server."""

    def __init__(self, pika: Any, channels: list[Any], effort: Effort) -> None:
        self._pika, self._channels, self._effort = pika, channels, effort

    async def put(self, count: int) -> int:
        data, message = b"x" * self._effort.shape.payload_bytes, self._pika.Message

        def one(lane: int) -> Awaitable[Any]:
            exchange = self._channels[lane % len(self._channels)].default_exchange
            published: Awaitable[Any] = exchange.publish(
                message(data, delivery_mode=2), routing_key="q"
            )
            return published

        return await spread(count, self._effort.in_flight, one)

    async def take_ack(self, count: int) -> int:
        left, done = [count], asyncio.Event()

        async def on(message: Any) -> None:
            await message.ack()
            left[0] -= 1
            if not left[0]:
                done.set()

        pushed = []
        for channel in self._channels:
            await channel.set_qos(prefetch_count=self._effort.shape.in_flight)
            queue = await channel.get_queue("q")
            pushed.append((queue, await queue.consume(on)))
        await done.wait()
        for queue, tag in pushed:
            await queue.cancel(tag)
        return 2 * count
