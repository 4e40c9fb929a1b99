"""May this node be promoted, what would be lost, who should be, and under which number.

Decisions over facts, each with the reason in words; nothing here acts or remembers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tandemq.model.units import SECOND_US

#: How long a master is waited for that is to stop before another is forced, and a peer's answer.
FENCE_US, ANSWER_US = 3_000_000, 2_000_000


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """What was last heard of a peer, `age_us` ago. reachable: a link to it is alive.

    tried: an attempt to reach it has ended since the promotion was asked for, well or badly.
    acked_mark: the highest LSN it knows to be acknowledged; foreign_term: its last term is not
    part of this node's history. ended: its process said that it ends, and did not serve then.
    outcome: of this node's log against its, "above", "below" or "conflict", where the two part.
    answered: it has spoken after it had heard that this node wants to serve. first: it wants to
    serve, too, and of the two it goes first.
    """

    name: str
    reachable: bool
    tried: bool = True
    writable: bool = False
    last_lsn: int = 0
    term_number: int = 0
    term_id: bytes = b""
    foreign_term: bool = False
    acked_mark: int = 0
    age_us: int = 0
    ended: bool = False
    outcome: str = ""
    answered: bool = True
    first: bool = False


@dataclass(frozen=True, slots=True)
class SeatFacts:
    """What the arbiter says of a promotion. written: it holds a seat at all; lived: one that
    shows that a cluster had been founded under it.

    waiting: it is being asked; refusal: why it would not give the seat to this node, empty if it
    would. may_lose: so many acknowledged records may be missing here (ack: local).
    """

    written: bool = False
    lived: bool = False
    waiting: str = ""
    refusal: str = ""
    may_lose: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What this node knows when a promotion is considered.

    lacks: up to which LSN records were acknowledged that are not all in this log, 0 for none.
    lag_us: the largest replication lag last seen. led: the last term was opened by this very
    process, which has offered the lead to nobody since; a restart forgets it. blank: nothing was
    ever written here; founds: an operator said that it may found a cluster. joining: a snapshot is
    not installed yet. pair: two nodes confirm a write,
    unless the last term is `solo` or may have gone solo after `solo_after_us` (None: never).
    peer_term: the highest number heard of anywhere. original: whoever cannot be reached is given
    twice the lag and then taken as gone, as the original does it. seat: None without an arbiter.
    """

    last_lsn: int
    term_number: int = 0
    term_id: bytes | None = None
    acked_mark: int = 0
    lacks: int = 0
    led: bool = False
    blank: bool = False
    founds: bool = False
    joining: bool = False
    pair: bool = False
    solo: bool = False
    solo_after_us: int | None = None
    lag_us: int = 0
    peer_term: int = 0
    original: bool = False
    peers: tuple[PeerFacts, ...] = ()
    seat: SeatFacts | None = None


