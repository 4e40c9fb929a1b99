"""The seat as people see it: whose it is, who may be promoted, what would happen now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tandemq_server.replication.commit import PAIR
from tandemq_server.statemachine.seat import LEADING, Stand

if TYPE_CHECKING:
    from tandemq_server.node.cluster.failover.keeper import SeatKeeper


class SeatReport(NamedTuple):
    """arbiter: its name; problem: why it does not answer. no, master, partner, by: of the seat.

    stand: where this node stands; paused: why it does not take over automatically. outlook: what
    would happen now if the master died. last: how the last takeover of this process went.
    """

    arbiter: str
    problem: str
    no: int
    master: str
    partner: str
    by: str
    stand: str
    candidate: bool
    paused: str
    outlook: str
    last: str


def report(keeper: SeatKeeper) -> SeatReport:
    seat = keeper.seat
    return SeatReport(
        keeper.name,
        keeper.problem,
        seat.no if seat is not None else 0,
        seat.master if seat is not None else "",
        (seat.partner or "") if seat is not None else "",
        seat.by if seat is not None else "",
        keeper.view.stand.value,
        keeper.failover.candidate,
        keeper.paused,
        outlook(keeper),
        keeper.story.last,
    )


def outlook(keeper: SeatKeeper) -> str:
    """What would happen now if the master died, as far as this node can tell."""
    seat, name = keeper.seat, keeper.settings.name
    if keeper.problem:
        return f"nobody would serve: {keeper.name} does not answer"
    if seat is None:
        return "nobody would serve: nobody has taken the seat yet"
    if keeper.watch.gone_back is not None or keeper.view.stand is Stand.OWING:
        return f"nobody would serve: {keeper.name} holds an older seat"
    if seat.partner is None:
        return f"nobody would serve: no node is in step with {seat.master}"
    partner = seat.partner
    if keeper.watch.alive_us is not None and partner not in keeper.watch.alive:
        return f"nobody would serve: {partner} is not heard"
    if partner == name and keeper.paused:
        return f"nobody would serve by itself: paused on {name}: {keeper.paused}"
    if partner == name and not keeper.failover.candidate:
        return f"nobody would serve by itself: {name} is not a candidate"
    if keeper.settings.replication.ack == PAIR:
        return f"{partner} would serve within 1 s, nothing lost"
    most = keeper.failover.max_loss_records or 0
    after = keeper.failover.liveness_ttl + 2
    return f"{partner} would serve within {after:g} s, at most {most} acknowledged records lost"


def troubles(keeper: SeatKeeper) -> list[str]:
    """What an operator must hear of."""
    found = []
    held = keeper.view.held
    if keeper.paused:
        found.append(f"failover is paused: {keeper.paused}; tandemq failover resume")
    if keeper.watch.gone_back is not None and held is not None and keeper.view.stand in LEADING:
        there = keeper.watch.gone_back.seat
        now = f"at seat {there.no}" if there is not None else "empty"
        found.append(
            f"{keeper.name} is {now}, the term here is {held.no}: it was restored from an older "
            "state; tandemq failover seed writes the seat anew"
        )
    return found


def pause(keeper: SeatKeeper, why: str) -> None:
    """An operator wants no automatic takeover here, until `resume`."""
    keeper.paused = why
    keeper.peering.say(f"failover: paused: {why}")


def resume(keeper: SeatKeeper) -> None:
    if keeper.paused:
        keeper.peering.say("failover: resumed")
    keeper.paused = ""
    keeper.pace.forget()
