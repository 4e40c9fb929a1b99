"""What the fiber is told and what it asks for. Plain values.

An `EffectStep` carries a number and is answered by `Done` or `Failed` with that number, once; the
fiber asks for one step at a time. The other effects are for the owner to take note of.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandemq.model.terms import Claim
from tandemq_server.statemachine.promotion import Facts
from tandemq_server.statemachine.roles import Role, Transition

# -- inputs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """Somebody wants the node (not) writable. Only the newest request counts.

    force: go on where proof is missing that nothing acknowledged is lost. command: an operator
    waits for the outcome; a command that fails is dropped, a configuration is tried again.
    """

    read_only: bool
    force: bool = False
    command: bool = True


@dataclass(frozen=True, slots=True)
class TermSeen:
    """A peer lives in this term; `writable`: it is RUNNING in it. `node`: for the reason.

    rival: whether that term ends the present leadership here, None where only its number is known;
    conflict: nobody can tell which of the two stands.
    """

    number: int
    id: bytes
    writable: bool
    node: str = ""
    rival: bool | None = None
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class TermOpened:
    """This node opened a term: for `WriteTerm`, before its Done, and for pair mode's changes."""

    number: int
    id: bytes


@dataclass(frozen=True, slots=True)
class Progress:
    """The facts a promotion depends on, after `CheckSync` whenever they change.

    The last one comes before the Done of StopFollowing: its `term_id` is the new term's parent.
    """

    facts: Facts


@dataclass(frozen=True, slots=True)
class Done:
    """A step is done. `lsn`: of Drain, the final LSN."""

    step: int
    lsn: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A step failed and has left nothing behind (Promote and WriteTerm are one transaction)."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class SeatTaken:
    """The arbiter's word: the term with this number and id is to be opened. Before its Done."""

    number: int
    id: bytes


@dataclass(frozen=True, slots=True)
class Unseated:
    """By the arbiter's word, or for want of it, the present leadership ends at once."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The node cannot write any more, whatever it is doing (the log's first error)."""

    reason: str


Input = (
    Tick
    | RoleRequest
    | TermSeen
    | TermOpened
    | Progress
    | Done
    | Failed
    | SeatTaken
    | Unseated
    | Fault
)

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The node is in another state from this moment on: it serves, and ticks, only in RUNNING.

    A step asked for before is void: not to be begun any more, its answer is passed over.
    """

    transition: Transition


@dataclass(frozen=True, slots=True)
class CheckSync:
    """Send `Progress` now, and again whenever a fact changes, until the state changes.

    again: a check goes on; peers that can be reached are to answer once more.
    """

    again: bool = False


@dataclass(frozen=True, slots=True)
class EffectStep:
    """Base of the effects that are answered."""

    step: int


@dataclass(frozen=True, slots=True)
class StopFollowing(EffectStep):
    """Close every link to an upstream before anything is written."""


@dataclass(frozen=True, slots=True)
class TakeSeat(EffectStep):
    """Ask the arbiter for the seat, where there is one; nobody is followed any more."""

    forced: bool


@dataclass(frozen=True, slots=True)
class WriteTerm(EffectStep):
    """Open term `number` with a new random id and `parent`, put its record into a transaction.

    The transaction stays open: `Promote` ends it. claim: by what right it begins. id: the one an
    arbiter knows it by, empty without one.
    """

    number: int
    parent: bytes | None
    solo: bool
    claim: Claim = Claim.ORDERED
    id: bytes = b""


@dataclass(frozen=True, slots=True)
class Promote(EffectStep):
    """Release what nobody may still claim, and commit it with the term record.

    Failed: the transaction is rolled back, the term record is not in the log.
    """


@dataclass(frozen=True, slots=True)
class AwaitCommit(EffectStep):
    """Done once the term record is committed by the mode's rule (durable; in pair: twice)."""


@dataclass(frozen=True, slots=True)
class StartDrivers(EffectStep):
    """Drivers start, timers run."""


@dataclass(frozen=True, slots=True)
class StopDrivers(EffectStep):
    """Drivers stop, timers stand still. Must be harmless when they were not started."""


@dataclass(frozen=True, slots=True)
class WakeWaiters(EffectStep):
    """Answer every waiting consumer with the read-only error."""


@dataclass(frozen=True, slots=True)
class Drain(EffectStep):
    """Done(lsn = end of the log) once every record appended so far is committed, replies sent."""


@dataclass(frozen=True, slots=True)
class PublishFinalLsn(EffectStep):
    """Tell the peers (HANDOFF) that the log ends at `lsn` and `next_term` may begin."""

    lsn: int
    next_term: int


@dataclass(frozen=True, slots=True)
class AbandonCalls:
    """Calls still unanswered have an unknown outcome: close their connections, never say failed."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Subscribe to every peer. rebuild: the state in memory is ahead of what was committed."""

    rebuild: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """The newest request was carried out, or given up: then `reason` says what is missing."""

    role: Role
    ok: bool
    reason: str


Effect = (
    StateChanged
    | CheckSync
    | StopFollowing
    | TakeSeat
    | WriteTerm
    | Promote
    | AwaitCommit
    | StartDrivers
    | StopDrivers
    | WakeWaiters
    | Drain
    | PublishFinalLsn
    | AbandonCalls
    | Follow
    | Settled
)
