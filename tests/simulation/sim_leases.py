"""No task, and no sub-queue, in two hands: leases as the clients saw them, laid side by side.

A lease begins when the answer of its take is there. It is surely valid up to the first moment at
which it might end: its holder began to end it, its ttr could be over, its session was not heard for
as long as sessions are kept, somebody promoted a node by force. Nothing here knows how the queue
counts; what the clients asked and were answered is all there is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.simulation.sim_clients import History, Op
from tests.simulation.sim_rescue import Rescued
from tests.simulation.sim_world import SECOND

#: How much of a ttr is believed: clocks drift, and who counts has begun some moments before.
BELIEVED = 0.95
NEVER = 1 << 62
ENDS = frozenset({"ack", "release", "bury", "delete"})


@dataclass(frozen=True, slots=True)
class Lease:
    """One task in one hand, for sure from `since` until before `until`."""

    take: Op
    since: int
    until: int

    def __str__(self) -> str:
        op = self.take
        return (
            f"{op.session} has {op.number} as {op.tube} {op.task_id} of {op.node} from "
            f"{self.since / SECOND:.4f} to {self.until / SECOND:.4f}"
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """kept_us: how long a session that is not heard is kept. stepped: clocks were set anew.

    forced: (from, to) of each promotion by force: what was taken before its end may be another's
    from its beginning on.
    """

    kept_us: int
    stepped: bool = False
    forced: tuple[tuple[int, int], ...] = ()


def check_leases(history: History, rules: Rules, rescued: Rescued) -> str:
    """What was in two hands at one moment, or nothing."""
    leases = [one for one in leases_of(history, rules) if not _undone(one, rescued)]
    for first, second in _together(leases, history.ops):
        return f"{first}, and {second}"
    return ""


def leases_of(history: History, rules: Rules) -> Iterator[Lease]:
    silences = _Silences(history, int(rules.kept_us * BELIEVED))
    ends: dict[object, list[int]] = defaultdict(list)
    expires: dict[object, int] = {}
    taken_away: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for op in history.ops:
        if op.kind == "put" and op.expires is not None:
            # It vanishes, in whoever's hand it is, and its sub-queue goes on.
            sooner = op.began + int((op.expires - op.began) * BELIEVED)
            expires[op.number] = min(sooner, expires.get(op.number, NEVER))
        if op.kind in ENDS:
            ends[op.session, op.tube, op.task_id].append(op.began)
        # These ask nobody's leave; what was taken before they end may be another's.
        window = (op.began, NEVER if op.ended is None or op.outcome.unknown else op.ended)
        if op.kind in ("bury", "delete"):
            taken_away[op.tube, op.task_id].append(window)
        elif op.kind in ("release_all", "truncate"):
            taken_away[op.tube].append(window)
    for op in history.ops:
        if op.kind != "take" or op.outcome.ok is None or op.number is None or op.ended is None:
            continue
        windows = [*taken_away[op.tube, op.task_id], *taken_away[op.tube], *rules.forced]
        until = min(
            _first(ends[op.session, op.tube, op.task_id], op.ended),
            silences.after(op.session, op.began),
            _timed(op, rules),
            op.began if rules.stepped and op.number in expires else expires.get(op.number, NEVER),
            min((since for since, to in windows if op.began <= to), default=NEVER),
        )
        if op.ended < until:
            yield Lease(op, op.ended, until)


def _timed(op: Op, rules: Rules) -> int:
    if op.until is None:
        return NEVER
    return op.began if rules.stepped else op.began + int((op.until - op.began) * BELIEVED)


def _first(moments: list[int], since: int) -> int:
    return min((moment for moment in moments if moment >= since), default=NEVER)


class _Silences:
    """When each session was last heard before it was silent for too long."""

    def __init__(self, history: History, kept_us: int) -> None:
        self.kept_us = kept_us
        heard: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        for session, began, ended in history.heard:
            heard[session].append((began, ended))
        for op in history.ops:
            if op.session is not None and op.ended is not None and op.outcome.ok is not None:
                heard[op.session].append((op.began, op.ended))
        self.heard = {session: sorted(moments) for session, moments in heard.items()}

    def after(self, session: str | None, moment: int) -> int:
        """The first moment from this one on at which the session may have been given up."""
        heard = self.heard.get(session, [])
        place = bisect_left(heard, (moment, 0))
        last = moment
        for began, ended in heard[place:]:
            if ended - last > self.kept_us:
                break
            last = max(last, began)
        return last + self.kept_us


def _together(leases: list[Lease], ops: list[Op]) -> Iterator[tuple[Lease, Lease]]:
    """Two leases of one task, or of one sub-queue, that are valid at one moment."""
    lanes = {
        (op.tube, op.number, op.task_id): op.subqueue
        for op in ops
        if op.kind == "put" and op.subqueue is not None and op.task_id is not None
    }
    groups: dict[object, list[Lease]] = defaultdict(list)
    for lease in leases:
        op = lease.take
        groups["task", op.tube, op.task_id, op.number].append(lease)
        lane = lanes.get((op.tube, op.number, op.task_id))
        if lane is not None and op.tube.startswith("utube"):
            groups["sub-queue", op.tube, lane].append(lease)
    for group in groups.values():
        group.sort(key=lambda lease: (lease.since, lease.until))
        for place, first in enumerate(group):
            for second in group[place + 1 :]:
                if second.since >= first.until:
                    break
                if _hand(first) != _hand(second):
                    yield first, second


def _hand(lease: Lease) -> tuple[object, ...]:
    """One session may be answered of one take twice: not two hands."""
    return lease.take.session, lease.take.task_id, lease.take.number


def _undone(lease: Lease, rescued: Rescued) -> bool:
    """What an operator reads of a cut shows a take of it, or cannot tell of this very take."""
    op = lease.take
    return rescued.shows_take(op.tube, op.task_id) or op.untold
