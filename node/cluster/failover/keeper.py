"""The seat of this node: what it hears of it goes through the table, what follows is carried out.

Pure like the node's other joints: calls to the arbiter go out through `ask`, their answers come
in through `heard`, `won`, `lost`, `silent`, `beaten` and `no_answer`; `node.failover.calls` waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tandemq.model.units import SECOND_US
from tandemq_server.node.cluster.failover import story
from tandemq_server.node.cluster.failover.detection import AnswerPace
from tandemq_server.node.cluster.failover.master import PAUSE_US, Watch
from tandemq_server.replication.commit import PAIR, CommitPoint, GoSolo, PairAgain
from tandemq_server.statemachine import effects as fx
from tandemq_server.statemachine import seat as table
from tandemq_server.statemachine.promotion import SeatFacts, all_empty
from tandemq_server.statemachine.roles import Role, Transition
from tandemq_server.statemachine.seat import (
    LEADING,
    NEEDING,
    Confirm,
    Effect,
    Event,
    Heard,
    InStep,
    Lead,
    Lost,
    Needs,
    Open,
    Read,
    Refuse,
    Rested,
    Seat,
    SeatReading,
    SeatView,
    Seed,
    Silent,
    Stand,
    Starved,
    StepDown,
    Stranded,
    Swap,
    Won,
)

if TYPE_CHECKING:
    from tandemq_server.node.cluster.peering import Peering

#: After a try to lead that failed, the next one.
RETRY_US = SECOND_US
#: An arbiter that has answered nothing for so long is told of in the log.
QUIET_US = 2_500_000


class SeatKeeper:
    """ask(call): a Read or a Swap, to be answered. name: of the arbiter, for people.

    resting: an operator wants this node, whose seat it is, not to serve. paused: why this node
    does not take over automatically; empty while it may.
    """

    def __init__(self, peering: Peering) -> None:
        self.peering = peering
        self.role = peering.role
        self.settings = settings = peering.settings
        self.failover = settings.failover
        self.view: SeatView = table.begun(settings.name)
        self.ask: Callable[[Read | Swap], None] = lambda _call: None
        self.name = str(settings.failover.arbiter)
        self.resting = False
        self.paused = self.problem = ""
        self.pace = AnswerPace(self.failover.per_minute, self.failover.per_hour)
        self.watch = Watch(self)
        self.story = story.Story()
        #: When the arbiter last answered anything, and when the newest read was begun.
        self.answered_us: int | None = None
        self.lease_us = 0
        self._fresh, self._failed = True, False
        self._away_told = self._started = False
        self._step: int | None = None
        self._retry_us = 0
        self._ticked_us: int | None = None
        self.role.observers.append(self._changed)

    # -- what others ask of it -------------------------------------------------------------------

    @property
    def alone(self) -> bool:
        return self.view.stand in table.UNCONFIRMED

    @property
    def seat(self) -> Seat | None:
        return self.view.reading.seat if self.view.reading is not None else None

    @property
    def placed(self) -> bool:
        """Whether it is known what this node is to be, or that the arbiter cannot tell."""
        if self.problem or self.role.role is Role.RUNNING or self.resting:
            return True
        seat = self.seat
        return self._started and (seat is None or seat.master != self.settings.name)

    def facts(self) -> SeatFacts:
        """For a promotion that is considered now."""
        reading, seat = self.view.reading, self.seat
        told = SeatFacts(seat is not None, lived=seat is not None and seat.lived)
        if self._failed:
            return replace(told, refusal=f"{self.name} does not answer: {self.problem}")
        if not self._fresh or reading is None:
            return replace(told, waiting=f"asking {self.name} who holds the seat")
        lead = Lead("", self.role.fiber.notes.known_number, "")
        local = self.settings.replication.ack != PAIR
        may_lose = (self.failover.max_loss_records or 0) if local else 0
        return replace(told, refusal=table.may_take(self.view, lead), may_lose=may_lose)

    def check(self) -> None:
        """A promotion is considered: what was read before does not count for it."""
        self._fresh = self._failed = False
        self.ask(Read())

    def gate_for(self, gate: CommitPoint) -> None:
        """A term was opened under the seat: the commit point takes its word."""
        self.watch.own_term()
        now = self.peering.mono()
        if self.settings.replication.ack != PAIR:
            gate.slack, gate.lease_us = self.failover.max_loss_records or 0, self.lease_us
        gate.needs(None if self.alone else b"", now)

    def requested(self, read_only: bool, force: bool) -> None:
        """An operator, or a peer on an operator's behalf, wants the node (not) writable."""
        self.resting = read_only
        if not read_only:
            self.story.begin("an operator's force" if force else "an operator", 0)

    def go_alone(self, by: str) -> None:
        """`solo_after` is over, or an operator says so (S2)."""
        self.tell(Starved(f"{self.settings.name}: {by}"))

    def seed(self, by: str) -> str:
        """Write the seat of this leadership anew; why not, or nothing."""
        reading = self.watch.gone_back
        if self.view.stand not in LEADING or self.view.held is None:
            return (
                "this node does not serve; tandemq role rw --force promotes it and writes the seat"
            )
        if reading is None:
            return f"the seat at {self.name} is not older than the log here"
        self.tell(Seed(reading, f"{self.settings.name}: {by}"))
        return ""

    # -- the fiber's step ------------------------------------------------------------------------

    def take(self, step: int, forced: bool, term_id: bytes) -> None:
        """TakeSeat: answered with SeatTaken and Done, or Failed."""
        self._step = step
        by = f"{self.settings.name}: {'by force' if forced else self.story.why or 'asked for'}"
        self.story.asked(self.peering.mono())
        known = self.role.fiber.notes.known_number
        self.tell(Lead(term_id.hex(), known, by[:400], forced))

    def _changed(self, made: Transition) -> None:
        if made.target is Role.RUNNING:
            now = self.peering.mono()
            if line := self.story.serves(now, self.role.core.term):
                self.peering.say(line)
        elif made.target is Role.WAITING:
            self._step = None
            if self.view.stand in LEADING or self.view.stand is Stand.TAKING:
                self.tell(Rested())

    # -- the table -------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        before = self.view.stand
        self.view, effects = table.step(self.view, event)
        for effect in effects:
            self._carry_out(effect)
        if self.view.stand is not before:
            self._stands(before)

    def _stands(self, before: Stand) -> None:
        gate = self.peering.wal.gate
        stand = self.view.stand
        if gate is not None and stand in (Stand.PAIRED, Stand.ALONE):
            gate.ask_again()
        if stand is Stand.ALONE and before is Stand.PARTING:
            self.peering.say(f"pair mode: going on alone, by the seat: {self._by()}")
        elif stand is Stand.PAIRED and before is Stand.PAIRING:
            self.peering.say(f"pair mode: confirmed again, {self.view.needs} may be promoted")
        self.peering.peer_changed()

    def _by(self) -> str:
        return self.view.held.by if self.view.held is not None else ""

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Swap():
                since = self.peering.clock.now()
                assert effect == self.view.asked
                stamped = effect._replace(seat=effect.seat._replace(since=since))
                self.view = self.view._replace(asked=stamped)
                self.ask(stamped)
            case Read():
                self.ask(effect)
            case Needs(node):
                self._needs(node)
            case Open(seat):
                self._open(seat)
            case Refuse(reason):
                self._answer(fx.Failed(self._step or 0, reason))
            case StepDown(reason):
                self.peering.say(f"failover: this node steps down: {reason}")
                self._retry_us = self.peering.mono() + RETRY_US
                self.role.feed(fx.Unseated(reason))
            case Confirm(yes):
                # The fiber has stopped following before it asked, and follows again by itself.
                assert yes or not self.peering.following

    def _open(self, seat: Seat) -> None:
        now_us = self.peering.mono()
        if self.story.takes_over:
            self.pace.took(now_us)
        self.story.seated(now_us)
        if self._step is not None:
            self.role.feed(fx.SeatTaken(seat.no, bytes.fromhex(seat.term_id)))
            self._answer(fx.Done(self._step))

    def _answer(self, item: fx.Done | fx.Failed) -> None:
        if self._step is not None:
            self._step = None
            self.role.feed(item)

    def _needs(self, node: str | None) -> None:
        """S1: whose confirmation the commit point waits for."""
        gate = self.peering.wal.gate
        if gate is not None:
            gate.needs(None if node is None else self.watch.id_of(node), self.peering.mono())
            self.peering.wal.advance()

    # -- answers ---------------------------------------------------------------------------------

    def heard(self, reading: SeatReading) -> None:
        """A read was answered."""
        self._answered()
        self._fresh, self._failed = True, False
        held = self.view.held
        back = held is not None and table.outdated(reading, held.no)
        self.watch.gone_back = reading if back else None
        self.tell(Heard(reading))
        self._seen()

    def watched(self, reading: SeatReading) -> None:
        """A watch tells what was, at some moment; what is older than what is known is no news."""
        known = self.view.reading
        if known is None or reading.revision > known.revision:
            self.tell(Heard(reading))
            self._seen()

    def _seen(self) -> None:
        seat = self.seat
        if seat is not None and seat.master != self.settings.name:
            self.resting = False
        self.peering.peer_changed()

    def won(self, swap: Swap, reading: SeatReading) -> None:
        self._answered()
        self.tell(Won(swap, reading))

    def lost(self, swap: Swap, reading: SeatReading) -> None:
        self._answered()
        self.tell(Lost(swap, reading))

    def silent(self, swap: Swap, problem: str) -> None:
        """Nobody knows what became of the swap."""
        self.problem = problem.removeprefix(f"{self.name}: ")
        self.tell(Silent(swap))

    def read_failed(self, problem: str) -> None:
        """A promotion that is considered now cannot know whose the seat is."""
        self._failed = not self._fresh
        self.no_answer(problem)

    def no_answer(self, problem: str) -> None:
        self.problem = problem.removeprefix(f"{self.name}: ")
        self.role.progress()

    def beaten(self, alive: frozenset[str], asked_us: int) -> None:
        """The arbiter heard, at `asked_us` or later, that this node lives, and says who else."""
        self._answered()
        self.watch.alive, self.watch.alive_us = alive, asked_us
        # A fifth of the time is left to clocks that run at another speed.
        self.lease_us = asked_us + int(self.failover.liveness_ttl * 0.8e6)
        if self.peering.wal.gate is not None:
            self.peering.wal.gate.lease_us = self.lease_us

    def _answered(self) -> None:
        if self._away_told:
            self.peering.say(f"failover: {self.name} answers again")
        self.problem, self._away_told = "", False
        self.answered_us = self.peering.mono()

    # -- time ------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Several times a second: whether to lead, to ask to be alone, to step down."""
        gap = now_us - self._ticked_us if self._ticked_us is not None else 0
        self._ticked_us = now_us
        if gap > PAUSE_US:
            # What was not heard while this process stood still is no evidence about anybody.
            self.answered_us = now_us if self.answered_us is not None else None
            self.watch.stood_still(now_us)
        quiet_us = now_us - (self.answered_us or 0)
        if self.problem and not self._away_told and quiet_us > QUIET_US:
            self._away_told = True
            self.peering.say(f"failover: {self.name}: {self.problem}; what runs goes on meanwhile")
        if self.view.stand in NEEDING:
            self._needing(now_us)
        elif self.role.role in (Role.INIT, Role.WAITING):
            self._idle(now_us)

    def mode(self, found: GoSolo | PairAgain) -> None:
        """The commit point says when to ask."""
        if isinstance(found, GoSolo):
            self.go_alone(found.reason)
        elif (name := self.watch.name_of(found.node_id)) is not None:
            self._in_step(name, found.node_id)
        gate = self.peering.wal.gate
        if gate is not None and self.view.asked is None:
            gate.ask_again()

    def _in_step(self, name: str, node_id: bytes) -> None:
        gate = self.peering.wal.gate
        if gate is not None:
            by = f"{self.settings.name}: {name} is in step"
            self.tell(InStep(name, gate.behind(node_id), by))

    def _needing(self, now_us: int) -> None:
        gate = self.peering.wal.gate
        if gate is None:
            return
        needs = self.view.needs or ""
        if not gate.partner:
            gate.partner = self.watch.id_of(needs)
        unnamed = self.seat is not None and self.seat.partner is None
        if unnamed and self.view.asked is None and gate.partner and not gate.behind(gate.partner):
            self._in_step(needs, gate.partner)
        limit = int(self.failover.step_down_after * SECOND_US)
        unheard = now_us - self.answered_us if self.answered_us is not None else limit
        if gate.starved_us(now_us) >= limit and unheard >= limit:
            reason = f"neither {needs} nor {self.name} was heard for {limit / SECOND_US:g} s"
            self.tell(Stranded(reason))

    def _idle(self, now_us: int) -> None:
        reading = self.view.reading
        if reading is None or now_us < self._retry_us or self._waits():
            return
        seat, me = reading.seat, self.settings.name
        if seat is None:
            if not self._started:
                self._started = True
                self.role.request(self.settings.read_only, command=False, by_seat=True)
            return
        self._started = True
        if seat.master == me:
            if not self.resting and (not self.peering.blank or all_empty(self.peering.facts())):
                self._lead("the seat is this node's", 0, now_us)
                if self.peering.blank and seat.lived:  # refused, until it is started with --init
                    self._retry_us += 29 * RETRY_US
            return
        if seat.partner == me and self.failover.candidate and not self.paused:
            self._take_over(seat, now_us)

    def _waits(self) -> bool:
        """A request is being carried out, or will be tried again by itself."""
        notes = self.role.fiber.notes
        return not notes.request.read_only and not notes.hold and not notes.fault

    def _take_over(self, seat: Seat, now_us: int) -> None:
        if not (why := self.watch.why_gone(seat.master, now_us)):
            return
        if self.pace.spent(now_us):
            self.paused = f"{self.pace.per_hour} automatic takeovers within an hour"
            self.peering.say(f"failover: paused: {self.paused}; tandemq failover resume continues")
            return
        if self.pace.wait_us(now_us):
            return
        self._lead(
            f"{seat.master} is gone: {why}", self.watch.since_us(seat.master, now_us), now_us
        )

    def _lead(self, why: str, found_us: int, now_us: int) -> None:
        self._retry_us = now_us + RETRY_US
        self.story.begin(why, now_us, found_us)
        self.role.request(False, by_seat=True)
