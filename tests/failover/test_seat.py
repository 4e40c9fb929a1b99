"""The seat's table, answer by answer; and the schedules that no small search finds."""

from __future__ import annotations

from typing import Any

import pytest

from tandemq_server.statemachine import seat as table
from tandemq_server.statemachine.seat import (
    LEADING,
    NEEDING,
    TABLE,
    UNCONFIRMED,
    Confirm,
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
    begun,
    outdated,
    step,
)
from tests.failover.seat_model import Bounds, Model, Node, State, play, start, wrong

OURS = Seat(4, "4a", "a", "b", 0, "")
THEIRS = Seat(5, "5b", "b", None, 0, "b: a is gone")
PAIRED = SeatView("a", Stand.PAIRED, SeatReading(OURS, 7), OURS, "b")
ALONE = PAIRED._replace(
    stand=Stand.ALONE,
    needs=None,
    held=OURS._replace(partner=None),
    reading=SeatReading(OURS._replace(partner=None), 8),
)
LEAD = Lead("6x", 4, "why")


def kinds(effects: tuple[Any, ...]) -> list[type]:
    return [type(effect) for effect in effects]


def test_every_outcome_of_a_swap_has_an_answer_where_one_may_be_under_way() -> None:
    for stand in (Stand.TAKING, Stand.PARTING, Stand.PAIRING, Stand.OWING):
        for kind in (Won, Lost, Silent):
            assert (stand, kind) in TABLE
    assert not UNCONFIRMED & NEEDING
    for stand in LEADING:
        assert {kind for at, kind in TABLE if at is stand} >= {Heard, Rested}


# -- S3, S7: who may open a term -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seat", "known", "refused"),
    [
        (OURS._replace(master="b", partner="a"), 4, ""),
        (OURS, 4, ""),
        (None, 0, ""),
        (None, 9, ""),
        (OURS._replace(master="b", partner=None), 4, "the seat is b's, and nobody is in step"),
        (OURS._replace(master="b", partner="c"), 4, "the seat is b's, and only c may follow it"),
        (OURS, 5, "seat 4 and the log at term 5: it was restored from an older state"),
    ],
)
def test_who_may_open_a_term(seat: Seat | None, known: int, refused: str) -> None:
    view, effects = step(SeatView("a", reading=SeatReading(seat, 3)), LEAD._replace(known=known))
    if refused:
        assert isinstance(effects[0], Refuse)
        assert refused in effects[0].reason
        assert view.stand is Stand.FOLLOWING
        return
    assert kinds(effects) == [Confirm, Swap], "it confirms nothing any more before it asks"
    wanted = Seat(max(known, seat.no if seat else 0) + 1, "6x", "a", None, 0, "why")
    assert effects[1] == Swap(3, wanted)
    won, effects = step(view, Won(effects[1], SeatReading(wanted, 4)))
    assert effects == (Needs(None), Open(wanted))
    assert won.stand is Stand.ALONE


def test_a_process_that_has_not_asked_leads_nobody() -> None:
    view, effects = step(begun("a"), LEAD)
    assert view == SeatView("a")
    assert effects == (Refuse("the arbiter has not answered since this process began"),)


def test_a_seat_not_won_is_no_lead() -> None:
    follower = SeatView("b", reading=SeatReading(OURS, 7))
    taking, (_, swap) = step(follower, LEAD)
    there = SeatReading(OURS._replace(partner=None), 8)
    view, effects = step(taking, Lost(swap, there))
    assert (view.stand, view.reading, kinds(effects)) == (
        Stand.FOLLOWING,
        there,
        [Refuse, Confirm],
    )
    view, effects = step(taking, Silent(swap))
    assert (view.stand, kinds(effects)) == (Stand.FOLLOWING, [Refuse, Confirm, Read])
    late, effects = step(view, Won(swap, SeatReading(swap.seat, 8)))
    assert not effects, "an answer that nobody waits for any more makes no master"
    assert late.reading == SeatReading(swap.seat, 8)


# -- S2, S4, S6 ------------------------------------------------------------------------------------


