"""Producers and workers of the frontier, over the stock asyncio connector.

Here: connecting, putting, taking, acknowledging, and writing both logs.
Must not be here: judging, screens, processes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import asynctnt
from asynctnt.exceptions import (
    TarantoolDatabaseError,
    TarantoolError,
    TarantoolNetworkError,
    TarantoolNotConnectedError,
)

from demo.history import History, Hold, Outcome, Put
from demo.urls import host_of

UNKNOWN_ERRORS = (
    TarantoolNetworkError,
    TarantoolNotConnectedError,
    ConnectionError,
    TimeoutError,
    asyncio.TimeoutError,
)
"""After these nobody can say whether the request counted."""

_TAKE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What the crowd is to do. Times in seconds."""

    tube: str = "frontier"
    workers: int = 16
    in_flight: int = 64
    fetch_seconds: float = 0.0
    patience_seconds: float = 10.0


async def connect(host: str, port: int, count: int) -> list[asynctnt.Connection]:
    """`count` connections as guest, without schema fetching and without silent reconnects."""
    connections = []
    for _ in range(count):
        connection = asynctnt.Connection(
            host=host,
            port=port,
            fetch_schema=False,
            auto_refetch_schema=False,
            reconnect_timeout=0,
        )
        await connection.connect()
        connections.append(connection)
    return connections


async def disconnect(connections: Sequence[asynctnt.Connection]) -> None:
    """Close all of them; one that is gone already is no error."""
    for connection in connections:
        try:
            await connection.disconnect()
        except UNKNOWN_ERRORS:
            continue


class Crowd:
    """One run over one set of connections, writing into one history.

    Every host belongs to one connection while putting, so that the order of sending is the order
    in which the server sees a host's URLs, however many requests are in flight.
    """

    def __init__(
        self, connections: Sequence[asynctnt.Connection], history: History, plan: Plan
    ) -> None:
        assert connections, "a crowd needs at least one connection"
        self._connections = connections
        self._history = history
        self._plan = plan
        self._position = 0
        self._expected: int | None = None
        self._last_progress = time.monotonic()

    async def create_tube(self) -> None:
        """Make the utube; an existing one of that name is taken as it is."""
        await self._connections[0].call(
            "queue.create_tube", [self._plan.tube, "utube", {"if_not_exists": True}]
        )

    async def left_in_tube(self) -> int:
        """How many tasks the server still counts in the tube, whatever their state."""
        reply = await self._connections[0].call("queue.statistics", [self._plan.tube])
        return int(reply.body[0]["tasks"]["total"])

    async def put_all(self, urls: Sequence[str]) -> None:
        """Put every URL once, pipelined; returns when each has an outcome."""
        shares: list[list[tuple[str, str]]] = [[] for _ in self._connections]
        places: dict[str, int] = {}
        for url in urls:
            host = host_of(url)
            place = places.setdefault(host, len(places) % len(shares))
            shares[place].append((url, host))
        async with asyncio.TaskGroup() as group:
            for connection, share in zip(self._connections, shares, strict=True):
                pending = iter(share)
                for _ in range(min(self._plan.in_flight, len(share))):
                    group.create_task(self._produce(connection, pending))
        self._expected = self._history.accepted

    async def _produce(
        self, connection: asynctnt.Connection, pending: Iterator[tuple[str, str]]
    ) -> None:
        """One lane of a connection: the next URL is sent the moment it is drawn."""
        name = f"queue.tube.{self._plan.tube}:put"
        for url, host in pending:
            put = Put(self._position, url, host, Outcome.UNKNOWN)
            self._position += 1
            try:
                reply = await connection.call(name, [url, {"utube": host}])
                put.task_id = int(reply.body[0][0])
                put.outcome = Outcome.OK
            except UNKNOWN_ERRORS as error:
                put.error = repr(error)
            except (TarantoolError, TypeError, IndexError) as error:
                put.outcome, put.error = Outcome.FAILED, str(error)
            self._history.record_put(put)

    async def work_all(self) -> float:
        """Take and acknowledge until everything accepted is processed, or nothing moves.

        Returns the moment (time.monotonic) of the last progress. Gives up `patience_seconds`
        after it; the verdict then names what is lost.
        """
        self._last_progress = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.workers):
                connection = self._connections[number % len(self._connections)]
                group.create_task(self._work(connection, number))
        return self._last_progress

    def _finished(self) -> bool:
        everything = self._expected is not None and self._history.processed >= self._expected
        silence = time.monotonic() - self._last_progress
        return everything or silence > self._plan.patience_seconds

    async def _work(self, connection: asynctnt.Connection, number: int) -> None:
        history, name = self._history, f"queue.tube.{self._plan.tube}:take"
        while not self._finished():
            history.waiting += 1
            try:
                reply = await connection.call(name, [_TAKE_SECONDS])
            except (*UNKNOWN_ERRORS, TarantoolDatabaseError):
                return
            finally:
                history.waiting -= 1
            taken_ns = time.monotonic_ns()
            if reply.body and reply.body[0] is not None:
                await self._process(connection, number, reply.body[0], taken_ns)

    async def _process(
        self,
        connection: asynctnt.Connection,
        number: int,
        task: Sequence[object],
        taken_ns: int,
    ) -> None:
        """Pretend to fetch one URL, then acknowledge it, and write down how that went."""
        task_id, url = int(str(task[0])), str(task[2])
        self._history.in_hand += 1
        await asyncio.sleep(self._plan.fetch_seconds)
        hold = Hold(
            url, host_of(url), task_id, number, taken_ns, time.monotonic_ns(), Outcome.UNKNOWN
        )
        try:
            await connection.call(f"queue.tube.{self._plan.tube}:ack", [task_id])
            hold.outcome = Outcome.OK
        except UNKNOWN_ERRORS as error:
            hold.error = repr(error)
        except TarantoolError as error:
            hold.outcome, hold.error = Outcome.FAILED, str(error)
        self._history.in_hand -= 1
        self._history.record_hold(hold)
        self._last_progress = time.monotonic()
