"""The client for programs without an event loop: the same calls, over a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tandemq.client.api import Client, connect
from tandemq.client.errors import Refused
from tandemq.client.task import Task
from tandemq.client.tube import FOR_EVER, Tube

T = TypeVar("T")


class _Loop:
    """A loop in a thread of its own, or the one that runs already."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop or asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        if loop is None:
            run = self.loop.run_forever
            self._thread = threading.Thread(target=run, name="tandemq", daemon=True)
            self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns. An interrupt (Ctrl-C) cancels it, and goes on."""
        if self.loop.is_closed():
            work.close()
            raise Refused("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        if self._thread is None or self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class SyncTask:
    """As Task, for code without an event loop; what it runs on is the client's.

    `with task:` acks, releases or buries as `async with` does, and the task is touched meanwhile. A
    loss of the task cannot interrupt the block: it is raised as LeaseLost when the block ends;
    `is_lost` tells before.
    """

    def __init__(self, loop: _Loop, task: Task) -> None:
        self._loop = loop
        self.task = task
        self.id = task.id
        self.data = task.data
        self.token = task.token
        self.attempt = task.attempt
        self.ttr = task.ttr
        self.reason = task.reason
        self.headers = task.headers

    def __repr__(self) -> str:
        return repr(self.task)

    @property
    def trace_context(self) -> Any:
        """As Task.trace_context."""
        return self.task.trace_context

    @property
    def is_lost(self) -> bool:
        """Whether the task is known to be no longer ours."""
        return self.task.is_lost

    def ack(self) -> None:
        """As Task.ack."""
        self._loop.run(self.task.ack())

    def finish(self, puts: Iterable[tuple[Any, ...]]) -> list[int] | None:
        """As Task.finish."""
        return self._loop.run(self.task.finish(puts))

    def release(self, delay: float | None = None, reason: str = "") -> None:
        """As Task.release; seconds."""
        self._loop.run(self.task.release(delay, reason))

    def bury(self, reason: str = "") -> None:
        """As Task.bury."""
        self._loop.run(self.task.bury(reason))

    def touch(self, seconds: float) -> None:
        """As Task.touch."""
        self._loop.run(self.task.touch(seconds))

    def __enter__(self) -> SyncTask:
        self._loop.run(self.task.enter(None))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self.task.__aexit__(kind, error, trace))


def for_threads(task: Task) -> SyncTask:
    """A task for code in a thread beside the running loop."""
    return SyncTask(_Loop(asyncio.get_running_loop()), task)


class SyncTube:
    """As Tube."""

    def __init__(self, loop: _Loop, tube: Tube) -> None:
        self._loop = loop
        self.tube = tube

    @property
    def name(self) -> str:
        """The tube's name."""
        return self.tube.name

    def call(
        self, method: str, args: list[Any], *, timeout: float | None = None, repeat: bool = False
    ) -> list[Any]:
        """As Tube.call."""
        return self._loop.run(self.tube.call(method, args, timeout=timeout, repeat=repeat))

    def put(
        self,
        data: Any,
        *,
        key: str | None = None,
        window: float | None = None,
        wait: float = 0.0,
        timeout: float | None = None,
        **options: Any,
    ) -> int:
        """As Tube.put; seconds."""
        work = self.tube.put(data, key=key, window=window, wait=wait, timeout=timeout, **options)
        return self._loop.run(work)

    def put_many(
        self,
        items: Iterable[Any],
        *,
        keys: Iterable[str] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> list[int]:
        """As Tube.put_many; seconds."""
        return self._loop.run(self.tube.put_many(items, keys=keys, timeout=timeout, **options))

    def take(self, timeout: float = FOR_EVER) -> SyncTask | None:
        """As Tube.take; seconds."""
        task = self._loop.run(self.tube.take(timeout))
        return None if task is None else SyncTask(self._loop, task)

    def take_many(self, count: int, timeout: float = 0.0) -> list[SyncTask]:
        """As Tube.take_many; seconds."""
        tasks = self._loop.run(self.tube.take_many(count, timeout))
        return [SyncTask(self._loop, task) for task in tasks]

    def consume(self) -> Iterator[SyncTask]:
        """As Tube.consume: `for task in tube.consume(): with task: ...`."""
        tasks = self.tube.consume()
        while True:
            yield SyncTask(self._loop, self._loop.run(_next(tasks)))


async def _next(tasks: AsyncIterator[Task]) -> Task:
    return await anext(tasks)


class SyncClient:
    """As Client; `with connect_sync(...) as client:`. One thread of its own runs the loop."""

    def __init__(self, loop: _Loop, client: Client) -> None:
        self._loop = loop
        self.client = client

    @property
    def node(self) -> str:
        """As Client.node."""
        return self.client.node

    @property
    def session(self) -> bytes | None:
        """As Client.session."""
        return self.client.session

    def tube(self, name: str, **options: Any) -> SyncTube:
        """As Client.tube."""
        return SyncTube(self._loop, self.client.tube(name, **options))

    def create_tube(self, name: str, kind: str = "fifottl", **options: Any) -> SyncTube:
        """As Client.create_tube."""
        return SyncTube(self._loop, self._loop.run(self.client.create_tube(name, kind, **options)))

    def alter_tube(self, name: str, **options: Any) -> dict[str, Any]:
        """As Client.alter_tube."""
        return self._loop.run(self.client.alter_tube(name, **options))

    def statistics(self, tube: str) -> dict[str, dict[str, int]]:
        """As Client.statistics."""
        return self._loop.run(self.client.statistics(tube))

    def call(self, name: str, *args: Any, repeat: bool = False) -> list[Any]:
        """As Client.call."""
        return self._loop.run(self.client.call(name, *args, repeat=repeat))

    def close(self) -> None:
        """Disconnect and end the thread; a second time does nothing."""
        if not self._loop.loop.is_closed():
            self._loop.run(self.client.close())
            self._loop.stop()

    def __enter__(self) -> SyncClient:
        try:
            self._loop.run(self.client.__aenter__())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect_sync(servers: str = "127.0.0.1:3301", **options: Any) -> SyncClient:
    """As connect, with the same options."""
    loop = _Loop()

    async def make() -> Client:
        return connect(servers, **options)

    try:
        return SyncClient(loop, loop.run(make()))
    except BaseException:
        loop.stop()
        raise
