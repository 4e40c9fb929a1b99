"""The simulation's judge of leases, over histories written by hand: found, and let pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.sim_clients import History, Op, Outcome
from tests.simulation.sim_leases import Rules, check_leases
from tests.simulation.sim_rescue import Rescued
from tests.simulation.sim_world import MS, SECOND

RULES = Rules(kept_us=5 * SECOND)


class Told:
    """Moments in milliseconds; a call is answered 2 ms after it was asked."""

    def __init__(self) -> None:
        self.history = History()

    def op(self, session: str, kind: str, at: int, task: int = 7, **more: Any) -> Told:
        tube = more.pop("tube", "fifo")
        op = Op(session, kind, tube, task, session=session, node=more.pop("node", "a"))
        op.began, op.task_id, op.subqueue = at * MS, task, more.pop("subqueue", None)
        op.outcome = more.pop("outcome", Outcome(ok=[1]))
        op.ended = None if op.outcome.unknown else more.pop("ended", at + 2) * MS
        if "ttr" in more:
            op.until = op.began + more.pop("ttr") * MS
        if "ttl" in more:
            op.expires = op.began + more.pop("ttl") * MS
        assert not more
        self.history.ops.append(op)
        return self

    def found(self, rules: Rules = RULES, rescued: Rescued | None = None) -> str:
        return check_leases(self.history, rules, rescued or Rescued())


def told() -> Told:
    return Told().op("w0", "take", 100)


NOT_TAKEN = Outcome(error=(32, "Task was not taken"))

WRONG = {
    "two sessions": told().op("w1", "take", 200),
    "two takes at one moment": told().op("w1", "take", 101),
    "while it is touched": told().op("w0", "touch", 300).op("w1", "take", 400),
    "before its ttr": Told().op("w0", "take", 100, ttr=3000).op("w1", "take", 2000),
    "by one who is refused later": told()
    .op("w1", "take", 200)
    .op("w0", "ack", 300, outcome=NOT_TAKEN),
    "after another task was released": told()
    .op("w0", "release", 150, task=8)
    .op("w1", "take", 200),
    "two of one sub-queue": (
        Told()
        .op("p0", "put", 10, task=1, tube="utube", subqueue="u1")
        .op("p0", "put", 20, task=2, tube="utube", subqueue="u1")
        .op("w0", "take", 100, task=1, tube="utube")
        .op("w1", "take", 200, task=2, tube="utube")
    ),
}
RIGHT = {
    "one after the other": told().op("w0", "release", 150).op("w1", "take", 151),
    "an ack of unknown outcome": told()
    .op("w0", "release", 150, outcome=Outcome())
    .op("w1", "take", 200),
    "its ttr was over": Told().op("w0", "take", 100, ttr=1000).op("w1", "take", 1100),
    "a session not heard for as long as it is kept": told().op("w1", "take", 5101),
    "a session heard again too late": told().op("w0", "touch", 6000).op("w1", "take", 6010),
    "released for all by an operator": (told().op("o", "release_all", 150).op("w1", "take", 160)),
    "the end of its ttl": (
        Told()
        .op("p0", "put", 10, task=1, tube="utube", subqueue="u1", ttl=1000)
        .op("p0", "put", 20, task=2, tube="utube", subqueue="u1")
        .op("w0", "take", 100, task=1, tube="utube")
        .op("w1", "take", 1011, task=2, tube="utube")
    ),
    "buried by another": told().op("w9", "bury", 150).op("w1", "take", 300),
    "one session": told().op("w0", "take", 200),
    "other tasks": told().op("w1", "take", 200, task=8),
    "two sub-queues": (
        Told()
        .op("p0", "put", 10, task=1, tube="utube", subqueue="u1")
        .op("p0", "put", 20, task=2, tube="utube", subqueue="u2")
        .op("w0", "take", 100, task=1, tube="utube")
        .op("w1", "take", 200, task=2, tube="utube")
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_in_two_hands_is_found(name: str) -> None:
    assert WRONG[name].found()


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_be_is_let_pass(name: str) -> None:
    assert not RIGHT[name].found()


def test_a_session_that_is_heard_keeps_its_lease() -> None:
    story = told()
    for at in range(1000, 20_000, 2000):
        story.history.heard.append(("w0", at * MS, (at + 2) * MS))
    assert story.op("w1", "take", 20_000).found()


def test_force_ends_what_was_taken_before_it_and_nothing_else() -> None:
    story = told().op("w1", "take", 400, node="b")
    assert not story.found(Rules(5 * SECOND, forced=((200 * MS, 300 * MS),)))
    assert story.found(Rules(5 * SECOND, forced=((20 * MS, 30 * MS),)))


def test_clocks_that_were_set_end_a_ttr_at_any_time() -> None:
    story = Told().op("w0", "take", 100, ttr=3000).op("w1", "take", 200, ttr=3000)
    assert not story.found(Rules(5 * SECOND, stepped=True))


def test_a_take_is_excused_only_by_a_cut_that_shows_this_very_task() -> None:
    story = told().op("w1", "take", 200, node="b")
    assert story.found(rescued=Rescued(hands={("fifo", 8, "take"), ("utube", 7, "take")}))
    assert not story.found(rescued=Rescued(hands={("fifo", 7, "take")}))


@pytest.mark.parametrize("place", [0, 1])
def test_what_no_file_tells_excuses_the_very_take_and_no_other(place: int) -> None:
    story = told().op("w1", "take", 200, node="b").op("w2", "take", 300, node="b")
    story.history.ops[place].untold = True
    assert story.found()
    story.history.ops[2].untold = True
    assert not story.found()
