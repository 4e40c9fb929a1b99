"""The seat's rules hold in every interleaving, and each of them is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tandemq_server.statemachine import seat as table
from tandemq_server.statemachine.seat import (
    NEEDING,
    Confirm,
    Heard,
    InStep,
    Lead,
    Lost,
    Needs,
    Open,
    Seat,
    SeatReading,
    SeatView,
    Silent,
    Stand,
    Starved,
    Won,
)
from tests.failover.seat_model import Bounds, Found, Model, Node, State, search, wrong

Patch = pytest.MonkeyPatch
#: `SEAT_BOUNDS=3,4,4,2` (records, terms, revisions, messages) takes an hour.
ASKED = os.environ.get("SEAT_BOUNDS")
BOUNDS = Bounds(*map(int, ASKED.split(","))) if ASKED else Bounds()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_interleaving_loses_what_was_acknowledged(tell: Callable[[str], None]) -> None:
    found = search(Model(BOUNDS), limit=60_000_000)
    tell(f"the seat: {found.states} states within {BOUNDS}")
    assert found.complete
    assert not found.problem, found.trace
    assert found.states > 700_000


# -- each rule switched off ------------------------------------------------------------------------


def acknowledge_what_is_durable_here(patch: Patch) -> Model:
    """S1."""
    patch.setattr("tests.failover.seat_model.reach", lambda durable, _confirmed, _alone: durable)
    return Model()


def go_alone_by_a_timer(patch: Patch) -> Model:
    """S2: as pair mode without a seat does."""
    alone = lambda view, _event: (view._replace(stand=Stand.ALONE, needs=None), (Needs(None),))  # noqa: E731
    patch.setitem(table.TABLE, (Stand.PAIRED, Starved), alone)
    return Model()


def go_alone_when_asking(patch: Patch) -> Model:
    """S2."""
    part = table._part

    def early(view: Any, event: Any) -> Any:
        after, effects = part(view, event)
        return after, (Needs(None), *effects)

    patch.setitem(table.TABLE, (Stand.PAIRED, Starved), early)
    return Model()


def promote_whoever_asks(patch: Patch) -> Model:
    """S3."""
    patch.setattr(table, "may_take", lambda _view, _event: "")
    return Model()


def swap_without_comparing(patch: Patch) -> Model:
    """S2 and S3: an arbiter that takes whatever comes last."""
    patch.setattr(Model, "wins", staticmethod(lambda _swap, _reading: True))
    return Model()


def require_the_confirmation_after_the_swap(patch: Patch) -> Model:
    """S4."""
    join, paired = table._join, table._paired

    def late(view: Any, event: Any) -> Any:
        after, effects = join(view, event)
        return after, effects[1:]

    def then(view: Any, event: Any) -> Any:
        after, effects = paired(view, event)
        return after, (Needs(after.needs), *effects)

    patch.setitem(table.TABLE, (Stand.ALONE, InStep), late)
    patch.setitem(table.TABLE, (Stand.PAIRING, Won), then)
    return Model()


def name_a_partner_that_is_behind(patch: Patch) -> Model:
    """S4."""
    join = table._join
    patch.setitem(
        table.TABLE,
        (Stand.ALONE, InStep),
        lambda view, event: join(view, event._replace(behind=0)),
    )
    return Model()


def stay_although_the_seat_is_anothers(patch: Patch) -> Model:
    """S5."""
    for stand in (*NEEDING, Stand.ALONE):
        patch.setitem(table.TABLE, (stand, Heard), table._heard)
    for stand in (Stand.PARTING, Stand.PAIRING):
        stay = lambda view, event: (view._replace(stand=Stand.PAIRED, reading=event.reading), ())  # noqa: E731
        patch.setitem(table.TABLE, (stand, Lost), stay)
    patch.setattr(table, "mine", lambda _reading, _held: True)
    return Model()


def take_a_read_for_a_swap(patch: Patch) -> Model:
    """S6: the register says that it has no partner, so it goes alone."""
    heard = table._heard_leading

    def on(view: Any, event: Any) -> Any:
        after, effects = heard(view, event)
        if after.held and event.reading.seat.partner is None and after.asked is None:
            return after._replace(stand=Stand.ALONE, needs=None), (*effects, Needs(None))
        return after, effects

    for stand in NEEDING:
        patch.setitem(table.TABLE, (stand, Heard), on)
    return Model()


def take_silence_for_yes(patch: Patch) -> Model:
    """S6."""
    alone = lambda view, _event: (view._replace(stand=Stand.ALONE, needs=None), (Needs(None),))  # noqa: E731
    patch.setitem(table.TABLE, (Stand.PARTING, Silent), alone)
    return Model()


class Headstrong(Model):
    """Who led last leads on when it comes back, alone, as its log says."""

    def restarted(self, node: Node, i: int) -> Node:
        if not node.log or i:
            return super().restarted(node, i)
        held = Seat(node.term, f"{node.term}a", "a", None, 0, "")
        view = SeatView("a", Stand.ALONE, SeatReading(held, 0), held)
        return node._replace(up=True, view=view, led=node.term, alone=True, confirms=False)


def lead_again_from_memory(_patch: Patch) -> Model:
    """S7."""
    return Headstrong()


def open_a_term_without_the_register(patch: Patch) -> Model:
    """S8: as an operator's command without an arbiter does."""

    def lead(view: Any, event: Any) -> Any:
        after, effects = table._lead(view, event)
        if after.asked is None:
            return after, effects
        seat = after.asked.seat
        led = after._replace(stand=Stand.ALONE, held=seat, asked=None)
        return led, (Confirm(False), Needs(None), Open(seat))

    patch.setitem(table.TABLE, (Stand.FOLLOWING, Lead), lead)
    return Model()


SWITCHED_OFF = {
    rule.__name__: rule
    for rule in (
        acknowledge_what_is_durable_here,
        go_alone_by_a_timer,
        go_alone_when_asking,
        promote_whoever_asks,
        swap_without_comparing,
        require_the_confirmation_after_the_swap,
        name_a_partner_that_is_behind,
        stay_although_the_seat_is_anothers,
        take_a_read_for_a_swap,
        take_silence_for_yes,
        lead_again_from_memory,
        open_a_term_without_the_register,
    )
}


def found_without(name: str, look: Callable[[State], str] = wrong) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        model = SWITCHED_OFF[name](patch)
        model.bounds = Bounds(2, 3, 4, 2)
        return search(model, 400_000, look)


@pytest.mark.slow
@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_each_rule_is_needed(name: str, tell: Callable[[str], None]) -> None:
    found = found_without(name)
    tell(f"{name}: {len(found.trace)} steps, {found.states} states: {' > '.join(found.trace)}")
    assert found.problem, f"{name}: not found in {found.states} states"


@pytest.mark.slow
def test_who_reads_of_another_and_stays_loses_something_in_the_end() -> None:
    """S5, by what is lost alone."""

    def lost(state: State) -> str:
        return wrong(state) if "acknowledged" in wrong(state) else ""

    assert found_without("stay_although_the_seat_is_anothers", lost).problem
