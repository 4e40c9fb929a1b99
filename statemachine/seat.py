"""Who may lead: the seat, one register in an arbiter, and what a node makes of what it hears of it.

TABLE says, for where a node stands and what happened, which rule answers; a pair that is not in it
changes nothing. No clock, no calls: swaps are asked for as effects, and their outcomes come as
events. The rules S1 to S8 are told in docs/failover.md; `tests/failover/test_seat_model.py`
runs every interleaving over this very table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandemq_server.statemachine.seat_words import (
    LEADING,
    NEEDING,
    UNCONFIRMED,
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

__all__ = [
    "Confirm",
    "Effect",
    "Event",
    "Heard",
    "InStep",
    "LEADING",
    "Lead",
    "Lost",
    "NEEDING",
    "Needs",
    "Open",
    "Read",
    "SeatReading",
    "Refuse",
    "Rested",
    "Seat",
    "Seed",
    "Silent",
    "Stand",
    "Starved",
    "StepDown",
    "Stranded",
    "Swap",
    "TABLE",
    "UNCONFIRMED",
    "SeatView",
    "Won",
    "begun",
    "mine",
    "outdated",
    "step",
]

Answer = tuple[SeatView, tuple[Effect, ...]]

# -- rules -----------------------------------------------------------------------------------------


def begun(name: str) -> SeatView:
    """S7: a process knows nothing of the seat before it has asked, and leads nobody."""
    return SeatView(name)


def step(view: SeatView, event: Event) -> Answer:
    """What follows. Outcomes of a swap that is not the one under way only tell what is there."""
    if isinstance(event, Won | Lost | Silent):
        if event.swap != view.asked:
            known = view if isinstance(event, Silent) else view._replace(reading=event.reading)
            return known, ()
        view = view._replace(asked=None)
    rule = TABLE.get((view.stand, type(event)))
    return (view, ()) if rule is None else rule(view, event)


def mine(reading: SeatReading, held: Seat | None) -> bool:
    """Whether the register still names this leadership."""
    seat = reading.seat
    if seat is None or held is None:
        return False
    return (seat.no, seat.term_id, seat.master) == (held.no, held.term_id, held.master)


def outdated(reading: SeatReading, known: int) -> bool:
    """The register is older than what logs show: somebody restored or emptied it."""
    return known > 0 and (reading.seat is None or reading.seat.no < known)


def may_take(view: SeatView, event: Lead) -> str:
    """S3, S7: why this node may not open a term now; empty if it may."""
    if event.forced:
        return ""
    if view.reading is None:
        return "the arbiter has not answered since this process began"
    seat = view.reading.seat
    if seat is None:
        return ""
    if seat.no < event.known:
        return (
            f"the arbiter is at seat {seat.no} and the log at term {event.known}: it was restored "
            "from an older state; tandemq failover seed writes the seat anew"
        )
    if view.name in (seat.master, seat.partner):
        return ""
    partner = f"only {seat.partner} may follow it" if seat.partner else "nobody is in step with it"
    return f"the seat is {seat.master}'s, and {partner}"


def _lead(view: SeatView, event: Lead) -> Answer:
    """S3: by the partner only (or who holds the seat already); it stops confirming first."""
    if refusal := may_take(view, event):
        return view, (Refuse(refusal),)
    reading = view.reading
    last = reading.seat.no if reading is not None and reading.seat is not None else 0
    seat = Seat(max(last, event.known) + 1, event.term_id, view.name, None, 0, event.by)
    taking = view._replace(stand=Stand.TAKING, held=None, forced=event.forced)
    if reading is None:
        return _unheard(taking, seat)
    swap = Swap(reading.revision, seat)
    return taking._replace(asked=swap), (Confirm(False), swap)


def _unheard(view: SeatView, seat: Seat) -> Answer:
    """S8: force does without the arbiter, and owes it the seat."""
    return view._replace(stand=Stand.OWING, held=seat, needs=None, forced=False), (
        Confirm(False),
        Needs(None),
        Open(seat),
        Read(),
    )


def _taken(view: SeatView, event: Won) -> Answer:
    seat = event.swap.seat
    led = view._replace(
        stand=Stand.ALONE, reading=event.reading, held=seat, needs=None, forced=False
    )
    return led, (Needs(None), Open(seat))


def _not_taken(view: SeatView, event: Lost) -> Answer:
    there = event.reading.seat
    why = f"{there.master} has it: {there.by}" if there is not None else "it was emptied"
    back = view._replace(stand=Stand.FOLLOWING, reading=event.reading, forced=False)
    return back, (Refuse(f"the seat was changed meanwhile: {why}"), Confirm(True))


def _take_unknown(view: SeatView, event: Silent) -> Answer:
    """S6: what became of it a read will tell; until it was asked for anew nobody leads by it."""
    if view.forced:
        return _unheard(view, event.swap.seat)
    back = view._replace(stand=Stand.FOLLOWING, forced=False)
    reason = "the arbiter did not answer: nobody knows whether the seat is this node's"
    return back, (Refuse(reason), Confirm(True), Read())


def _part(view: SeatView, event: Starved) -> Answer:
    """S2: alone only by an own successful swap; until then replies stay parked.

    From null to null if need be (S6): that moves the revision, and kills a request under way.
    """
    if view.held is None or view.reading is None or not mine(view.reading, view.held):
        return view, (Read(),)
    swap = Swap(view.reading.revision, view.held._replace(partner=None, by=event.by))
    return view._replace(stand=Stand.PARTING, asked=swap), (swap,)


def _alone(view: SeatView, event: Won) -> Answer:
    led = view._replace(stand=Stand.ALONE, reading=event.reading, held=event.swap.seat, needs=None)
    return led, (Needs(None),)


def _join(view: SeatView, event: InStep) -> Answer:
    """S4: first everything needs its confirmation, then, all being confirmed, the swap."""
    joining = view._replace(stand=Stand.JOINING, needs=event.node)
    after, effects = _pair(joining, event)
    return after, (Needs(event.node), *effects)


def _pair(view: SeatView, event: InStep) -> Answer:
    if event.node != view.needs or event.behind or not view.held or not view.reading:
        return view, ()
    swap = Swap(view.reading.revision, view.held._replace(partner=event.node, by=event.by))
    return view._replace(stand=Stand.PAIRING, asked=swap), (swap,)


def _pair_again(view: SeatView, event: InStep) -> Answer:
    """After an unknown outcome: the same node once more, never another, which may be named yet."""
    named = view.reading is not None and view.reading.seat is not None and view.reading.seat.partner
    return (view, ()) if named else _pair(view, event)


def _paired(view: SeatView, event: Won) -> Answer:
    return view._replace(stand=Stand.PAIRED, reading=event.reading, held=event.swap.seat), ()


def _refused_there(view: SeatView, event: Lost) -> Answer:
    """A lost swap of who leads: it goes on if the seat is still its, as before it asked."""
    return _heard_leading(view._replace(stand=Stand.PAIRED), Heard(event.reading))


def _unknown_there(view: SeatView, _event: Silent) -> Answer:
    """S6: replies go on needing the confirmation, until an own swap is answered."""
    return view._replace(stand=Stand.PAIRED), (Read(),)


def _heard(view: SeatView, event: Heard | Won | Lost) -> Answer:
    return view._replace(reading=event.reading), ()


def _heard_leading(view: SeatView, event: Heard) -> Answer:
    """S5: not its own any more: it steps down. S6: a read turns alone off, never on."""
    reading, held = event.reading, view.held
    assert held is not None
    if outdated(reading, held.no):
        # The register went back in time: it takes nothing away, and nothing is built on it.
        return view, ()
    if not mine(reading, held):
        return _down(view._replace(reading=reading), _whose(reading.seat))
    view = view._replace(reading=reading)
    partner = reading.seat.partner if reading.seat is not None else None
    if partner is None or view.needs == partner:
        return view, ()
    if view.stand is Stand.ALONE or view.needs is None:
        return view._replace(stand=Stand.PAIRED, needs=partner), (Needs(partner),)
    return view._replace(needs=partner), (Needs(partner),)


def _whose(seat: Seat | None) -> str:
    return "the seat is empty" if seat is None else f"the seat is {seat.master}'s: {seat.by}"


def _down(view: SeatView, reason: str) -> Answer:
    """S5. What was asked for may still come to pass: whoever leads next reads first."""
    back = view._replace(stand=Stand.FOLLOWING, held=None, needs=None)
    return back, (StepDown(reason), Confirm(True))


def _stranded(view: SeatView, event: Stranded) -> Answer:
    return _down(view, event.reason)


def _rested(view: SeatView, _event: Rested) -> Answer:
    back = view._replace(stand=Stand.FOLLOWING, held=None, needs=None, forced=False)
    return back, (Confirm(True),)


def _owe(view: SeatView, event: Heard | Lost) -> Answer:
    """The arbiter answers again: it is told whom an operator put here, unless it knows better."""
    reading, held = event.reading, view.held
    assert held is not None
    view = view._replace(reading=reading)
    if mine(reading, held):
        return view._replace(stand=Stand.ALONE), ()
    if reading.seat is not None and reading.seat.no >= held.no:
        return _down(view, _whose(reading.seat))
    swap = Swap(reading.revision, held)
    return view._replace(asked=swap), (swap,)


def _owed_unknown(view: SeatView, _event: Silent) -> Answer:
    return view, (Read(),)


def _owe_no_more(view: SeatView, event: Won) -> Answer:
    return view._replace(stand=Stand.ALONE, reading=event.reading), ()


def _seed(view: SeatView, event: Seed) -> Answer:
    """Alone by the swap that writes the seat, or, where it is alone, by what it is already."""
    if view.held is None or not outdated(event.reading, view.held.no):
        return view, ()
    if view.stand is Stand.ALONE:
        swap = Swap(event.reading.revision, view.held._replace(by=event.by))
        return view._replace(stand=Stand.OWING, asked=swap), (swap,)
    swap = Swap(event.reading.revision, view.held._replace(partner=None, by=event.by))
    return view._replace(stand=Stand.PARTING, asked=swap), (swap,)


TABLE: dict[tuple[Stand, type[Event]], Callable[[SeatView, Any], Answer]] = {
    (Stand.FOLLOWING, Heard): _heard,
    (Stand.FOLLOWING, Won): _heard,
    (Stand.FOLLOWING, Lost): _heard,
    (Stand.FOLLOWING, Lead): _lead,
    (Stand.FOLLOWING, Rested): _rested,
    (Stand.TAKING, Heard): _heard,
    (Stand.TAKING, Won): _taken,
    (Stand.TAKING, Lost): _not_taken,
    (Stand.TAKING, Silent): _take_unknown,
    (Stand.TAKING, Rested): _rested,
    (Stand.PAIRED, Starved): _part,
    (Stand.PAIRED, InStep): _pair_again,
    (Stand.PAIRED, Seed): _seed,
    (Stand.PARTING, Won): _alone,
    (Stand.PARTING, Lost): _refused_there,
    (Stand.PARTING, Silent): _unknown_there,
    (Stand.ALONE, InStep): _join,
    (Stand.ALONE, Seed): _seed,
    (Stand.JOINING, InStep): _pair,
    (Stand.JOINING, Starved): _part,
    (Stand.PAIRING, Won): _paired,
    (Stand.PAIRING, Lost): _refused_there,
    (Stand.PAIRING, Silent): _unknown_there,
    (Stand.OWING, Heard): _owe,
    (Stand.OWING, Won): _owe_no_more,
    (Stand.OWING, Lost): _owe,
    (Stand.OWING, Silent): _owed_unknown,
    (Stand.OWING, Rested): _rested,
    (Stand.ALONE, Heard): _heard_leading,
    (Stand.ALONE, Rested): _rested,
    **{(stand, Heard): _heard_leading for stand in sorted(NEEDING)},
    **{(stand, Stranded): _stranded for stand in sorted(NEEDING)},
    **{(stand, Rested): _rested for stand in sorted(NEEDING)},
}