class Answer(StrEnum):
    """READY: go; WAIT: what is missing may still come; UNPROVED: only by force, or by what a peer
    may yet say; NEVER: not even if forced.
    """

    READY = "ready"
    WAIT = "wait"
    UNPROVED = "unproved"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer, what is missing, and whether the new term must carry the solo flag.

    due_us: with WAIT, after how long a wait (counted as `waited_us` is) the answer may change by
    itself; None: only by new facts.
    """

    answer: Answer
    missing: str = ""
    solo: bool = False
    due_us: int | None = None


@dataclass(frozen=True, slots=True)
class LossBound:
    """What a promotion now would give up: acknowledged records at most. None: unknown.

    age_us: how long ago anything was heard of whoever may have more; 0 when all is known.
    """

    records: int | None
    age_us: int
    text: str


GONE = (
    "this node is empty, and so are its peers, but there was a cluster: its seat shows it; its "
    "data directory may not be mounted; if the data is gone for good, start with --init"
)


def next_number(facts: Facts) -> int:
    """The number of the term a promotion opens: one above any that was ever heard of."""
    known = [facts.term_number, facts.peer_term, *(peer.term_number for peer in facts.peers)]
    return max(known) + 1


def advise(facts: Facts, waited_us: int, force: bool) -> Advice:
    """May the node be promoted now, `waited_us` after it was asked for?

    Force overrides everything but an unfinished snapshot; even then a peer that can still send
    what is missing is waited for, until the caller's own deadline.
    """
    if facts.joining:
        return Advice(Answer.NEVER, "a snapshot is not complete: the state here is not whole")
    if facts.blank and facts.seat is not None and facts.seat.written:
        if not all_empty(facts):
            text = "this node is empty: it joins the cluster whose seat there is"
            return Advice(Answer.NEVER, text)
        if facts.seat.lived and not facts.founds:
            return Advice(Answer.NEVER, GONE)
    if facts.blank and (waiting := _founding(facts)):
        return waiting
    if waiting := _from_the_reachable(facts, waited_us, force):
        return waiting
    if force:
        return Advice(Answer.READY, solo=True)
    if facts.seat is not None and (facts.seat.written or facts.seat.waiting or facts.seat.refusal):
        return _by_the_seat(facts, facts.seat)
    if waiting := _in_turn(facts, waited_us):
        return waiting
    if conflict := _conflict(facts):
        return Advice(Answer.WAIT, conflict)
    if lost := _acknowledged_elsewhere(facts):
        return Advice(Answer.UNPROVED, f"{lost}; who has them must be heard, or --force")
    return _without_the_silent(facts, waited_us)


def all_empty(facts: Facts) -> bool:
    """Every peer says that it is empty, too: a seat there is may have been taken to found a
    cluster, and that came to nothing.
    """
    return all(peer.reachable and not peer.term_number for peer in facts.peers)


def _by_the_seat(facts: Facts, seat: SeatFacts) -> Advice:
    """The arbiter knows who may lead; what peers do or are proved to do is no matter then."""
    if seat.waiting:
        return Advice(Answer.WAIT, seat.waiting)
    if seat.refusal:
        return Advice(Answer.UNPROVED, f"{seat.refusal}, or --force")
    missing = max(facts.acked_mark, facts.lacks) - facts.last_lsn
    if (lost := _acknowledged_elsewhere(facts)) and missing > seat.may_lose:
        return Advice(Answer.UNPROVED, f"{lost}; who has them must be heard, or --force")
    return Advice(Answer.READY, solo=bool(lost))


def _founding(facts: Facts) -> Advice | None:
    """An empty node joins its peer's cluster; it founds one only if it knows that there is none.

    Its directory may be empty because a volume is not mounted: not even force founds then.
    """
    for peer in facts.peers:
        if peer.reachable and peer.term_number:
            return Advice(Answer.NEVER, f"this node is empty: it joins the cluster of {peer.name}")
    silent = [peer for peer in facts.peers if not peer.reachable]
    if untried := [peer.name for peer in silent if not peer.tried]:
        return Advice(Answer.WAIT, f"trying to reach {', '.join(untried)}")
    if not silent or facts.founds:
        return None
    names = ", ".join(peer.name for peer in silent)
    return Advice(
        Answer.NEVER,
        f"this node is empty and {names} cannot be reached: it joins when it can; only the first "
        "node of a new cluster is started with --init",
    )


def _from_the_reachable(facts: Facts, waited_us: int, force: bool) -> Advice | None:
    """What still comes from peers that can be reached: their stop, their records."""
    for peer in facts.peers:
        if not peer.reachable:
            continue
        if peer.writable and not force:
            return Advice(Answer.WAIT, f"{peer.name} is writable: make it read-only first")
        if peer.writable and waited_us < FENCE_US:
            # What it acknowledges until it hears of the new term would be cut.
            missing = f"{peer.name} is writable and asked to stop first"
            return Advice(Answer.WAIT, missing, due_us=FENCE_US)
        if not peer.writable and (missing := _missing_from(peer, facts)):
            return Advice(Answer.WAIT, missing)
    return None


def _acknowledged_elsewhere(facts: Facts) -> str:
    if facts.acked_mark > facts.last_lsn:
        lost = f"records {facts.last_lsn + 1}..{facts.acked_mark}"
        return f"{lost} were acknowledged and are not here"
    if facts.lacks:
        return f"records up to {facts.lacks} were acknowledged in a term this log does not have"
    return ""


def _without_the_silent(facts: Facts, waited_us: int) -> Advice:
    if untried := [peer.name for peer in facts.peers if not peer.reachable and not peer.tried]:
        return Advice(Answer.WAIT, f"trying to reach {', '.join(untried)}")
    silent = [peer for peer in facts.peers if not peer.reachable]
    solo = bool(silent) and not (facts.led or facts.blank)
    if facts.original:
        return _after_the_lag(facts, silent, waited_us) or Advice(Answer.READY, solo=solo)
    if unproved := [peer.name for peer in silent if not _proved_idle(peer, facts)]:
        return Advice(Answer.UNPROVED, _unproved(", ".join(unproved), facts))
    return Advice(Answer.READY, solo=solo)


def _in_turn(facts: Facts, waited_us: int) -> Advice | None:
    """Of two that want to serve one goes first; and each hears the other's answer before.

    So of two nodes that begin at one time only one opens a term, and an order that was on its way
    for long is checked with whoever gave it.
    """
    reachable = [peer for peer in facts.peers if peer.reachable]
    for peer in reachable:
        if peer.first and peer.outcome != "above":
            return Advice(Answer.WAIT, f"{peer.name} wants to serve, too, and goes first")
    silent = [peer.name for peer in reachable if not peer.answered]
    if not silent or facts.led:
        return None
    missing = f"no answer from {', '.join(silent)}"
    if waited_us < ANSWER_US:
        return Advice(Answer.WAIT, missing, due_us=ANSWER_US)
    return Advice(Answer.UNPROVED, f"{missing}: it may not hear this node, and may serve")


def _after_the_lag(facts: Facts, silent: list[PeerFacts], waited_us: int) -> Advice | None:
    """The original's rule: it leads after twice the lag, whatever it knows."""
    if not silent or waited_us >= 2 * facts.lag_us:
        return None
    names = ", ".join(peer.name for peer in silent)
    missing = f"{names} cannot be reached: waiting twice the lag last seen"
    return Advice(Answer.WAIT, missing, due_us=2 * facts.lag_us)


