"""A tube as producers and workers see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

from tandemq.client.errors import TandemError, TubeFull, Unavailable, Unknown
from tandemq.client.link import MasterLink
from tandemq.client.task import Task
from tandemq.client.tracing import traced

log = logging.getLogger("tandemq")
FOR_EVER = 3600.0
#: A take is asked anew so often: a connection that died without a word is noticed by that.
_POLL_SECONDS = 10.0
_TOLD = {"token": True, "info": True}


class Tube:
    """A tube by name. All times are seconds.

    ttr: touch tasks while they are worked on as if a worker had so long; unless given, what the
    server says of each task; 0: never touch.
    max_attempts: a task that failed so often is buried. Unless given, a tube created with
    `max_attempts` decides itself (and sends dead letters), in others it is 5.
    backoff, backoff_max: how long a failed task waits, doubled with every attempt and jittered.
    Unless `backoff` is given, a tube created with `retry_delay` decides itself, in others it is 1.
    timeout: how long a call may take, switch-overs included.
    """

    def __init__(
        self,
        link: MasterLink,
        name: str,
        *,
        ttr: float | None = None,
        max_attempts: int | None = None,
        backoff: float | None = None,
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
        self,
        method: str,
        args: list[Any],
        *,
        timeout: float | None = None,
        repeat: bool = False,
        wait: float = 0.0,
    ) -> list[Any]:
        """Any other method of the tube (docs/calls.md); `repeat`, `wait` and errors: Link.call."""
        limit = self.timeout if timeout is None else timeout
        name = f"queue.tube.{self.name}:{method}"
        return await self.link.call(name, args, limit, repeat=repeat, wait=wait)

    async def put(
        self,
        data: Any,
        *,
        key: str | None = None,
        window: float | None = None,
        wait: float = 0.0,
        timeout: float | None = None,
        **options: Any,
    ) -> int:
        """The id of the new task. Options as of the call `put`: ttl, ttr, delay (seconds) ...

        With a `key`, further puts of it within `window` seconds answer with the first task's id,
        and an unanswered put is repeated until `timeout`. `wait`: seconds to wait for room in a
        tube with `overflow = "wait"`. Where `opentelemetry-api` is installed and no `headers` are
        given, the current trace context goes along. Raises Refused (full, paused, no right ...),
        Unavailable, Unknown, and TypeError for data that MessagePack cannot hold.
        """
        if key is not None:
            options["key"] = key
            if window is not None:
                options["window"] = window
        elif window is not None:
            raise ValueError("window without a key")
        if wait > 0:
            options["timeout"] = wait
        options = traced(options)
        args = [data, options] if options else [data]
        answer = await self.call("put", args, timeout=timeout, repeat=key is not None, wait=wait)
        if not answer or answer[0] is None:
            text = f"Tube {self.name} is full: no room within {wait:g} s"
            raise TubeFull(text, call=f"queue.tube.{self.name}:put")
        return int(answer[0][0])

    async def put_many(
        self,
        items: Iterable[Any],
        *,
        keys: Iterable[str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> list[int]:
        """Ids in order; one transaction, all or nothing, at most 10,000. Options for all of them.

        With `keys`, one for each item, it is repeated when unanswered and stores nothing twice;
        without, never. Raises Refused, Unavailable, Unknown, TypeError; ValueError if the keys are
        not as many as the items.
        """
        rows = [[data] for data in items]
        if keys is not None:
            rows = [[*row, {"key": key}] for row, key in zip(rows, keys, strict=True)]
        if not rows:
            return []
        options = traced(options)
        args: list[Any] = [rows, options] if options else [rows]
        answer = await self.call("put_many", args, timeout=timeout, repeat=keys is not None)
        return [int(number) for number in answer[0]]

    async def take(self, timeout: float = FOR_EVER) -> Task | None:
        """The next task, None after `timeout` seconds (0: at once if there is none).

        A switch-over meanwhile is waited out, at most for the tube's `timeout`. Raises Refused,
        Unavailable, Unknown (no answer: what it may have taken is released on reconnecting).
        """
        loop = asyncio.get_running_loop()
        limit = loop.time() + timeout
        while True:
            wait = max(0.0, min(limit - loop.time(), _POLL_SECONDS))
            tasks = await self._take("take", [wait, _TOLD], wait)
            if tasks:
                return tasks[0]
            if loop.time() >= limit:
                return None

    async def take_many(self, count: int, timeout: float = 0.0) -> list[Task]:
        """Up to `count` tasks, after waiting up to `timeout` seconds for a first one.

        They are touched only while their blocks run: take no more than fit into one ttr. Raises
        Refused, Unavailable, Unknown.
        """
        return await self._take("take_many", [count, timeout, _TOLD], timeout)

    async def _take(self, method: str, args: list[Any], wait: float) -> list[Task]:
        """A take may be repeated: what it took without our knowing is released on reconnecting.

        Cancelled, it goes on in the background, and what it still takes is released.
        """
        tasks: list[Task] = []

        def receive(answer: list[Any]) -> None:
            # A node that ends answers who waits with nothing at all.
            rows = answer[0] if answer and method == "take_many" else answer
            tasks.extend(Task(self, row[0], row[2], row[3]) for row in rows if row is not None)

        name = f"queue.tube.{self.name}:{method}"
        asking = asyncio.create_task(
            self.link.call(name, args, self.timeout, wait=wait, repeat=True, receive=receive)
        )
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            self.link.spawn(self._take_back(asking, tasks))
            raise
        return tasks

    async def _take_back(self, asking: asyncio.Task[Any], tasks: list[Task]) -> None:
        try:
            await asking
            for task in tasks:
                await task.release(0)
        except TandemError as error:
            if not self.link.closed:
                log.warning("%s: a cancelled take: %s", self.name, error)

    async def consume(self) -> AsyncIterator[Task]:
        """Tasks for ever, one by one: `async for task in tube.consume(): async with task: ...`.

        While no node can be reached it goes on trying, with a warning in the log each time the
        tube's `timeout` is over. Raises Refused (no such tube, no right).
        """
        while True:
            try:
                task = await self.take()
            except (Unavailable, Unknown) as error:
                log.warning("%s: %s; still trying", self.name, error)
                await asyncio.sleep(0.1)
                continue
            if task is not None:
                yield task
