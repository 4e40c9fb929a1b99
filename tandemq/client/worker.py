"""The worker runner: one function, many tasks at a time, an orderly end.

Here: the loop around a handler. Must not be here: flags and signals of the command (work.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
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
    tube: Tube, handler: Handler, concurrency: int, stop: asyncio.Event, drain: float = 30.0
) -> Tally:
    """Run `handler(task)` for every task, `concurrency` at a time, until `stop` is set.

    Then no more tasks are taken, and those in hand have `drain` seconds; what is left is released.
    A plain function gets a SyncTask and runs in a thread, which nothing can interrupt: who has lost
    his task, or is late, runs on, and a lane whose thread does so takes no other task. Raises
    Refused (a tube that is not there, no right).
    """
    tally = Tally()
    threaded = not (
        inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
    )

    async def lane() -> None:
        while not stop.is_set():
            try:
                task = await tube.take(_TAKE_SECONDS)
            except (Unavailable, Unknown) as error:
                log.warning("%s; still trying", error)
                await asyncio.sleep(0.1)
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
        log.warning("%r failed: %s: %s", task, type(error).__name__, error)
    else:
        tally.done += 1
    if thread is not None:
        await thread.over.wait()


class _Thread:
    """A plain function in a thread that neither a pool's size nor the program's end waits for."""

    def __init__(self, handler: Callable[[SyncTask], Any], task: Task) -> None:
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[None] = self._loop.create_future()
        self._context = contextvars.copy_context()
        self._handler, self._task = handler, for_threads(task)
        #: Set while no thread runs.
        self.over = asyncio.Event()
        self.over.set()

    async def run(self) -> None:
        """Raises what the function raises."""
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