def test_alone_only_by_an_own_swap_that_was_answered() -> None:
    parting, (swap,) = step(PAIRED, Starved("no word of b"))
    assert swap == Swap(7, OURS._replace(partner=None, by="no word of b"))
    paired, effects = step(parting, Silent(swap))
    assert (paired.stand, paired.needs, effects) == (Stand.PAIRED, "b", (Read(),))
    read, effects = step(paired, Heard(SeatReading(swap.seat, 8)))
    assert not effects, "a read that shows no partner turns nothing on"
    again, (second,) = step(read, Starved("still none"))
    assert second.revision == 8, "from null to null, which moves the revision"
    alone, effects = step(again, Won(second, SeatReading(second.seat, 9)))
    assert (alone.stand, effects) == (Stand.ALONE, (Needs(None),))


def test_a_swap_to_be_alone_that_was_lost_leaves_it_paired() -> None:
    parting, (swap,) = step(PAIRED, Starved("no word of b"))
    there = SeatReading(OURS, 9)
    view, effects = step(parting, Lost(swap, there))
    assert (view.stand, view.needs, effects) == (Stand.PAIRED, "b", ())
    assert step(parting, Lost(swap, SeatReading(THEIRS, 9)))[1][0] == StepDown(
        "the seat is b's: b: a is gone"
    )


def test_an_answer_to_an_older_swap_decides_nothing() -> None:
    """Only what is under way now: the older one may have been overtaken since."""
    parting, (first,) = step(PAIRED, Starved("no word of b"))
    paired, _ = step(parting, Silent(first))
    again, (second,) = step(paired, Starved("still none"))
    for late in (Won(first, SeatReading(first.seat, 8)), Lost(first, SeatReading(THEIRS, 8))):
        view, effects = step(again, late)
        assert (view.stand, view.asked, effects) == (Stand.PARTING, second, ())
    assert step(again, Silent(first)) == (again, ())


def test_who_is_named_is_not_named_again() -> None:
    assert step(PAIRED, InStep("b", 0, "keeps up")) == (PAIRED, ())


def test_a_read_turns_alone_off() -> None:
    late = SeatReading(OURS._replace(partner="b"), 9)
    view, effects = step(ALONE, Heard(late))
    assert (view.stand, view.needs, effects) == (Stand.PAIRED, "b", (Needs("b"),))


def test_a_partner_is_required_before_it_is_named_and_named_once_it_has_everything() -> None:
    joining, effects = step(ALONE, InStep("b", 3, "keeps up"))
    assert (joining.stand, effects) == (Stand.JOINING, (Needs("b"),))
    assert step(joining, InStep("c", 0, ""))[1] == ()
    pairing, (swap,) = step(joining, InStep("b", 0, "keeps up"))
    assert swap.seat.partner == "b"
    assert step(pairing, Won(swap, SeatReading(swap.seat, 9)))[0].stand is Stand.PAIRED
    unknown, _ = step(pairing, Silent(swap))
    assert step(unknown, InStep("c", 0, ""))[1] == (), "b may be named yet"
    assert step(unknown, InStep("b", 0, ""))[0].stand is Stand.PAIRING


# -- S5 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stand", sorted(NEEDING | {Stand.ALONE}))
def test_whose_seat_is_anothers_steps_down(stand: Stand) -> None:
    view, effects = step(PAIRED._replace(stand=stand), Heard(SeatReading(THEIRS, 9)))
    assert effects[0] == StepDown("the seat is b's: b: a is gone")
    assert (view.stand, view.held) == (Stand.FOLLOWING, None)


@pytest.mark.parametrize("stand", sorted(NEEDING))
def test_who_hears_nobody_steps_down(stand: Stand) -> None:
    assert step(PAIRED._replace(stand=stand), Stranded("nobody"))[1][0] == StepDown("nobody")


def test_who_is_alone_by_its_own_swap_goes_on_without_the_arbiter() -> None:
    assert step(ALONE, Stranded("nobody")) == (ALONE, ())


# -- S8 and a register that went back --------------------------------------------------------------


