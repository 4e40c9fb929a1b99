"""The worker runner: one function, many tasks at a time, an orderly end.

Here: the loop around a handler. Must not be here: flags and signals of the command (work.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import math
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tandemq.client.errors import LeaseLost, TandemError, Unavailable, Unknown
from tandemq.client.sync import SyncTask, for_threads
from tandemq.client.task import Task
from tandemq.client.tube import Tube

log = logging.getLogger("tandemq")
Handler = Callable[[Task], Awaitable[Any]] | Callable[[SyncTask], Any]
_TAKE_SECONDS = 1.0


@dataclass(slots=True)
class Tally:
    """How tasks ended: done, failed and given back, lost to others, or nobody can say."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    unknown: int = 0


async def work(
    tubes: Tube | Sequence[tuple[Tube, float]],
    handler: Handler,
    concurrency: int,
    stop: asyncio.Event,
    drain: float = 30.0,
) -> Tally:
    """Run `handler(task)` for every task, `concurrency` at a time, until `stop` is set.

    Of several tubes, given with weights: while all of them have tasks, each is served as often as
    its weight says. Then no more tasks are taken, and those in hand have `drain` seconds; what is
    left is released.

    A plain function gets a SyncTask and runs in a thread, which nothing can interrupt: who has lost
    his task, or is late, runs on, and a lane whose thread does so takes no other task. Raises
    Refused (a tube that is not there, no right).
    """
    tally = Tally()
    threaded = not (
        inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
    )

    sources = Sources([(tubes, 1.0)] if isinstance(tubes, Tube) else tubes)

    async def lane(number: int) -> None:
        while not stop.is_set():
            try:
                task = await sources.take(number)
            except (Unavailable, Unknown) as error:
                log.warning("%s; still trying", error)
                await asyncio.sleep(0.1)
                continue
            if task is not None:
                await _one(task, handler, threaded, tally)

    lanes = [asyncio.create_task(lane(number)) for number in range(concurrency)]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*lanes, stopping], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        _, late = await asyncio.wait(lanes, timeout=drain)
        if late:
            log.warning("%d tasks took longer than %g s to drain: released", len(late), drain)
    finally:
        for one in (*lanes, stopping):
            one.cancel()
        results = await asyncio.gather(*lanes, return_exceptions=True)
        await asyncio.gather(stopping, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return tally


class Sources:
    """Tubes with weights: who has tasks is asked in an order drawn anew each time.

    When none has any, a lane waits at one tube for a moment, each lane at another one: with as many
    lanes as tubes a task is begun at once, with one lane within WAIT_SECONDS for each other tube.
    """

    WAIT_SECONDS = 0.25

    def __init__(self, tubes: Sequence[tuple[Tube, float]]) -> None:
        """Raises ValueError for no tube, one given twice, or a weight that is not above 0."""
        names = [tube.name for tube, _ in tubes]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"tubes, each once, are needed, not {', '.join(names) or 'none'}")
        for tube, weight in tubes:
            if not 0 < weight < math.inf:
                raise ValueError(f"the weight of {tube.name} is {weight}, and must be above 0")
        self._tubes = list(tubes)
        self._turns: dict[int, int] = {}

    async def take(self, lane: int) -> Task | None:
        """A task for that lane, None after about a second."""
        if len(self._tubes) == 1:
            return await self._tubes[0][0].take(_TAKE_SECONDS)
        for tube in self._order():
            if (task := await tube.take(0)) is not None:
                return task
        turn = self._turns.get(lane, lane)
        self._turns[lane] = turn + 1
        return await self._tubes[turn % len(self._tubes)][0].take(self.WAIT_SECONDS)

    def _order(self) -> list[Tube]:
        """All tubes, each of them the next with a chance by its weight."""
        drawn = sorted(self._tubes, key=lambda one: random.random() ** (1 / one[1]), reverse=True)
        return [tube for tube, _ in drawn]


async def _one(task: Task, handler: Any, threaded: bool, tally: Tally) -> None:
    thread = _Thread(handler, task) if threaded else None
    try:
        async with task:
            await (handler(task) if thread is None else thread.run())
    except LeaseLost as error:
        tally.lost += 1
        log.warning("%r was lost: %s", task, error)
    except TandemError as error:
        # Not ended: it was the ack that nobody answered, not the handler that failed.
        tally.failed += task.ended
        tally.unknown += not task.ended
        log.warning("%r: %s", task, error)
    except Exception as error:
        tally.failed += 1
        # The whole trace: what a handler raised is nowhere else to be seen.
        log.warning(
            "task %d of %s failed at attempt %d with %s: %s; %s",
            *(task.id, task.tube.name, task.attempt, type(error).__name__, error),
            task.next_try or "it could not be given back",
            exc_info=error,
        )
    else:
        tally.done += 1
    if thread is not None:
        await thread.over.wait()


class _Thread:
    """A plain function in a thread that neither a pool's size nor the program's end waits for."""

    def __init__(self, handler: Callable[[SyncTask], Any], task: Task) -> None:
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[None] = self._loop.create_future()
        self._handler, self._task = handler, for_threads(task)
        #: Set while no thread runs.
        self.over = asyncio.Event()
        self.over.set()

    async def run(self) -> None:
        """Raises what the function raises. It sees the context this is called in."""
        self._context = contextvars.copy_context()
        self.over.clear()
        threading.Thread(target=self._work, name="tandemq work", daemon=True).start()
        await self._outcome

    def _work(self) -> None:
        error: Exception | None = None
        try:
            self._context.run(self._handler, self._task)
        except Exception as failure:
            error = failure
        except BaseException as failure:
            error = RuntimeError(f"the function ended with {failure!r}")
        if isinstance(error, StopIteration):  # a future cannot hold that one
            error = RuntimeError(repr(error))
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            self._loop.call_soon_threadsafe(self._ended, error)

    def _ended(self, error: Exception | None) -> None:
        self.over.set()
        if self._outcome.done():
            return
        if error is None:
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(error)
