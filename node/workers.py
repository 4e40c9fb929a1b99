"""Workers inside the node: functions that a tube's declaration names, fed with its tasks.

A function runs in a thread of its own, so that a slow one holds up no caller. To the engine a
worker is a client like any other: what it is given leaves when it is as durable as the log's mode
promises.
Must not be here: what a task is, which functions may run (plugins.py).
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

from tandemq.model.errors import QueueError
from tandemq_server.engine.clients import PENDING, EngineClient
from tandemq_server.engine.engine import Engine
from tandemq_server.facades.xqueue.tube import RecordTube
from tandemq_server.node.core.read_only import read_only_error
from tandemq_server.node.loop.shell import Shell
from tandemq_server.statemachine.roles import Transition

#: How long a take of a worker waits, in seconds; it is asked again when that is over.
_WAIT_SECONDS = 1e9
#: A task that failed comes back after this many seconds, twice as many each time, up to the second.
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.5, 60.0
#: Tasks whose failures are remembered; beyond, those that are gone are forgotten.
_FAILURES_MAX = 10_000


class WorkerTask:
    """What a worker's function may do with its task by itself; afterwards nothing is done for it.

    Given as second argument to functions that take two. Raises `tandemq.model.errors.QueueError`.
    """

    def __init__(self, ask: Callable[[str, Any], Any]) -> None:
        self._ask = ask

    def ack(self, **attr: Any) -> Any:
        """Finish the task: `update`, `delay`."""
        return self._ask("ack_record", attr)

    def release(self, **attr: Any) -> Any:
        """Give it back: `update`, `delay`, `ttl`."""
        return self._ask("release_record", attr)

    def bury(self, **attr: Any) -> Any:
        """Set it aside: `update`."""
        return self._ask("bury_record", attr)

    def touch(self, increment: float) -> Any:
        """More time: `increment` seconds."""
        return self._ask("touch_record", {"increment": increment})


class TubeWorker(EngineClient):
    """One thread that works for one tube; lost: it works no more."""

    inside: ClassVar[bool] = True
    __slots__ = ("given", "idle", "jobs", "keeper", "lost", "peer", "tube", "work")

    def __init__(self, keeper: Workers, tube: RecordTube, work: Callable[..., Any]) -> None:
        super().__init__(keeper.shell.next_id())
        self.peer = f"worker of {tube.name}"
        self.lost = False
        self.keeper = keeper
        self.tube = tube
        self.work = work
        self.idle = True
        self.given: Any = None
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=self.peer, daemon=True).start()

    # -- on the loop -----------------------------------------------------------------------------

    def next(self) -> None:
        """Ask for a task; what comes of it arrives at `deliver`."""
        if not self.idle or not self.keeper.may_run(self):
            return
        self.idle = False
        outcome = self.keeper.call(self.tube.take_record, self, 0, _WAIT_SECONDS)
        if outcome is not PENDING:
            self.deliver(0, outcome)

    def deliver(self, ticket: int, outcome: Any) -> None:
        if isinstance(outcome, tuple) and outcome:
            self.given = outcome[0]
            self.keeper.shell.core.when_committed(self._committed)
        else:
            # The node stops serving, or nothing came for years.
            self.idle = True

    def _committed(self) -> None:
        """The task may be seen: the function starts."""
        given, self.given = self.given, None
        if given is not None and not self.lost:
            self.jobs.put(given)

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        loop = self.keeper.loop
        parameters = inspect.signature(self.work).parameters.values()
        plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        several = len(plain) > 1 or any(p.kind == p.VAR_POSITIONAL for p in parameters)
        while (task := self.jobs.get()) is not None:
            error: Exception | None = None
            try:
                outcome = (
                    self.work(task, WorkerTask(self._asker(task))) if several else self.work(task)
                )
                if inspect.iscoroutine(outcome):
                    asyncio.run(outcome)
            except Exception as failed:
                error = failed
            try:
                loop.call_soon_threadsafe(self.keeper.finished, self, task, error)
            except RuntimeError:
                return  # The node has ended meanwhile.

    def _asker(self, task: Any) -> Callable[[str, Any], Any]:
        def ask(name: str, attr: Any) -> Any:
            answer: Future[Any] = Future()
            self.keeper.loop.call_soon_threadsafe(
                self.keeper.answer, answer, getattr(self.tube, name), self, task, attr
            )
            outcome = answer.result()
            if isinstance(outcome, QueueError):
                raise outcome
            return outcome[0] if isinstance(outcome, tuple) and outcome else None

        return ask


class Workers:
    """All workers of a node; `look` starts and ends them as tubes and the role have it."""

    def __init__(
        self,
        shell: Shell,
        functions: Callable[[str], Callable[..., Any]],
        report: Callable[..., None],
    ) -> None:
        """`functions(reference)` gives a function or raises `QueueError`."""
        self.shell = shell
        self.functions = functions
        self.report = report
        self.loop = asyncio.get_running_loop()
        self.engine: Engine = shell.core.engine
        self.teams: dict[RecordTube, list[TubeWorker]] = {}
        self.failures: dict[tuple[int, Any], int] = {}
        self.closed = False
        self._looking = False
        told = self.engine.on_tube

        def on_tube(tube: Any, appears: bool) -> None:
            told(tube, appears)
            if isinstance(tube, RecordTube) and "worker" in tube.opts:
                self.look_soon()

        self.engine.on_tube = on_tube

    def role_changed(self, _made: Transition) -> None:
        self.look_soon()

    def look_soon(self) -> None:
        """Tubes come and go in the middle of a transaction: look when it is over."""
        if not self._looking:
            self._looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        engine = self.engine
        for tube in [tube for tube in self.teams if engine.tubes.get(tube.name) is not tube]:
            self._end(self.teams.pop(tube))
        if not engine.running or self.closed:
            for worker in [worker for team in self.teams.values() for worker in team]:
                if worker.given is not None:
                    # What was to be shown to it may never be: another node gives it back.
                    worker.given, worker.idle = None, True
            return
        for found in list(engine.tubes.values()):
            if isinstance(found, RecordTube) and "worker" in found.opts:
                if found not in self.teams:
                    self.teams[found] = self._begin(found)
                for worker in self.teams[found]:
                    if worker.idle:
                        worker.next()
        self.shell.ask_flush()

    def _begin(self, tube: RecordTube) -> list[TubeWorker]:
        reference = tube.opts["worker"]
        try:
            work = self.functions(reference)
        except QueueError as error:
            self.report(f"tube {tube.name}: no workers here: {error.text}")
            return []
        return [TubeWorker(self, tube, work) for _ in range(tube.opts["workers"])]

    def _end(self, team: list[TubeWorker]) -> None:
        for worker in team:
            worker.lost = True
            worker.jobs.put(None)
            self.engine.disconnect(worker)

    def may_run(self, worker: TubeWorker) -> bool:
        served = self.engine.tubes.get(worker.tube.name) is worker.tube
        return self.engine.running and not self.closed and served and not worker.lost

    def call(self, operation: Callable[..., Any], *args: Any) -> Any:
        """An engine operation on behalf of a worker: its outcome, or the error it raised."""
        engine = self.engine
        if not engine.running:
            return read_only_error(self.shell.core.state)
        self.shell.core.advance(self.shell.clock.now())
        try:
            outcome = operation(*args)
        except QueueError as error:
            engine.store.rollback()
            return error
        engine.wake()
        self.shell.ask_flush()
        return outcome

    def answer(self, answer: Future[Any], operation: Callable[..., Any], *args: Any) -> None:
        try:
            answer.set_result(self.call(operation, *args))
        except Exception as error:
            self.engine.store.rollback()
            answer.set_exception(error)

    def finished(self, worker: TubeWorker, task: Any, error: Exception | None) -> None:
        """A function returned or raised: ack, or give back; then the next task."""
        tube, wait = worker.tube, 0.0
        key = tube.records.layout.key_of(task)
        name = (tube.id, key)
        owner = tube.taken.rows.get(name)
        mine = owner is not None and owner[3] == worker.session
        if error is None:
            self.failures.pop(name, None)
            if mine:
                self._must(worker, self.call(tube.ack_record, worker, key))
        else:
            wait = self._failed(worker, key, mine, error)
        worker.idle = True
        if wait:
            self.loop.call_later(wait, worker.next)
        else:
            worker.next()

    def _failed(self, worker: TubeWorker, key: Any, mine: bool, error: Exception) -> float:
        """How long the worker itself must wait: not at all where the task can be made to."""
        tube = worker.tube
        times = self.failures.get((tube.id, key), 0) + 1
        self._remember((tube.id, key), times)
        wait = min(BACKOFF_SECONDS * 2 ** min(times - 1, 20), BACKOFF_SECONDS_MAX)
        self.report(
            f"tube {tube.name}: {tube.opts['worker']} failed on task {key} (time {times}), "
            f"next in {wait:g} s: {type(error).__name__}: {error}"
        )
        delayed = "delayed" in tube.records.features
        if mine:
            attr = {"delay": wait} if delayed else None
            self._must(worker, self.call(tube.release_record, worker, key, attr))
        return 0.0 if mine and delayed else wait

    def _remember(self, name: tuple[int, Any], times: int) -> None:
        if len(self.failures) >= _FAILURES_MAX:
            here = {tube.id: tube.space.rows for tube in self.teams}
            kept = {n: t for n, t in self.failures.items() if n[1] in here.get(n[0], ())}
            self.failures = kept if len(kept) < _FAILURES_MAX else {}
        self.failures[name] = times

    def _must(self, worker: TubeWorker, outcome: Any) -> None:
        if isinstance(outcome, QueueError) and self.engine.running:
            self.report(f"{worker.peer}: {outcome.text}")

    async def close(self, seconds: float) -> None:
        """No more tasks; what is being worked on may end, then it is given back."""
        self.closed = True
        deadline = self.loop.time() + seconds
        team = [worker for workers in self.teams.values() for worker in workers]
        for worker in team:
            for waiter in list(worker.waits):
                waiter.tube.cancel(waiter)
                self.engine.unpark(waiter)
                worker.idle = True
        while not all(worker.idle for worker in team) and self.loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self._end(team)
        self.teams.clear()
        self.shell.ask_flush()
