"""A broker for Taskiq: `broker = TandemBroker("a:3301,b:3302")`.

A task is acknowledged when Taskiq says so, after the work and the saving of its result unless told
otherwise, and until then it is this worker's, over a switch-over too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqMiddleware
from taskiq.exceptions import NoResultError
from taskiq.result import TaskiqResult

from tandemq.brokers import make_tube, put_options
from tandemq.client.api import Client, connect
from tandemq.client.errors import LeaseLost, TandemError
from tandemq.client.task import Task

log = logging.getLogger("tandemq")


class TandemBroker(AsyncBroker):
    """Taskiq's tasks as tasks of a tube.

    Labels of a task or a call: `delay` (seconds), `priority` (0 to 255, the larger first), `key`
    and `window` (idempotency), `order` (tasks of the same name one after the other; for brokers
    made with `ordered=True`), `ttl` (seconds to live), `queue_name` (another tube).
    """

    def __init__(
        self,
        servers: str = "127.0.0.1:3301",
        *,
        tube: str = "taskiq",
        tubes: Iterable[str] = (),
        ordered: bool = False,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        tube_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`tube`: where tasks go and come from; `tubes`: further ones this worker serves.

        `max_attempts`: the server gives a task that failed out again so often, after the pauses of
        `tube_options` (`retry_delay`, ..., docs/tube-options.md), and then moves it to the tube
        `dead_letter`, or buries it; without it a task that failed is done, as with other brokers,
        unless a middleware of Taskiq sends it again. `options`: those of `tandemq.connect`.
        """
        super().__init__()
        self.servers = servers
        self.tube = tube
        self.tubes = [tube, *(name for name in tubes if name != tube)]
        self.ordered = ordered
        self.max_attempts = max_attempts
        self.dead_letter = dead_letter
        self.tube_options = dict(tube_options or {})
        if max_attempts is not None:
            self.tube_options["max_attempts"] = max_attempts
            if dead_letter is not None:
                self.tube_options["dead_letter"] = dead_letter
            self.add_middlewares(_Attempts())
        elif dead_letter is not None:
            raise ValueError("dead_letter without max_attempts: nothing would ever go there")
        self.options = options
        #: Tasks of a tube that counts attempts, while they are worked on, by Taskiq's id.
        self.working: dict[str, Task] = {}
        self.failures: dict[str, BaseException] = {}
        self._client: Client | None = None
        self._made: dict[str, asyncio.Lock] = {}

    async def startup(self) -> None:
        """Connect, and make the tubes. Raises Unavailable, Refused."""
        await super().startup()
        for name in self.tubes:
            await self._tube(name)

    async def shutdown(self) -> None:
        """Give back what was taken and not begun, and leave."""
        await super().shutdown()
        client, self._client = self._client, None
        if client is not None:
            for task in list(client.link.held.values()):
                await _quietly(task.release(0, "the worker ended"), task)
            await client.close()
        self._made.clear()

    async def _tube(self, name: str) -> Any:
        if self._client is None:
            self._client = connect(self.servers, **self.options)
        lock = self._made.setdefault(name, asyncio.Lock())
        async with lock:
            if not getattr(lock, "made", False):
                await make_tube(
                    self._client, name, self.tube_options, self.ordered, self.dead_letter
                )
                lock.made = True  # type: ignore[attr-defined]
        return self._client.tube(name)

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; repeated until it is answered, and never two of it. Raises TandemError."""
        labels = message.labels
        tube = await self._tube(str(labels.get("queue_name") or self.tube))
        delay, ttl = labels.get("delay"), labels.get("ttl")
        options = put_options(
            ordered=self.ordered,
            delay=None if delay is None else float(delay),
            priority=labels.get("priority"),
            key=labels.get("key"),
            window=labels.get("window"),
            order=labels.get("order"),
            ttl=None if ttl is None else float(ttl),
        )
        await tube.put(message.message, **options)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks as they come; each is touched from here to its acknowledgement."""
        arrived: asyncio.Queue[Task] = asyncio.Queue(1)

        async def serve(name: str) -> None:
            tube = await self._tube(name)
            async for task in tube.consume():
                await task.enter(None)
                await arrived.put(task)

        lanes = [asyncio.create_task(serve(name)) for name in self.tubes]
        try:
            while True:
                getting = asyncio.create_task(arrived.get())
                done, _ = await asyncio.wait({getting, *lanes}, return_when=asyncio.FIRST_COMPLETED)
                if getting not in done:
                    getting.cancel()
                    next(iter(done)).result()  # a lane ends only by an error
                    continue
                yield self._message(getting.result())
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    def _message(self, task: Task) -> AckableMessage:
        data = task.data if isinstance(task.data, bytes) else str(task.data).encode()
        name = self._remember(task, data) if self.max_attempts is not None else None

        async def ack() -> None:
            failure = None if name is None else self.failures.pop(name, None)
            if name is not None:
                self.working.pop(name, None)
            if failure is None:
                await _quietly(task.ack(), task)
            else:
                reason = f"{type(failure).__name__}: {failure}"
                await _quietly(task.release(reason=reason), task)

        return AckableMessage(data=data, ack=ack)

    def _remember(self, task: Task, data: bytes) -> str | None:
        try:
            name = self.formatter.loads(data).task_id
        except Exception:
            return None  # Taskiq tells of what it cannot read
        self.working[name] = task
        return name


class _Attempts(TaskiqMiddleware):
    """A task that failed goes back to its tube, which knows when and how often it comes again."""

    broker: TandemBroker

    def on_error(
        self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException
    ) -> None:
        """Only the last attempt's result is the task's."""
        task = self.broker.working.get(message.task_id)
        if task is None or isinstance(exception, NoResultError):
            return
        self.broker.failures[message.task_id] = exception
        assert self.broker.max_attempts is not None
        if task.attempt < self.broker.max_attempts:
            result.error = NoResultError()


async def _quietly(ending: Any, task: Task) -> None:
    """The work is done whatever becomes of the acknowledgement: its loss is told, not raised."""
    try:
        await ending
    except LeaseLost as error:
        log.warning("%r was lost while it was worked on, another worker has it: %s", task, error)
    except TandemError as error:
        task.tube.link.abandon(task.tube.name, task.id)
        log.error("%r is not acknowledged and will come again: %s", task, error)


__all__ = ["TandemBroker"]
