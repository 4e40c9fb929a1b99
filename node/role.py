"""The role of this node, carried out: queue_state_fiber's effects against core, engine and log.

The fiber decides, this does, step by step, and answers. A single node has no peers to ask or to
tell; links to them hook in where `Facts`, `Follow` and `PublishFinalLsn` are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine import lifecycle
from model.errors import QueueError, StorageError
from statemachine import effects as fx
from statemachine.fiber import QueueStateFiber
from statemachine.promotion import Facts
from statemachine.roles import Role, Transition

if TYPE_CHECKING:
    from node.config import Settings
    from node.core import Core
    from node.recovered import Storage
    from node.wal_writer import WalWriter


class RoleKeeper:
    """Feeds the fiber and does what it asks.

    flush(): end the turn at hand. random_bytes(n): chance. log(text): one line. observers are told
    of each transition.
    """

    def __init__(
        self,
        core: Core,
        storage: Storage,
        wal: WalWriter,
        settings: Settings,
        *,
        now: Callable[[], int],
        flush: Callable[[], None],
        random_bytes: Callable[[int], bytes],
        log: Callable[[str], None],
    ) -> None:
        self.core = core
        self.storage = storage
        self.wal = wal
        self.settings = settings
        self.now = now
        self.flush = flush
        self.random_bytes = random_bytes
        self.log = log
        self.observers: list[Callable[[Transition], None]] = []
        lineage = core.engine.store.lineage
        self.fiber = QueueStateFiber(now(), term_number=lineage[-1][0] if lineage else 0)
        self._inbox: deque[fx.Input] = deque()
        self._feeding = False
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[asyncio.Future[fx.Settled]] = deque()
        self._released: lifecycle.Released = []
        #: A step that is done once the log is durable up to an LSN: (step, LSN).
        self._awaited: tuple[int, int] | None = None
        wal.on_durable = self.durable

    # -- inputs ----------------------------------------------------------------------------------

    def wish(
        self, read_only: bool, *, force: bool = False, command: bool = True
    ) -> asyncio.Future[fx.Settled]:
        """Somebody wants the node (not) writable; resolves once that is reached or given up.

        A newer wish overtakes an older one, whose outcome is then the newer one's.
        """
        settled: asyncio.Future[fx.Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append(settled)
        self.core.read_only = read_only
        self.feed(fx.Wish(read_only, force, command))
        return settled

    def fault(self, reason: str) -> None:
        """The log cannot be written any more."""
        self.feed(fx.Fault(reason))

    def durable(self, lsn: int) -> None:
        """The log is durable up to `lsn`."""
        if self._awaited is not None and lsn >= self._awaited[1]:
            step, reached = self._awaited
            self._awaited = None
            self.feed(fx.Done(step, reached))

    def feed(self, item: fx.Input) -> None:
        """One input after the other, also those that effects give rise to."""
        self._inbox.append(item)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._inbox:
                for effect in self.fiber.step(self.now(), self._inbox.popleft()):
                    self._carry_out(effect)
        finally:
            self._feeding = False
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.fiber.due_us is not None:
            wait = max(0.0, (self.fiber.due_us - self.now()) / 1e6)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait, self.feed, fx.Tick())

    # -- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Step):
            try:
                self._do(effect)
            except (StorageError, QueueError) as error:
                self._inbox.append(fx.Failed(effect.step, str(error)))
            except Exception as error:
                self.log(f"{type(effect).__name__} failed: {type(error).__name__}: {error}")
                reason = f"{type(error).__name__}: {error}"
                self._inbox.append(fx.Failed(effect.step, reason))
            return
        match effect:
            case fx.StateChanged():
                self._changed(effect.transition)
            case fx.CheckSync():
                self._inbox.append(fx.Progress(self.facts()))
            case fx.Settled():
                waiting, self._waiting = self._waiting, deque()
                for settled in waiting:
                    if not settled.done():
                        settled.set_result(effect)
            case fx.AbandonCalls():
                for connection in list(self.core.connections.values()):
                    if connection.transport is not None:
                        connection.transport.abort()
            case fx.Follow():
                pass

    def _changed(self, transition: Transition) -> None:
        self.core.set_state(transition.target.value)
        self.log(
            f"Queue state changed: {transition.target.value} (from {transition.origin.value} after "
            f"{transition.duration_us / 1e6:.3f} s: {transition.reason})"
        )
        for observer in self.observers:
            observer(transition)

    def facts(self) -> Facts:
        """What is known when a promotion is considered: on a single node, its own log."""
        engine = self.core.engine
        lineage = engine.store.lineage
        last = lineage[-1] if lineage else None
        return Facts(
            engine.lsn,
            last[0] if last else 0,
            last[1] if last else None,
            lawful=last is None or last[4] == self.settings.name,
        )

    def _do(self, step: fx.Step) -> None:
        core, engine = self.core, self.core.engine
        done = fx.Done(step.step)
        match step:
            case fx.WriteTerm():
                term = (
                    step.number,
                    self.random_bytes(16),
                    step.parent,
                    engine.lsn + 1,
                    self.settings.name,
                    step.solo,
                )
                self._promote(term)
                self._inbox.append(fx.TermOpened(step.number, term[1]))
            case fx.AwaitCommit():
                self._await(step.step)
                return
            case fx.StartDrivers():
                lifecycle.serve(engine, self._released)
                self._released = []
                self.flush()
            case fx.StopDrivers():
                engine.stop()
            case fx.WakeWaiters():
                engine.wake_all(core.read_only_error())
            case fx.Drain():
                self._await(step.step)
                return
            case fx.StopFollowing() | fx.Promote() | fx.PublishFinalLsn():
                pass
            case _:
                raise AssertionError(f"unknown step {step}")
        self._inbox.append(done)

    def _promote(self, term: tuple[Any, ...]) -> None:
        """Open the term: one record with its settings and the release of orphans.

        The record is memory's business until the turn ends; only the segment is begun here.
        """
        core, engine, queue = self.core, self.core.engine, self.settings.queue
        engine.now = max(engine.now, self.now())
        # What was still going on under the old term is written under it.
        self.flush()
        self.storage.open_term(term)
        core.term, core.term_id = term[0], term[1]
        said = queue.model_fields_set
        # What the configuration leaves out stays as the last call of queue.cfg made it.
        self._released = engine.promote(
            term,
            queue.ttr if "ttr" in said else None,
            queue.in_replicaset if "in_replicaset" in said else None,
        )
        if self._released:
            self.log(f"released {len(self._released)} tasks nobody holds any more")

    def _await(self, step: int) -> None:
        """Done once everything recorded so far is durable."""
        self._awaited = (step, self.core.engine.lsn)
        self.flush()
        if self._awaited is not None and self.wal.durable_lsn >= self._awaited[1]:
            self.durable(self.wal.durable_lsn)

    @property
    def role(self) -> Role:
        return self.fiber.role

    def close(self) -> None:
        """The node ends: no more ticks; who still waits is not left hanging."""
        if self._timer is not None:
            self._timer.cancel()
        for settled in self._waiting:
            settled.cancel()