def _proved_idle(peer: PeerFacts, facts: Facts) -> bool:
    """A peer out of reach has acknowledged nothing that is not here, and acknowledges nothing.

    Nobody serves but by force unless whoever may serve has let it: so a process that served last
    and has let nobody goes on, and one that ended read-only does not serve when it comes back.
    """
    if facts.blank or facts.led:
        return True
    if peer.ended and not peer.writable:
        return not _missing_from(peer, facts)
    # It may not go alone later either: what it did until now is not enough.
    return facts.solo_after_us is None and _confirmed_by_this_node(facts, peer.age_us)


def _unproved(names: str, facts: Facts) -> str:
    return (
        f"{names} cannot be reached, and nothing shows that it does not serve; if it is gone, or "
        f"made read-only: tandemq role rw --force --at-lsn {facts.last_lsn}"
    )


def _missing_from(peer: PeerFacts, facts: Facts) -> str:
    """What a peer that does not write has and this node lacks; it will send it."""
    if peer.outcome:
        if peer.outcome != "below":
            return ""
        name, number = peer.name, peer.term_number
        return f"{name} is in term {number}, which outranks {facts.term_number}: promote {name}"
    if peer.term_number < facts.term_number:
        return ""
    if peer.term_number == facts.term_number and peer.foreign_term:
        # Neither will follow the other: an operator's case, not a matter of waiting.
        return ""
    if peer.term_number > facts.term_number and peer.foreign_term:
        return f"{peer.name} is in term {peer.term_number}, this node in {facts.term_number}"
    if peer.last_lsn > facts.last_lsn:
        lacking = peer.last_lsn - facts.last_lsn
        return f"{lacking} records of {peer.name}: it ends at LSN {peer.last_lsn}"
    return ""


def _conflict(facts: Facts) -> str:
    for peer in facts.peers:
        same_number = peer.foreign_term and peer.term_number == facts.term_number
        if peer.outcome == "conflict" or (same_number and not peer.outcome):
            return (
                f"{peer.name} and this node were both promoted to term {peer.term_number}: "
                "force the one that stands"
            )
    return ""


def loss_bound(facts: Facts) -> LossBound:
    """What would be lost if this node were promoted at this moment, by what it knows."""
    records = max(0, facts.acked_mark - facts.last_lsn)
    blind = []
    for peer in facts.peers:
        if (peer.reachable or peer.ended) and not peer.writable:
            records = max(records, min(peer.acked_mark, peer.last_lsn) - facts.last_lsn)
        else:
            blind.append(peer)
    if not blind:
        return LossBound(records, 0, f"{records} acknowledged records" if records else "nothing")
    age_us = max(peer.age_us for peer in blind)
    names = ", ".join(peer.name for peer in blind)
    if not records and _confirmed_by_this_node(facts, age_us):
        return LossBound(0, age_us, f"nothing: {names} acknowledges only what this node confirmed")
    heard = f"{names} may have acknowledged for {age_us / SECOND_US:.1f} s what is not here"
    if all(peer.reachable for peer in blind):
        records = max(records, max(peer.acked_mark for peer in blind) - facts.last_lsn, 0)
        missing = f"{records} acknowledged records so far, " if records else "nothing so far, "
        text = f"{missing}but {names} serves: a switch-over would lose nothing at all"
        return LossBound(records, age_us, text)
    return LossBound(None, age_us, f"unknown: {heard}")


def _confirmed_by_this_node(facts: Facts, age_us: int) -> bool:
    """In pair mode a single peer cannot acknowledge without this node, unless it went solo."""
    if not facts.pair or facts.solo or len(facts.peers) != 1:
        return False
    return facts.solo_after_us is None or age_us < facts.solo_after_us


def best_candidate(nodes: Iterable[PeerFacts]) -> PeerFacts | None:
    """Whom to promote among nodes that can be reached: the latest term, then the longest log."""
    alive = [node for node in nodes if node.reachable]
    return max(alive, key=lambda node: (node.term_number, node.last_lsn, node.name), default=None)
