"""What is measured: a running node with its connections and samples, and beanstalkd likewise.

Here: one timed piece of load on one server. Must not be here: order of pieces, goals, rows.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import beanstalk, load
from benchmarks.measure import Median, Sample, Stopwatch, median
from demo.crowd import connect, disconnect
from demo.nodes import AsyncNodeProcess

DRIVERS = ("fifo", "fifottl", "limfifottl", "utube", "utubettl")
CAPACITY = 100_000_000
SUB_QUEUES = 256

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much: runs a figure, operations a run, connections, and the shape of the load."""

    runs: int = 3
    count: int = 50_000
    connections: int = 4
    full: bool = False
    shape: load.Shape = field(default_factory=load.Shape)

    @property
    def in_flight(self) -> int:
        """Requests in flight over all connections."""
        return self.connections * self.shape.in_flight


def tube_options(driver: str) -> dict[str, object]:
    """Options of `create_tube` that let a driver hold millions of tasks."""
    return {"capacity": CAPACITY} if driver == "limfifottl" else {}


class Samples:
    """Samples by name, taken on one server whose CPU seconds `cpu` reads."""

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu = cpu
        self.taken: dict[str, list[Sample]] = defaultdict(list)

    async def measure(self, name: str, piece: Awaitable[int]) -> Sample:
        """Await one piece of load; what it returns is the number of operations."""
        watch = Stopwatch(self._cpu)
        operations = await piece
        sample = watch.stop(operations)
        self.taken[name].append(sample)
        return sample

    def median(self, name: str) -> Median:
        """Medians of everything measured under this name."""
        return median(self.taken[name])


class Target(Samples):
    """One node of Tandem, its connections, and one tube a driver, named like it."""

    def __init__(
        self, node: AsyncNodeProcess, effort: Effort, connections: load.Connections
    ) -> None:
        super().__init__(node.cpu_seconds)
        self.node = node
        self.effort = effort
        self.connections = connections

    async def create(self, tube: str, driver: str) -> None:
        """Make one tube."""
        await self.connections[0].call("queue.create_tube", [tube, driver, tube_options(driver)])

    def put(self, tube: str, count: int) -> Awaitable[int]:
        """Single puts; a tube named after a utube gets one sub-queue a lane."""
        spread = str if tube.startswith("utube") else None
        return load.put(self.connections, self.effort.shape, tube, count, spread)

    def take_ack(self, tube: str, count: int) -> Awaitable[int]:
        """Single takes, each acknowledged."""
        return load.take_ack(self.connections, self.effort.shape, tube, count)

    def put_batches(self, tube: str, count: int) -> Awaitable[int]:
        """Tasks through put_many, utubes spread over SUB_QUEUES."""
        spread = SUB_QUEUES if tube.startswith("utube") else 0
        return load.put_batches(self.connections, self.effort.shape, tube, count, spread)

    def take_ack_batches(self, tube: str, count: int) -> Awaitable[int]:
        """Tasks through take_many and ack_many."""
        return load.take_ack_batches(self.connections, self.effort.shape, tube, count)

    async def put_then_drain(self, tube: str, count: int | None = None) -> None:
        """One run of single puts, then as many take+ack, under `TUBE put` and `TUBE take+ack`."""
        count = count or self.effort.count
        await self.measure(f"{tube} put", self.put(tube, count))
        drained = await self.measure(f"{tube} take+ack", self.take_ack(tube, count))
        if drained.operations != 2 * count:
            raise RuntimeError(f"{tube}: {count} tasks put, {drained.operations // 2} handed out")

    async def tasks(self, tube: str) -> int:
        """How many tasks the server counts in a tube."""
        reply = await self.connections[0].call("queue.statistics", [tube])
        return int(reply.body[0]["tasks"]["total"])


class Yardstick(Samples):
    """beanstalkd under the same shape of load; samples `put` and `take+ack`."""

    def __init__(
        self, server: beanstalk.Beanstalkd, effort: Effort, connections: list[beanstalk.Connection]
    ) -> None:
        super().__init__(server.cpu_seconds)
        self._effort = effort
        self._connections = connections

    async def put_then_drain(self) -> None:
        """One run of puts, then as many reserve+delete."""
        effort, shape = self._effort, self._effort.shape
        many = (self._connections, shape.in_flight)
        await self.measure("put", beanstalk.put(*many, shape.payload_bytes, effort.count))
        await self.measure("take+ack", beanstalk.take_ack(*many, effort.count))


@contextlib.asynccontextmanager
async def tandem(
    directory: Path, effort: Effort, *, wal_mode: str = "write", tubes: tuple[str, ...] = ()
) -> AsyncIterator[Target]:
    """A fresh node, with one tube for each driver named in `tubes`; stopped at the end."""
    async with AsyncNodeProcess(directory, wal_mode=wal_mode) as node:
        connections = await connect("127.0.0.1", node.port, effort.connections)
        one = Target(node, effort, connections)
        try:
            for driver in tubes:
                await one.create(driver, driver)
            yield one
        finally:
            await disconnect(connections)


@contextlib.asynccontextmanager
async def yardstick(program: str, directory: Path, effort: Effort) -> AsyncIterator[Yardstick]:
    """A fresh beanstalkd with its binlog in `directory`; stopped at the end."""
    async with beanstalk.Beanstalkd(program, directory) as server:
        connections = [await server.connect() for _ in range(effort.connections)]
        try:
            yield Yardstick(server, effort, connections)
        finally:
            for connection in connections:
                connection.close()
