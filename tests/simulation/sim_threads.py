"""What a node does beside its loop: threads that wait in the disk, a pool, and an asyncio loop.

A thread is a greenlet: it runs alone until it waits in a sync, where virtual time passes, and goes
on from there. So the order in which things happen is the seed's, and no real thread runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from tests.simulation.sim_node import SimNode


class Died(BaseException):
    """The machine's process ended in the middle of an operation; nothing of it runs on."""


class Thread:
    """`call()` beside the loop; `done(error or None)` when it has ended, back in the loop."""

    def __init__(
        self,
        node: SimNode,
        call: Callable[[], object],
        done: Callable[[object, BaseException | None], None],
    ) -> None:
        self.node = node
        self.call = call
        self.done = done
        self.ended = False
        #: Whoever waits for the thread: it goes through without letting time pass.
        self.hurried = False
        self._greenlet = greenlet(self._run)
        node.threads.append(self)

    def _run(self) -> None:
        value: object = None
        error: BaseException | None = None
        try:
            value = self.call()
        except (Died, GreenletExit):
            return
        except Exception as caught:
            error = caught
        finally:
            self.ended = True
            if self in self.node.threads:
                self.node.threads.remove(self)
        self.done(value, error)

    def go_on(self) -> None:
        if not self.ended:
            self._greenlet.parent = getcurrent()
            self._greenlet.switch()

    def finish(self) -> None:
        self.hurried = True
        while not self.ended:
            self.go_on()

    def wait(self, us: int) -> None:
        """To be called in the thread: `us` pass, in which the loop goes on."""
        if not self.hurried:
            self.node.soon(us, self.go_on)
            assert self._greenlet.parent is not None
            self._greenlet.parent.switch()

    def end(self) -> None:
        """The process is gone."""
        self.ended = True
        if self._greenlet is getcurrent() or not self._greenlet:
            return
        self._greenlet.parent = getcurrent()
        with suppress(Died, GreenletExit):
            self._greenlet.throw(GreenletExit)


def current(node: SimNode) -> Thread | None:
    """The thread of this node that runs at the moment, None for its loop."""
    running = getcurrent()
    return next((thread for thread in node.threads if thread._greenlet is running), None)


class VirtualSyncer:
    """Syncs beside the loop, each as long as the disk takes; in one seed of four in the loop."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.quick = node.world.seed % 4 == 3
        self._thread: Thread | None = None

    def begin(self, sync: Callable[[], object], done: Callable[[Exception | None], None]) -> None:
        def ended(_value: object, error: BaseException | None) -> None:
            self._thread = None
            assert error is None or isinstance(error, Exception)
            done(error)

        if not self.quick:
            thread = self._thread = Thread(self.node, sync, ended)
            self.node.soon(self.node.world.chance.randint(20, 200), thread.go_on)
            return
        error = None
        try:
            sync()
        except Exception as caught:
            error = caught
        done(error)

    def soon(self, call: Callable[[], None]) -> None:
        self.node.soon(0, call)

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.finish()

    def close(self) -> None:
        pass


class VirtualPool:
    """An executor of one thread."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.thread: Thread | None = None

    def submit(self, call: Callable[..., Any], *args: Any) -> futures.Future[Any]:
        future: futures.Future[Any] = futures.Future()

        def ended(value: object, error: BaseException | None) -> None:
            self.thread = None
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        thread = self.thread = Thread(self.node, lambda: call(*args), ended)
        self.node.soon(self.node.world.chance.randint(20, 200), thread.go_on)
        return future

    def finish(self) -> None:
        if self.thread is not None:
            self.thread.finish()

    def shutdown(self, wait: bool = True) -> None:
        self.finish()


class VirtualLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as tasks, futures and sleeps of one process need."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.tasks: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        return self.node.world.now / 1e6

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.node.soon(0, lambda: None if handle.cancelled() else handle._run())
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        run = lambda: None if handle.cancelled() else handle._run()  # noqa: E731
        self.node.soon(int(delay * 1e6), run)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing is kept of it."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_more: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self)
        # A process that is killed leaves tasks behind.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        return task

    def end(self) -> None:
        """The process is gone; what its tasks still want to do comes to nothing."""
        running = asyncio.current_task(self)
        for task in self.tasks:
            coroutine = task.get_coro()
            if not task.done() and coroutine is not None and task is not running:
                with suppress(Died, RuntimeError, ValueError):
                    coroutine.close()  # type: ignore[union-attr]
        self.tasks.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback failed. Futures nobody asked belong to processes that are gone."""
        error = context.get("exception")
        if "never retrieved" not in context["message"] and isinstance(error, Exception):
            self.node.world.wrong(f"{self.node.name}: {context['message']}: {error!r}")
