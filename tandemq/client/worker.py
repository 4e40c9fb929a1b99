"""The worker runner: one function, many tasks at a time, an orderly end.

Here: the loop around a handler. Must not be here: flags and signals of the command (work.py).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tandemq.client.errors import LeaseLost, Refused, TandemError, Unavailable
from tandemq.client.task import Task
from tandemq.client.tube import Tube

log = logging.getLogger("tandemq")
Handler = Callable[[Task], Awaitable[Any] | Any]
_TAKE_SECONDS = 1.0


@dataclass(slots=True)
class Tally:
    """How many tasks were done, failed, or lost to others meanwhile."""

    done: int = 0
    failed: int = 0
    lost: int = 0


async def work(
    tube: Tube, handler: Handler, concurrency: int, stop: asyncio.Event, drain: float = 30.0
) -> Tally:
    """Run `handler(task)` for every task, `concurrency` at a time, until `stop` is set.

    Then no more tasks are taken, and those in hand have `drain` seconds; what is left is released.
    A plain function runs in a thread. Raises Refused (a tube that is not there, no right).
    """
    tally = Tally()
    threaded = not inspect.iscoroutinefunction(handler)

    async def lane() -> None:
        while not stop.is_set():
            try:
                task = await tube.take(_TAKE_SECONDS)
            except Unavailable as error:
                log.warning("%s; still trying", error)
                continue
            if task is not None:
                await _one(task, handler, threaded, tally)

    lanes = [asyncio.create_task(lane()) for _ in range(concurrency)]
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


async def _one(task: Task, handler: Handler, threaded: bool, tally: Tally) -> None:
    try:
        async with task:
            if threaded:
                await asyncio.to_thread(handler, task)
            else:
                await handler(task)
    except LeaseLost as error:
        tally.lost += 1
        log.warning("%r was lost: %s", task, error)
    except (Refused, TandemError) as error:
        tally.failed += 1
        log.warning("%r: %s", task, error)
    except Exception as error:
        tally.failed += 1
        log.warning("%r failed: %s: %s", task, type(error).__name__, error)
    else:
        tally.done += 1
