"""The client for programs without an event loop: the same calls, over a loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tandemq.client.api import Client, connect
from tandemq.client.task import Task
from tandemq.client.tube import FOR_EVER, Tube

T = TypeVar("T")


class _Loop:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="tandemq", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class SyncTask:
    """As Task; `with task:` acks, releases or buries as `async with` does.

    A loss of the task cannot interrupt the block: it is raised as LeaseLost when the block ends.
    """

    def __init__(self, loop: _Loop, task: Task) -> None:
        self._loop = loop
        self.task = task
        self.id = task.id
        self.data = task.data
        self.attempt = task.attempt

    @property
    def is_lost(self) -> bool:
        """Whether the task is known to be no longer ours."""
        return self.task.is_lost

    def ack(self) -> None:
        """As Task.ack."""
        self._loop.run(self.task.ack())

    def release(self, delay: float = 0.0, reason: str = "") -> None:
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


class SyncTube:
    """As Tube."""

    def __init__(self, loop: _Loop, tube: Tube) -> None:
        self._loop = loop
        self.tube = tube

    def put(self, data: Any, **options: Any) -> int:
        """As Tube.put."""
        return self._loop.run(self.tube.put(data, **options))

    def put_many(self, items: Iterable[Any], **options: Any) -> list[int]:
        """As Tube.put_many."""
        return self._loop.run(self.tube.put_many(items, **options))

    def take(self, timeout: float = FOR_EVER) -> SyncTask | None:
        """As Tube.take; seconds."""
        task = self._loop.run(self.tube.take(timeout))
        return None if task is None else SyncTask(self._loop, task)

    def take_many(self, count: int, timeout: float = 0.0) -> list[SyncTask]:
        """As Tube.take_many; seconds."""
        tasks = self._loop.run(self.tube.take_many(count, timeout))
        return [SyncTask(self._loop, task) for task in tasks]

    def consume(self) -> Iterator[SyncTask]:
        """Tasks for ever."""
        while True:
            task = self.take()
            if task is not None:
                yield task


class SyncClient:
    """As Client; `with connect_sync(...) as client:`. One thread of its own runs the loop."""

    def __init__(self, loop: _Loop, client: Client) -> None:
        self._loop = loop
        self.client = client

    @property
    def node(self) -> str:
        """As Client.node."""
        return self.client.node

    def tube(self, name: str, **options: Any) -> SyncTube:
        """As Client.tube."""
        return SyncTube(self._loop, self.client.tube(name, **options))

    def create_tube(self, name: str, kind: str = "fifottl", **options: Any) -> SyncTube:
        """As Client.create_tube."""
        return SyncTube(self._loop, self._loop.run(self.client.create_tube(name, kind, **options)))

    def call(self, name: str, *args: Any, repeat: bool = False) -> list[Any]:
        """As Client.call."""
        return self._loop.run(self.client.call(name, *args, repeat=repeat))

    def close(self) -> None:
        """Disconnect and end the thread."""
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
