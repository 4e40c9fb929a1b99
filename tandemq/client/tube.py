"""A tube as producers and workers see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tandemq.client.errors import Refused, TandemError
from tandemq.client.link import Link
from tandemq.client.task import Task

log = logging.getLogger("tandemq")
FOR_EVER = 3600.0
_POLL_SECONDS = 20.0


class Tube:
    """`ttr`: seconds a worker has per task; given, tasks are touched while worked on.

    `max_attempts`: a task that failed so often is buried; `backoff`, `backoff_max`: seconds a
    failed task waits, doubled with every attempt, jittered. `timeout`: seconds a call may take.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        *,
        ttr: float | None = None,
        max_attempts: int = 5,
        backoff: float = 1.0,
        backoff_max: float = 300.0,
        timeout: float = 30.0,
    ) -> None:
        self.link = link
        self.name = name
        self.ttr = ttr
        self.max_attempts = max_attempts
        self.backoff = backoff
        self.backoff_max = backoff_max
        self.timeout = timeout

    async def call(
        self, method: str, args: list[Any], *, timeout: float | None = None, repeat: bool = False
    ) -> list[Any]:
        """Any other method of the tube (docs/calls.md); what `repeat` does, see Link.call."""
        limit = self.timeout if timeout is None else timeout
        return await self.link.call(f"queue.tube.{self.name}:{method}", args, limit, repeat=repeat)

    async def put(
        self,
        data: Any,
        *,
        key: str | None = None,
        window: float | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> int:
        """The id of the new task. Options as of the call `put`: ttl, ttr, delay (seconds) ...

        With a `key`, further puts of it within `window` seconds answer with the first task's id,
        and an unanswered put is repeated until `timeout`. Raises Refused, Unavailable, Unknown.
        """
        if key is not None:
            options["key"] = key
            if window is not None:
                options["window"] = window
        args = [data, options] if options else [data]
        answer = await self.call("put", args, timeout=timeout, repeat=key is not None)
        if not answer or answer[0] is None:
            raise Refused(f"tube {self.name} is full")
        return int(answer[0][0])

    async def put_many(
        self, items: Iterable[Any], *, timeout: float | None = None, **options: Any
    ) -> list[int]:
        """Ids in order; one transaction, all or nothing, at most 10,000. Options for all of them.

        Never repeated when unanswered. Raises Refused, Unavailable, Unknown.
        """
        rows = [[data] for data in items]
        if not rows:
            return []
        args: list[Any] = [rows, options] if options else [rows]
        answer = await self.call("put_many", args, timeout=timeout)
        return [int(number) for number in answer[0]]

    async def take(self, timeout: float = FOR_EVER) -> Task | None:
        """The next task, None after `timeout` seconds (0: at once if there is none).

        A switch-over meanwhile is waited out. Raises Refused, Unavailable.
        """
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout
        while True:
            wait = max(0.0, min(limit - loop.time(), _POLL_SECONDS))
            answer = await self._take("take", [wait, {"token": True, "info": True}], wait)
            if answer and answer[0] is not None:
                return self._task(answer[0])
            if loop.time() >= limit:
                return None

    async def take_many(self, count: int, timeout: float = 0.0) -> list[Task]:
        """Up to `count` tasks, after waiting up to `timeout` seconds for a first one.

        Their `attempt` counts only what failed in this client. Raises Refused, Unavailable.
        """
        answer = await self._take("take_many", [count, timeout, {"token": True}], timeout)
        return [self._task(row) for row in answer[0]]

    async def _take(self, method: str, args: list[Any], wait: float) -> list[Any]:
        """A take may be repeated: what it took without our knowing is released on reconnecting.

        Cancelled, it goes on in the background, and what it still takes is released.
        """
        name = f"queue.tube.{self.name}:{method}"
        asking = asyncio.create_task(
            self.link.call(name, args, self.timeout, wait=wait, repeat=True, take=True)
        )
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self.link.spawn(self._take_back(asking, method == "take_many"))
            raise

    async def _take_back(self, asking: asyncio.Task[list[Any]], many: bool) -> None:
        try:
            answer = await asking
            for row in (answer[0] if many else answer) if answer else ():
                if row is not None:
                    await self._task(row).release()
        except TandemError as error:
            log.warning("%s: a cancelled take: %s", self.name, error)

    async def consume(self) -> AsyncIterator[Task]:
        """Tasks for ever, one by one: `async for task in tube.consume(): async with task: ...`."""
        while True:
            task = await self.take()
            if task is not None:
                yield task

    def _task(self, row: Any) -> Task:
        last = row[3]
        if isinstance(last, dict):
            return Task(self, row[0], row[2], last["token"], last.get("attempts"))
        return Task(self, row[0], row[2], last, None)
