"""`queue_state_fiber`: the one walker of a node's states, as a generator.

It is fed inputs and gives effects; between two inputs it stands still. Every failure of a step
leads to a named state from which the next request, or a retry, can leave again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

from tandemq.model.units import SECOND_US
from tandemq_server.statemachine import effects
from tandemq_server.statemachine.effects import Done, Effect, EffectStep, Failed, Input, RoleRequest
from tandemq_server.statemachine.leaving import Leave, NotAllowed, Overdue, StepFailed
from tandemq_server.statemachine.notes import RoleNotes
from tandemq_server.statemachine.promotion import Advice, Answer
from tandemq_server.statemachine.roles import Event, Role, RoleState

STARTUP_TIMEOUT_US = 30_000_000
ENDING_TIMEOUT_US = 5_000_000
RETRY_US, RETRY_MAX_US = SECOND_US, 30_000_000

_Walk = Generator[None, Input, None]


class QueueStateFiber:
    """The role of one node. `step` is its only input; all else is there to be read.

    state: the present role with its history. due_us: when `step(Tick())` is wanted at the latest,
    None for never. notes: the newest request, what is missing, terms. restarts: faults of our own.
    """

    name = "queue_state_fiber"

    def __init__(
        self,
        now_us: int,
        *,
        term_number: int = 0,
        startup_timeout_us: int = STARTUP_TIMEOUT_US,
        ending_timeout_us: int = ENDING_TIMEOUT_US,
    ) -> None:
        """`term_number`: of the last term in the node's own log."""
        self.state = RoleState(now_us)
        self.due_us: int | None = None
        self.notes = RoleNotes(term_number)
        self.restarts = 0
        self._startup_timeout_us = startup_timeout_us
        self._ending_timeout_us = ending_timeout_us
        self._now = now_us
        self._promoted = False
        self._step = 0
        self._out: list[Effect] = [effects.Follow()]
        self._walk = self._started()

    def step(self, now_us: int, item: Input) -> list[Effect]:
        """Take one input; the effects to carry out, in order. Never raises."""
        self._now = max(self._now, now_us)
        try:
            self._walk.send(item)
        except Exception as error:
            self._recover(error)
        out, self._out = self._out, []
        return out

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def ro_reason(self) -> str:
        """Why the node does not serve, in words; empty while it does."""
        return self.notes.ro_reason(self.state.role)

    # -- the walk --------------------------------------------------------------------------------

    def _started(self) -> _Walk:
        walk = self._run()
        next(walk)
        return walk

    def _recover(self, error: Exception) -> None:
        """A fault of our own must not freeze the state: walk on from where the table says."""
        self.restarts += 1
        reason = self.notes.missing = f"failed: {type(error).__name__}: {error}"
        if self.state.role is Role.STARTUP and self._promoted:
            self._withdraw(reason)
        elif self.state.role is Role.STARTUP:
            self._back_to_waiting(Event.FAILED, reason)
        elif self.state.role is Role.ENDING:
            # Not the same way again: it might fail again, for ever.
            self._step += 1
            self._emit(effects.StopDrivers(self._step))
            self._leave_ending(Event.FAILED, reason, drained=False)
        self._walk = self._started()

    def _run(self) -> _Walk:
        while True:
            if self.state.role is Role.STARTUP:
                yield from self._startup()
            elif self.state.role is Role.RUNNING:
                yield from self._serve()
            elif self.state.role is Role.ENDING:
                yield from self._end()
            else:
                yield from self._rest()

    def _rest(self) -> _Walk:
        """INIT and WAITING: until somebody wants the node writable, and nothing forbids it."""
        notes = self.notes
        while True:
            request, retry_us = notes.request, notes.retry_us
            due_us = None
            if request.read_only:
                self._settle(True, "")
            elif notes.fault or notes.hold:
                # Only another request leads out of this: no retry is due, whatever was planned.
                self._settle(False, self.ro_reason)
            elif retry_us is None or self._now >= retry_us:
                again = f", attempt {notes.attempts + 1}" if notes.attempts else ""
                notes.retry_us = None
                self._fire(Event.GO_WRITABLE, ("forced" if request.force else "asked for") + again)
                return
            else:
                due_us = retry_us
            yield from self._input(due_us)

    def _startup(self) -> _Walk:
        self._promoted = self.notes.leading = False
        self.notes.missing = ""
        try:
            advice = yield from self._synchronise()
            yield from self._do(effects.StopFollowing, self._now + self._startup_timeout_us)
            self._check_wanted()
            yield from self._take_seat()
        except StepFailed as error:
            self._back_to_waiting(Event.FAILED, f"failed: {error}")
        except NotAllowed as error:
            self._back_to_waiting(Event.FAILED, str(error))
        except Overdue as error:
            self._back_to_waiting(Event.TIMED_OUT, f"timed out: {error}")
        except Leave as error:
            self._back_to_waiting(Event.SUPERSEDED, str(error))
        else:
            yield from self._promote(advice.solo or self.notes.request.force)

    def _take_seat(self) -> _Walk:
        """With an arbiter: the term is opened by its word, under the number it gives."""
        notes, facts = self.notes, self.notes.facts
        notes.forget_seat()
        if facts is None or facts.seat is None:
            return
        forced, deadline = notes.request.force, self._now + self._startup_timeout_us
        yield from self._do(lambda step: effects.TakeSeat(step, forced), deadline)
        if notes.seat is None:
            raise StepFailed("the seat was not reported as taken")
        self._check_wanted()

    def _synchronise(self) -> Generator[None, Input, Advice]:
        """Wait until nothing is missing here. Raises `Overdue` naming what is."""
        notes, began, known, forced = self.notes, self._now, self.notes.known_number, False
        served: frozenset[str] = frozenset()
        deadline = began + self._startup_timeout_us
        notes.forget_facts()
        self._emit(effects.CheckSync())
        while True:
            self._check_wanted()
            request, rival = notes.request, notes.rival
            if rival is not None and rival.number > known and not request.force:
                notes.hold = f"fenced: {rival.node or 'a peer'} is writable in term {rival.number}"
                raise Leave(notes.hold)
            self._check_nobody_leads()
            if request.force and not forced:
                began, forced = self._now, True
            before, served = served, frozenset(peer.name for peer in notes.masters())
            if before and not served and not forced and notes.others_than(before):
                # What they answered while another served does not tell whom they let serve next.
                began = self._now
                notes.forget_facts()
                self._emit(effects.CheckSync(again=True))
            notes.missing = (advice := notes.advice(self._now - began)).missing
            if advice.answer is Answer.READY:
                return advice
            if advice.answer in (Answer.NEVER, Answer.UNPROVED) and request.command:
                raise NotAllowed(advice.missing)
            if self._now >= deadline:
                if request.force and advice.answer is Answer.WAIT and notes.facts is not None:
                    return replace(advice, solo=True)
                raise Overdue(advice.missing)
            due = deadline if advice.due_us is None else min(deadline, began + advice.due_us)
            yield from self._input(due)

    def _check_nobody_leads(self) -> None:
        """A node that only its configuration wants writable does not wait for another to end."""
        notes = self.notes
        peer = next(notes.masters(), None)
        if peer is not None and not notes.request.command and not notes.request.force:
            notes.hold = f"fenced: {peer.name} is writable in term {peer.term_number}"
            raise Leave(notes.hold)

    def _promote(self, solo: bool) -> _Walk:
        """From the term record to RUNNING. Once `Promote` is done the term exists for good."""
        notes, facts = self.notes, self.notes.facts
        assert facts is not None
        number, term_id = notes.seat or (notes.known_number + 1, b"")
        deadline = self._now + self._startup_timeout_us
        try:
            term = (number, facts.term_id, solo, notes.claim(), term_id)
            yield from self._do(lambda step: effects.WriteTerm(step, *term), deadline)
            if notes.own.number != number:
                raise StepFailed(f"term {number} was not reported as opened")
            notes.rival, notes.leading = None, True
            yield from self._do(effects.Promote, deadline)
        except StepFailed as error:
            self._back_to_waiting(Event.FAILED, f"failed: {error}")
            return
        except Overdue as error:
            # Nobody knows whether the record is in the log: leave as if it were.
            self._promoted = True
            self._withdraw(f"no answer to {error} of term {number}")
            return
        self._promoted = True
        notes.missing = f"the record of term {number} is not committed yet"
        try:
            yield from self._do(effects.AwaitCommit, deadline, self._check_lead)
            self._check_lead()
            yield from self._do(effects.StartDrivers, deadline)
            self._check_lead()
        except Overdue as error:
            self._withdraw(f"timed out: {error} of term {number}")
        except StepFailed as error:
            self._withdraw(f"failed: {error}")
        except Leave as error:
            self._fire(Event.WITHDRAWN, str(error))
        else:
            notes.missing = ""
            notes.attempts = 0
            self._fire(Event.SERVING, f"term {number}" + (", solo" if solo else ""))
            self._settle(True, "")

    def _withdraw(self, reason: str) -> None:
        self._give_up(reason)
        self._fire(Event.WITHDRAWN, reason)

    def _serve(self) -> _Walk:
        notes = self.notes
        while True:
            if notes.fault:
                self._fire(Event.FAILED, notes.fault)
                return
            if notes.rival is not None:
                self._fire(Event.FENCED, notes.fenced_by())
                return
            if notes.request.read_only:
                self._fire(Event.GO_READ_ONLY, "asked for")
                return
            self._settle(True, "")
            yield from self._input(None)

    def _end(self) -> _Walk:
        """Leave in good order within the deadline; a step that fails does not keep the others."""
        deadline = self._now + self._ending_timeout_us
        failures: list[str] = []
        event, drained = Event.DRAINED, False
        final = 0
        try:
            for make in (effects.StopDrivers, effects.WakeWaiters):
                yield from self._try(make, deadline, failures)
            self._check_may_drain()
            done = yield from self._try(effects.Drain, deadline, failures, self._check_may_drain)
            if done is not None:
                final, drained = done.lsn, True
                number = self.notes.known_number + 1
                yield from self._try(
                    lambda step: effects.PublishFinalLsn(step, final, number), deadline, failures
                )
        except Overdue:
            event = Event.OVERDUE
        except Leave:
            # Fenced, or out of a disk: what is not acknowledged by now must never be.
            pass
        if failures:
            event = Event.FAILED
        reasons = [*failures, f"final LSN {final}" if drained else "calls abandoned"]
        self._leave_ending(event, "; ".join(reasons), drained)

    def _leave_ending(self, event: Event, reason: str, drained: bool) -> None:
        notes = self.notes
        if not drained:
            self._emit(effects.AbandonCalls())
        if notes.rival is not None:
            notes.hold = notes.fenced_by()
            reason = f"{notes.hold}; {reason}"
        self._fire(event, reason)
        if not notes.fault:
            self._emit(effects.Follow(rebuild=not drained))

    # -- what ends a walk ------------------------------------------------------------------------

    def _check_wanted(self) -> None:
        if self.notes.fault:
            raise Leave(f"fault: {self.notes.fault}")
        if self.notes.request.read_only:
            raise Leave("read-only again")

    def _check_fence(self) -> None:
        if self.notes.rival is not None:
            raise Leave(self.notes.fenced_by())

    def _check_may_drain(self) -> None:
        self._check_fence()
        if self.notes.fault:
            raise Leave(self.notes.fault)

    def _check_lead(self) -> None:
        self._check_wanted()
        self._check_fence()

    def _back_to_waiting(self, event: Event, reason: str) -> None:
        """STARTUP ends before the term exists; links may have been closed for it."""
        self._fire(event, reason)
        self._give_up(reason)
        if not self.notes.fault:
            self._emit(effects.Follow())

    def _give_up(self, reason: str) -> None:
        """A command is dropped and leaves the node read-only; a configuration is tried again."""
        notes = self.notes
        if notes.request.read_only:
            return
        notes.missing = reason
        self._settle(False, reason)
        if notes.request.command:
            notes.request = RoleRequest(read_only=True)
            return
        notes.retry_us = self._now + min(RETRY_US << min(notes.attempts, 10), RETRY_MAX_US)
        notes.attempts += 1

    # -- small steps -----------------------------------------------------------------------------

    def _emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def _fire(self, event: Event, reason: str) -> None:
        self._emit(effects.StateChanged(self.state.fire(event, reason, self._now)))

    def _settle(self, ok: bool, reason: str) -> None:
        if not self.notes.settled:
            self.notes.settled = True
            self._emit(effects.Settled(self.state.role, ok, reason))

    def _input(self, due_us: int | None) -> Generator[None, Input, Input]:
        """Stand still until the next input, and take note of it."""
        self.due_us = due_us
        item = yield
        self.due_us = None
        self.notes.take(item, self.state.role)
        return item

    def _do(
        self,
        make: Callable[[int], EffectStep],
        deadline_us: int | None = None,
        check: Callable[[], None] | None = None,
    ) -> Generator[None, Input, Done]:
        """Ask for a step and wait for its answer.

        Raises `StepFailed`, `Overdue` past the deadline, and what `check` raises meanwhile.
        """
        self._step += 1
        number = self._step
        step = make(number)
        self._emit(step)  # type: ignore[arg-type]
        while True:
            item = yield from self._input(deadline_us)
            if isinstance(item, Done) and item.step == number:
                return item
            if isinstance(item, Failed) and item.step == number:
                raise StepFailed(f"{type(step).__name__}: {item.reason}")
            if check is not None:
                check()
            if deadline_us is not None and self._now >= deadline_us:
                raise Overdue(type(step).__name__)

    def _try(
        self,
        make: Callable[[int], EffectStep],
        deadline_us: int,
        failures: list[str],
        check: Callable[[], None] | None = None,
    ) -> Generator[None, Input, Done | None]:
        """A step whose failure is noted and does not stop what follows."""
        try:
            return (yield from self._do(make, deadline_us, check))
        except StepFailed as error:
            failures.append(str(error))
            return None
