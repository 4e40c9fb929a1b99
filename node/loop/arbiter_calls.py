"""The seat's rim: calls to the arbiter, one after the other, and their answers to the keeper.

Two tasks: reads and swaps in order, and once a second that this node lives. A third listens for
changes. Every answer comes within `failover.timeout`; without one the keeper hears just that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tandemq.model.units import SECOND_US
from tandemq_server.arbiters.base import (
    Arbiter,
    ArbiterError,
    ArbiterRefused,
    SwapLost,
    Unreachable,
)
from tandemq_server.node.loop.clock import monotonic_us
from tandemq_server.statemachine.seat import Read, SeatReading, Swap

if TYPE_CHECKING:
    from tandemq_server.node.cluster.failover.keeper import SeatKeeper

#: How often a node says that it lives, in seconds, and looks whether the seat is as it was.
BEAT_SECONDS = 1.0


class ArbiterCalls:
    """flush(): something may have changed. report(text, error): a fault of our own."""

    def __init__(
        self,
        keeper: SeatKeeper,
        arbiter: Arbiter,
        flush: Callable[[], None],
        report: Callable[[str, BaseException | None], None],
    ) -> None:
        self.keeper = keeper
        self.arbiter = arbiter
        self.flush = flush
        self.report = report
        self._read_once = asyncio.Event()
        self._asked: asyncio.Queue[Read | Swap] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        keeper.ask = self._asked.put_nowait
        keeper.name = arbiter.name

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        runs = (self._register, self._beat, self._watch)
        self._tasks = [loop.create_task(self._for_ever(run)) for run in runs]
        self.keeper.ask(Read())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.arbiter.close()

    async def _for_ever(self, run: Callable[[], object]) -> None:
        """A fault of our own must not leave the node without its arbiter for good."""
        while True:
            try:
                await run()  # type: ignore[misc]
            except Exception as error:
                self.report(f"failover: {type(error).__name__}: {error}", error)
            await asyncio.sleep(BEAT_SECONDS)

    async def _register(self) -> None:
        while True:
            call = await self._asked.get()
            if isinstance(call, Swap):
                await self._swap(call)
            else:
                await self._read()
            self.flush()

    async def _read(self) -> None:
        try:
            reading = await self.arbiter.read()
        except ArbiterError as error:
            self.keeper.read_failed(str(error))
        else:
            self.keeper.heard(reading)
            self._read_once.set()

    async def _swap(self, swap: Swap) -> None:
        try:
            reading = await self.arbiter.swap(swap.revision, swap.seat)
        except SwapLost as lost:
            self.keeper.lost(swap, lost.reading)
        except Unreachable as error:
            self.keeper.silent(swap, str(error))
        except ArbiterRefused as error:
            # Nothing was changed; as for what is there, it is as if nobody had answered.
            self.keeper.silent(swap, str(error))
        else:
            self.keeper.won(swap, reading)

    async def _beat(self) -> None:
        while True:
            began = monotonic_us()
            try:
                await self.arbiter.keep_alive(self.keeper.settings.name)
                alive = await self.arbiter.alive()
            except ArbiterError as error:
                self.keeper.no_answer(str(error))
            else:
                self.keeper.beaten(alive, began)
            if self._asked.empty():
                self.keeper.ask(Read())
            await asyncio.sleep(max(0.1, BEAT_SECONDS - (monotonic_us() - began) / SECOND_US))

    async def _watch(self) -> None:
        """What is missed here, the read of each second tells."""
        while True:
            # A node that has just started may be made the partner, and be needed, within a second.
            await self._read_once.wait()
            known: SeatReading | None = self.keeper.view.reading
            if known is not None:
                try:
                    async for reading in self.arbiter.watch(known.revision):
                        self.keeper.watched(reading)
                        self.flush()
                except ArbiterError:
                    pass
            await asyncio.sleep(BEAT_SECONDS)
