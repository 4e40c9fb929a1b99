"""Bugs planted into the seat's joints, to prove that scenarios with an arbiter see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tandemq_server.node.cluster.failover.keeper import SeatKeeper
from tandemq_server.replication.commit import CommitPoint
from tandemq_server.statemachine import notes, promotion
from tandemq_server.statemachine import seat as table
from tandemq_server.statemachine.promotion import Advice, Answer
from tandemq_server.statemachine.seat import Lead, Needs, Stand, Starved

Patch = pytest.MonkeyPatch


def go_alone_by_the_timer(patch: Patch) -> None:
    alone = lambda view, _event: (view._replace(stand=Stand.ALONE, needs=None), (Needs(None),))  # noqa: E731
    patch.setitem(table.TABLE, (Stand.PAIRED, Starved), alone)


def promote_whoever_asks(patch: Patch) -> None:
    """Whoever sees the master gone takes the seat, partner or not."""
    patch.setattr(table, "may_take", lambda _view, _event: "")
    idle = SeatKeeper._idle

    def eager(keeper: SeatKeeper, now_us: int) -> None:
        idle(keeper, now_us)
        seat = keeper.seat
        if seat is not None and seat.master != keeper.settings.name and not keeper._waits():
            keeper._take_over(seat, now_us)

    patch.setattr(SeatKeeper, "_idle", eager)


def need_nobody_although_paired(patch: Patch) -> None:
    """The commit point is not told that the partner's confirmation is needed again."""
    needs = CommitPoint.needs
    patch.setattr(CommitPoint, "needs", lambda point, _partner, now: needs(point, None, now))


def serve_without_the_seat(patch: Patch) -> None:
    """A refusal of the arbiter is passed over: the term is opened all the same."""

    def lead(view: Any, event: Lead) -> Any:
        after, effects = table._lead(view, event)
        return table._unheard(after, after.asked.seat) if after.asked else (after, effects)

    patch.setitem(table.TABLE, (Stand.FOLLOWING, Lead), lead)


def ask_nobody_before_a_promotion(patch: Patch) -> None:
    patch.setattr(notes, "advise", lambda _facts, _waited, _force: Advice(Answer.READY))
    patch.setattr(promotion, "advise", lambda _facts, _waited, _force: Advice(Answer.READY))
    patch.setattr(table, "may_take", lambda _view, _event: "")


PLANTED: dict[str, Callable[[Patch], None]] = {
    bug.__name__: bug
    for bug in (
        go_alone_by_the_timer,
        promote_whoever_asks,
        need_nobody_although_paired,
        serve_without_the_seat,
        ask_nobody_before_a_promotion,
    )
}
