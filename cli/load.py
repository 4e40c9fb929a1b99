"""Load on a server: puts, then takes and acks, a fixed number of requests always in flight.

Here: requests and their times. Must not be here: how they are shown (bench.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandemq_server.cli.output import REFUSED, CommandError

if TYPE_CHECKING:
    import asynctnt

    from tandemq_server.cli.remote import Remote

Progress = Callable[[str, int, float], None]
_DRAW_SECONDS = 0.1
_WAIT_SECONDS = 1.0
_CAPACITY = 100_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. in_flight: requests a connection; size: bytes; tube: None for one of our own."""

    kind: str
    count: int
    connections: int
    in_flight: int
    size: int
    utubes: int
    tube: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """One kind of request. Latencies in milliseconds; rate in requests a second of its phase."""

    what: str
    count: int
    seconds: float
    rate: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


def summary(what: str, times: list[float], seconds: float) -> Result:
    """Percentiles by nearest rank; `times` in seconds, in any order."""
    ranked = sorted(times) or [0.0]
    count = len(times)

    def at(percent: int) -> float:
        return ranked[max(0, -(-len(ranked) * percent // 100) - 1)] * 1000

    rate = count / max(seconds, 1e-9)
    return Result(what, count, seconds, rate, at(50), at(95), at(99), ranked[-1] * 1000)


class Load:
    """One run. progress(phase, done, seconds) is called ten times a second."""

    def __init__(self, remote: Remote, plan: Plan, progress: Progress) -> None:
        self.remote = remote
        self.plan = plan
        self.progress = progress
        self.tube = plan.tube or f"bench_{os.getpid()}"
        self.times: dict[str, list[float]] = {"put": [], "take": [], "ack": []}
        self.started = 0

    def run(self) -> list[Result]:
        """Blocks until done. Raises what the connector raises, CommandError when tasks are gone."""
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._run())

    async def _run(self) -> list[Result]:
        async with self._connections() as connections:
            put = await self._phase("put", connections, self._put)
            both = await self._phase("take+ack", connections, self._take_and_ack)
        return [
            summary("put", self.times["put"], put),
            summary("take", self.times["take"], both),
            summary("ack", self.times["ack"], both),
        ]

    @contextlib.asynccontextmanager
    async def _connections(self) -> AsyncIterator[list[asynctnt.Connection]]:
        """Connections with a tube; afterwards no trace of a tube that was made for the run."""
        opened: list[asynctnt.Connection] = []
        try:
            while len(opened) < self.plan.connections:
                opened.append(await self.remote.connect())
            if self.plan.tube is None:
                limited = self.plan.kind == "limfifottl"
                options = {"capacity": _CAPACITY} if limited else {}
                await opened[0].call("queue.create_tube", [self.tube, self.plan.kind, options])
            yield opened
        finally:
            for connection in opened[1:]:
                await connection.disconnect()
            if opened and self.plan.tube is None:
                with contextlib.suppress(Exception):
                    for method in ("release_all", "truncate", "drop"):
                        await opened[0].call(f"queue.tube.{self.tube}:{method}")
            for connection in opened[:1]:
                await connection.disconnect()

    async def _phase(
        self,
        name: str,
        connections: list[asynctnt.Connection],
        worker: Callable[[asynctnt.Connection], Coroutine[None, None, None]],
    ) -> float:
        self.started = 0
        began = time.perf_counter()
        done = self.times[name.split("+")[-1]]

        async def draw() -> None:
            while True:
                self.progress(name, len(done), time.perf_counter() - began)
                await asyncio.sleep(_DRAW_SECONDS)

        try:
            async with asyncio.TaskGroup() as group:
                drawing = group.create_task(draw())
                workers = [
                    group.create_task(worker(connection))
                    for connection in connections
                    for _ in range(self.plan.in_flight)
                ]
                await asyncio.wait(workers)
                drawing.cancel()
        except BaseExceptionGroup as several:
            # One line is enough: the first that went wrong.
            raise several.exceptions[0] from None
        return time.perf_counter() - began

    async def _put(self, connection: asynctnt.Connection) -> None:
        payload, name = "x" * self.plan.size, f"queue.tube.{self.tube}:put"
        grouped = self.plan.kind.startswith("utube")
        times, clock = self.times["put"], time.perf_counter
        while (number := self.started) < self.plan.count:
            self.started = number + 1
            options = {"utube": str(number % self.plan.utubes)} if grouped else {}
            began = clock()
            await connection.call(name, [payload, options])
            times.append(clock() - began)

    async def _take_and_ack(self, connection: asynctnt.Connection) -> None:
        take, ack = f"queue.tube.{self.tube}:take", f"queue.tube.{self.tube}:ack"
        takes, acks, clock = self.times["take"], self.times["ack"], time.perf_counter
        while self.started < self.plan.count:
            self.started += 1
            began = clock()
            answer = await connection.call(take, [_WAIT_SECONDS])
            taken = clock()
            if not answer.body or answer.body[0] is None:
                raise CommandError(
                    f"{self.tube}: tasks are missing after {len(acks)}",
                    REFUSED,
                    "is somebody else taking from this tube?",
                )
            takes.append(taken - began)
            await connection.call(ack, [answer.body[0][0]])
            acks.append(clock() - taken)