def test_force_without_the_arbiter_leads_and_tells_it_later() -> None:
    forced = LEAD._replace(forced=True)
    owing, effects = step(begun("b"), forced)
    seat = Seat(5, "6x", "b", None, 0, "why")
    assert effects == (Confirm(False), Needs(None), Open(seat), Read())
    told, effects = step(owing, Heard(SeatReading(OURS, 7)))
    assert effects == (Swap(7, seat),)
    there = SeatReading(OURS._replace(partner=None), 8)
    again, effects = step(told, Lost(effects[0], there))
    assert effects == (Swap(8, seat),)
    assert step(again, Won(effects[0], SeatReading(seat, 9)))[0].stand is Stand.ALONE
    newer = SeatReading(THEIRS._replace(no=6), 9)
    assert isinstance(step(owing, Heard(newer))[1][0], StepDown), "somebody was put here later"


def test_force_whose_swap_is_not_answered_leads() -> None:
    taking, (_, swap) = step(
        SeatView("b", reading=SeatReading(OURS, 7)), LEAD._replace(forced=True)
    )
    view, effects = step(taking, Silent(swap))
    assert (view.stand, kinds(effects)) == (Stand.OWING, [Confirm, Needs, Open, Read])


@pytest.mark.parametrize("stand", sorted(NEEDING | {Stand.ALONE}))
@pytest.mark.parametrize(
    "old", [SeatReading(None, 0), SeatReading(Seat(2, "2b", "b", "a", 0, ""), 3)]
)
def test_a_register_that_went_back_changes_nothing(stand: Stand, old: SeatReading) -> None:
    view = PAIRED._replace(stand=stand)
    assert step(view, Heard(old)) == (view, ())
    assert outdated(old, 4)


def test_a_register_that_went_back_is_seeded_by_hand() -> None:
    old = SeatReading(Seat(2, "2b", "b", "a", 0, ""), 3)
    view, (swap,) = step(PAIRED, Seed(old, "an operator"))
    assert swap == Swap(3, OURS._replace(partner=None, by="an operator"))
    assert view.stand is Stand.PARTING, "replies go on needing b until it is answered"
    view, (swap,) = step(ALONE, Seed(old, "an operator"))
    assert step(view, Won(swap, SeatReading(swap.seat, 4)))[0].stand is Stand.ALONE
    assert step(PAIRED, Seed(SeatReading(OURS, 7), "")) == (PAIRED, ())


# -- schedules -------------------------------------------------------------------------------------


def parted() -> State:
    """a was put over b by force, in term 3; b's word for its own log of term 2 comes late."""
    seat = Seat(3, "3a", "a", "b", 0, "")
    reading = SeatReading(seat, 1)
    a = Node(True, SeatView("a", Stand.PAIRED, reading, seat, "b"), 3, False, False, 0, (), 3)
    b = Node(True, SeatView("b"), 0, False, True, 0, ((2, 9),), 3)
    return State(reading, (a, b), frozenset({("confirm", 0, 2, 1)}), frozenset(), 0)


def test_a_confirmation_of_another_term_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S1, "in this very term": as many records there are not these records."""
    model = Model(Bounds(3, 4, 4, 2))
    ends = ("a acknowledges", "b asks for the seat", "swapped")
    after = play(model, parted(), "a writes")
    assert "confirmed" not in dict(model.steps(after))
    monkeypatch.setattr("tests.failover.seat_model.counts", lambda _acked_in, _term: True)
    after = play(model, after._replace(net=parted().net), "confirmed", *ends)
    assert "acknowledged" in wrong(after)


class Unlocked(Model):
    """Older terms are not told from newer ones by those who are fed."""

    @staticmethod
    def follows(_peer: Node, _node: Node) -> bool:
        return True


def test_who_takes_the_seat_is_fed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3, "stops confirming before it asks": what an old master sends would go over its own."""
    script = (
        "b asks for the seat",
        "swapped",
        "answered",
        "b writes",
        "b acknowledges",
        "a writes",
    )
    after = play(Unlocked(), start(), *script)
    assert "a feeds" not in dict(Unlocked().steps(after))
    lead = table._lead

    def goes_on(view: Any, event: Any) -> Any:
        view, effects = lead(view, event)
        return view, tuple(effect for effect in effects if not isinstance(effect, Confirm))

    monkeypatch.setitem(table.TABLE, (Stand.FOLLOWING, Lead), goes_on)
    after = play(Unlocked(), start(), *script, "a feeds")
    assert "acknowledged" in wrong(after)
