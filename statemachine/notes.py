"""What the fiber has been told so far: the newest request, facts, terms of others, faults.

Taking note changes no state; the fiber looks here when it is at a point where it may turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from tandemq.model.terms import Claim, TermId
from tandemq_server.statemachine.effects import (
    Fault,
    Input,
    Progress,
    RoleRequest,
    SeatTaken,
    TermOpened,
    TermSeen,
    Unseated,
)
from tandemq_server.statemachine.promotion import (
    Advice,
    Answer,
    Facts,
    PeerFacts,
    advise,
    next_number,
)
from tandemq_server.statemachine.roles import Role


class RoleNotes:
    """request: the newest; settled: its outcome was told. hold: why no request may make it lead.

    known_number: the highest term ever heard of. own: the term it leads in or led in last;
    leading: from the moment it is opened. rival: somebody else's term that ends or forbids one.
    seat: number and id of the term an arbiter lets this node open. unseated: why it leads no more.
    """

    def __init__(self, term_number: int) -> None:
        self.request = RoleRequest(read_only=True, command=False)
        self.settled = True
        self.hold = ""
        self.fault = ""
        self.known_number = term_number
        self.own = TermId(0, b"")
        self.leading = False
        self.rival: TermSeen | None = None
        self.seat: TermId | None = None
        self.unseated = ""
        self.facts: Facts | None = None
        self.attempts = 0
        self.retry_us: int | None = None
        self.missing = ""

    def take(self, item: Input, role: Role) -> None:
        if isinstance(item, RoleRequest):
            self.request = item
            self.settled = False
            self.attempts, self.retry_us = 0, None
            self.hold = self.missing = self.unseated = ""
            if role in (Role.INIT, Role.WAITING):
                self.rival = None
        elif isinstance(item, TermSeen):
            self._seen(item, role)
        elif isinstance(item, TermOpened):
            self.own = TermId(item.number, item.id)
            self.known_number = max(self.known_number, item.number)
        elif isinstance(item, Progress):
            self.facts = item.facts
            self.known_number = max(self.known_number, next_number(item.facts) - 1)
        elif isinstance(item, SeatTaken):
            self.seat = TermId(item.number, item.id)
            self.unseated = ""
        elif isinstance(item, Unseated):
            if self.leading and role not in (Role.INIT, Role.WAITING):
                self.unseated = item.reason
                self.rival = self.rival or TermSeen(self.own.number, b"", False, rival=True)
        elif isinstance(item, Fault):
            self.fault = self.fault or item.reason

    def forget_seat(self) -> None:
        """It was asked for before, for another term."""
        self.seat = None

    def forget_facts(self) -> None:
        """What was known before a promotion was asked for does not count for it."""
        self.facts = None

    def advice(self, waited_us: int) -> Advice:
        """Whether the node may be promoted, `waited_us` after that was asked for."""
        if self.facts is None:
            return Advice(Answer.WAIT, "the peers have not been asked yet")
        return advise(self.facts, waited_us, self.request.force)

    def masters(self) -> Iterator[PeerFacts]:
        """The peers that are heard to serve."""
        peers = self.facts.peers if self.facts is not None else ()
        return (peer for peer in peers if peer.reachable and peer.writable)

    def others_than(self, names: frozenset[str]) -> bool:
        """Whether a peer can be reached that is none of these."""
        peers = self.facts.peers if self.facts is not None else ()
        return any(peer.reachable and peer.name not in names for peer in peers)

    def _seen(self, item: TermSeen, role: Role) -> None:
        self.known_number = max(self.known_number, item.number)
        if role in (Role.INIT, Role.WAITING):
            return
        if self.leading:
            number, term_id = self.own
            newer = item.number > number or (item.number == number and item.id != term_id)
            rival = newer if item.rival is None else item.rival
        else:
            rival = item.writable
        if rival and (self.rival is None or item.number >= self.rival.number):
            self.rival = item

    def fenced_by(self) -> str:
        """The rival in words."""
        rival = self.rival
        assert rival is not None
        if self.unseated:
            return f"fenced: {self.unseated}"
        who = rival.node or "a peer"
        if rival.conflict or (rival.rival is None and rival.number == self.own.number):
            return f"conflict: {who} opened term {rival.number}, too"
        return f"fenced: term {rival.number} of {who}"

    def claim(self) -> Claim:
        """By what right a term begins that the present request leads to."""
        if self.request.force:
            return Claim.FORCED
        if self.seat is not None:
            # The arbiter has ordered it: it counts although nothing is acknowledged in it yet.
            return Claim.ORDERED
        return Claim.ORDERED if self.request.command else Claim.ITSELF

    def ro_reason(self, role: Role) -> str:
        """Why the node does not serve, in words; empty while it does."""
        if role is Role.RUNNING:
            return ""
        if self.fault:
            return f"fault: {self.fault}"
        if self.hold:
            return self.hold
        if role is Role.STARTUP:
            return f"startup: {self.missing}" if self.missing else "startup"
        if self.missing:
            return self.missing
        return "config" if self.request.read_only else role.lower()
