"""The role of this node, carried out: queue_state_fiber's effects against core, engine and log.

The fiber decides, this does, step by step, and answers. What concerns peers is asked of `links`.
No loop and no clock: the rim feeds inputs, and a `Tick` when `arm` asked for one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tandemq.model.errors import QueueError, StorageError
from tandemq.model.terms import Claim, Term
from tandemq.model.units import SECOND_US
from tandemq_server.engine import lifecycle
from tandemq_server.node.cluster import sharing
from tandemq_server.node.core.read_only import read_only_error
from tandemq_server.statemachine import effects as fx
from tandemq_server.statemachine.fiber import QueueStateFiber
from tandemq_server.statemachine.roles import Role, Transition

if TYPE_CHECKING:
    from tandemq_server.config import Settings
    from tandemq_server.node.cluster.peering import Peering
    from tandemq_server.node.cluster.rim import Directory, Writer
    from tandemq_server.node.core.core import Core


#: What is written in these is of a term of this node's own, once it is opened.
LEADING = frozenset({Role.STARTUP, Role.RUNNING, Role.ENDING})
#: Told how a request ended: None when the node ends before it was carried out.
WhenSettled = Callable[[fx.Settled | None], None]


class RoleKeeper:
    """Feeds the fiber and does what it asks.

    flush(): end the turn at hand. random_bytes(n): chance. log(text): one line. arm(µs or None):
    when the log's clock wants a `Tick`. links: both ends of all links, set before any request.
    observers are told of each transition.
    """

    links: Peering

    def __init__(
        self,
        core: Core,
        storage: Directory,
        wal: Writer,
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
        self.arm: Callable[[int | None], None] = lambda _due_us: None
        self.observers: list[Callable[[Transition], None]] = []
        lineage = core.engine.store.lineage
        self.fiber = QueueStateFiber(
            now(),
            term_number=lineage[-1].number if lineage else 0,
            startup_timeout_us=int(settings.replication.startup_timeout * SECOND_US),
        )
        self._inbox: deque[fx.Input] = deque()
        self._feeding = False
        self._waiting: deque[WhenSettled] = deque()
        self._released: lifecycle.Released = []
        #: A step that is done once the log is committed up to an LSN: (step, LSN).
        self._awaited: tuple[int, int] | None = None
        #: Facts are wanted whenever one changes.
        self._checking = False

    # -- inputs ----------------------------------------------------------------------------------

    def request(
        self,
        read_only: bool,
        *,
        force: bool = False,
        command: bool = True,
        by_seat: bool = False,
        done: WhenSettled = lambda _settled: None,
    ) -> None:
        """Somebody wants the node (not) writable; `done` once that is reached or given up.

        A newer request overtakes an older one, whose outcome is then the newer one's. by_seat:
        nobody asked for it, it follows from whose the seat is.
        """
        if self.links.seat is not None and not by_seat:
            self.links.seat.requested(read_only, force)
        self._waiting.append(done)
        self.core.read_only = read_only
        self.links.asking.requested()
        if force and not read_only:
            self.links.asking.stop_others()
        self.feed(fx.RoleRequest(read_only, force, command))

    def fault(self, reason: str) -> None:
        """The log cannot be written any more."""
        self.feed(fx.Fault(reason))

    def committed(self, lsn: int) -> None:
        """The log is committed up to `lsn`."""
        if self._awaited is not None and lsn >= self._awaited[1]:
            step, reached = self._awaited
            self._awaited = None
            self.feed(fx.Done(step, reached))

    def progress(self) -> None:
        """A fact that a promotion depends on may have changed."""
        if self._checking:
            self.feed(fx.Progress(self.links.facts()))

    @property
    def leading(self) -> bool:
        """From the opening of a term until WAITING: what is written here is a term's own."""
        fiber = self.fiber
        return fiber.notes.leading and fiber.state.role in LEADING

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
        self.arm(self.fiber.due_us)

    # -- effects ---------------------------------------------------------------------------------

    def _carry_out(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.EffectStep):
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
            case fx.CheckSync(again):
                self._checking = True
                self.links.check(again)
                self._inbox.append(fx.Progress(self.links.facts()))
            case fx.Settled():
                waiting, self._waiting = self._waiting, deque()
                for done in waiting:
                    done(effect)
            case fx.AbandonCalls():
                self._abandon()
            case fx.Follow():
                self.links.follow()

    def _abandon(self) -> None:
        """What is in memory goes to the log, unanswered: it may be acknowledged by nobody."""
        self.flush()
        self.wal.abandon()
        for connection in list(self.core.connections.values()):
            if connection.transport is not None and connection.link is None:
                connection.transport.abort()

    def _changed(self, transition: Transition) -> None:
        self._checking = self._checking and transition.target is Role.STARTUP
        self._awaited = None
        self.core.set_state(transition.target.value)
        self.log(
            f"Queue state changed: {transition.target.value} (from {transition.origin.value} after "
            f"{transition.duration_us / SECOND_US:.3f} s: {transition.reason})"
        )
        self.links.state_changed()
        for observer in self.observers:
            observer(transition)

    def _do(self, step: fx.EffectStep) -> None:
        core, engine = self.core, self.core.engine
        done = fx.Done(step.step)
        match step:
            case fx.WriteTerm():
                term = Term(
                    step.number,
                    step.id or self.random_bytes(16),
                    step.parent,
                    engine.lsn + 1,
                    self.settings.name,
                    step.solo,
                    int(step.claim),
                )
                self._promote(term)
                self._inbox.append(fx.TermOpened(step.number, term.id))
                self._say_unproved()
                alone = step.solo and (self.links.may_go_alone or self.fiber.notes.request.force)
                if self.links.seat is not None:
                    alone = self.links.seat.alone
                self.links.term_opened(term, alone)
            case fx.TakeSeat():
                assert self.links.seat is not None
                self.links.seat.take(step.step, step.forced, self.random_bytes(16))
                return
            case fx.AwaitCommit():
                self._await(step.step)
                return
            case fx.StartDrivers():
                engine.now = max(engine.now, self.now())
                lifecycle.serve(engine, self._released)
                self._released = []
                # Asked between the promotion and its commit.
                engine.configure(*core.asked_cfg)
                core.asked_cfg = (None, None)
                self.flush()
            case fx.StopDrivers():
                engine.stop()
                # A pause that leases did not get back yet is not time for which it served.
                self.links.led_until(self.now() - core.unpaid_us())
            case fx.WakeWaiters():
                engine.wake_all(read_only_error(core.state))
            case fx.Drain():
                self._await(step.step)
                return
            case fx.StopFollowing():
                self.links.stop_following()
                self._inbox.append(fx.Progress(self.links.facts()))
            case fx.PublishFinalLsn():
                self.links.publish_final(step.lsn, step.next_term)
            case fx.Promote():
                self.flush()
            case _:
                raise AssertionError(f"unknown step {step}")
        self._inbox.append(done)

    def _say_unproved(self) -> None:
        """The setting that brings the original's rule back is told of when it counts."""
        silent = [peer.name for peer in self.links.facts().peers if not peer.reachable]
        if self.settings.compat.promotion == "original" and silent:
            names = ", ".join(silent)
            self.log(f"compat.promotion is original: serving without proof that {names} does not")

    def _promote(self, term: Term) -> None:
        """Open the term: one record with its settings and the release of orphans.

        The record is memory's business until the turn ends; only the segment is begun here.
        """
        engine = self.core.engine
        engine.now = max(engine.now, self.now())
        # Not since `engine.now` as it was: calls move it on, served or not.
        engine.frozen_us = max(0, engine.now - self.links.master_alive_us)
        self._begin_term(term)
        asked, wanted = self.core.asked_cfg, sharing.wanted(self.settings, engine)
        # What queue.cfg asked of this very node since it last served goes before.
        ttr = wanted[0] if asked[0] is None else asked[0]
        in_replicaset = wanted[1] if asked[1] is None else asked[1]
        self._released = engine.promote(term, ttr, in_replicaset)
        self.core.asked_cfg = (None, None)
        # What the leases got by this record they do not get again.
        self.links.led_until(engine.now)
        if self._released:
            self.log(f"released {len(self._released)} tasks nobody holds any more")

    def _begin_term(self, term: Term) -> None:
        # What was still going on under the old term is written under it.
        self.flush()
        try:
            self.storage.open_term(term)
        except StorageError as error:
            if self.storage.log is not None and self.storage.log.failure is not None:
                self.wal.fail(error)
            raise
        self.core.term, self.core.term_id = term.number, term.id

    def reopen(self, solo: bool) -> None:
        """A further term of this leadership: pair mode goes on alone, or with a replica again."""
        engine = self.core.engine
        term = Term(
            self.fiber.notes.known_number + 1,
            self.random_bytes(16),
            engine.store.lineage[-1].id,
            engine.lsn + 1,
            self.settings.name,
            solo,
            int(Claim.OWN),
        )
        try:
            self._begin_term(term)
        except StorageError as error:
            self.log(f"term {term.number} was not opened: {error}")
            return
        frozen_us = 0
        if not engine.running:
            # Not yet, or no more: a record of these moments is no sign that somebody was served.
            engine.now = max(engine.now, self.now())
            frozen_us = engine.now - self.links.master_alive_us
            self.links.led_until(engine.now)
        engine.open_term(term, frozen_us)
        self.feed(fx.TermOpened(term.number, term.id))
        self.links.term_opened(term, solo)
        self.flush()

    def _await(self, step: int) -> None:
        """Done once everything recorded so far is committed."""
        self._awaited = (step, self.core.engine.lsn)
        self.flush()
        if self._awaited is not None and self.wal.commit_lsn >= self._awaited[1]:
            self.committed(self.wal.commit_lsn)

    @property
    def role(self) -> Role:
        return self.fiber.role

    def close(self) -> None:
        """The node ends: no more ticks; who still waits is not left hanging."""
        self.arm(None)
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(None)
