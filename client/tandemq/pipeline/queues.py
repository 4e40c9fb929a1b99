"""The order of takes in each queue: a tube, or a sub-queue where a tube has them.

Takes of one queue stand together, in order of their LSNs; each is compared with those before it.
Where nothing but the take right before counts, a queue is judged in pieces by LSN, so that a tube
with most of a log's tasks is not one worker's work; both sides of a cut are compared at the end.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from tandemq.pipeline.arrays import TEXT, Ints, encoded, numbers

#: A take. queue: a number for its tube and sub-queue, or a piece of them; rank: its place in the
#: order; due, until: LSNs at which it became due and at which its holder let go; sub: one holder at
#: a time.
TAKEN = pa.schema(
    [
        ("tube", TEXT),
        ("task", pa.int64()),
        ("lsn", pa.int64()),
        ("utube", TEXT),
        ("queue", pa.int64()),
        ("rank", pa.int64()),
        ("due", pa.int64()),
        ("until", pa.int64()),
        ("sub", pa.int64()),
    ]
)
#: Odd: the pieces of a queue have numbers far from each other's.
_APART = np.int64(0x5851F42D4C957F2D)


def in_pieces(queue: Ints, piece: Ints) -> Ints:
    """The numbers of queues, another one for each piece of one; piece 0 has its queue's."""
    return queue + piece * _APART


def edges(takes: pa.Table) -> pa.Table:
    """The first and the last of each piece, of takes in order; without those of sub-queues, which
    are never cut."""
    queue, sub = numbers(takes["queue"]), numbers(takes["sub"])
    change = np.ones(len(queue) + 1, bool)
    change[1:-1] = queue[1:] != queue[:-1]
    at_edge = (change[:-1] | change[1:]) & (sub == 0)
    return takes.take(pa.array(np.flatnonzero(at_edge)))


def across(found: pa.Table) -> pa.Table:
    """Of edges: the last one of each piece and the first of the next, each two a queue."""
    tube, _ = encoded(found["tube"])
    utube, _ = encoded(found["utube"])
    piece, lsn, task = (numbers(found[name]) for name in ("queue", "lsn", "task"))
    order = np.lexsort((task, lsn, utube, tube))
    tube, utube, piece = tube[order], utube[order], piece[order]
    same = (tube[1:] == tube[:-1]) & (utube[1:] == utube[:-1])
    cuts = np.flatnonzero(same & (piece[1:] != piece[:-1]))
    both = found.take(pa.array(order[np.stack((cuts, cuts + 1), 1).ravel()]))
    pairs = pa.array(np.repeat(np.arange(len(cuts)), 2), pa.int64())
    return both.set_column(both.column_names.index("queue"), TAKEN.field("queue"), pairs)


def in_order(takes: pa.Table) -> pa.Table:
    """The takes by queue and LSN."""
    columns = (numbers(takes[name]) for name in ("task", "lsn", "queue"))
    return takes.take(pa.array(np.lexsort(tuple(columns))))


class Queues:
    """The rules, over stretches of takes that come in order of queue and LSN."""

    def __init__(self) -> None:
        #: The last take, and of its queue the one let go last.
        self.before: pa.Table | None = None

    def findings(self, takes: pa.Table) -> list[dict[str, Any]]:
        """A row (check, tube, task, lsn, evidence) for each take that breaks a rule, and rule."""
        carried = 0 if self.before is None else self.before.num_rows
        if self.before is not None:
            takes = pa.concat_tables([self.before, takes])
        takes = takes.unify_dictionaries().combine_chunks()
        queue, task, lsn, rank, due, until, sub = (
            numbers(takes[name]) for name in ("queue", "task", "lsn", "rank", "due", "until", "sub")
        )
        same = np.zeros(len(queue), bool)
        same[1:] = queue[1:] == queue[:-1]
        longest = _longest(queue, until, task)
        last, other = np.maximum(np.arange(len(queue)) - 1, 0), np.roll(longest, 1)
        later = (rank[last] > rank) | ((rank[last] == rank) & (task[last] > task))
        broken = same & later & (lsn[last] > due)
        overlap = same & (sub > 0) & (until[other] > lsn) & (task[other] != task)
        fresh = np.arange(len(queue)) >= carried
        found = []
        for at in np.flatnonzero((broken | overlap) & fresh).tolist():
            name = {"queue": takes["utube"][at].as_py() or ""}
            place = {"tube": takes["tube"][at].as_py(), "task": int(task[at]), "lsn": int(lsn[at])}
            if broken[at]:
                one = int(last[at])
                story: dict[str, Any] = {"last": {"rank": int(rank[one]), "task": int(task[one])}}
                story |= {"last_take": int(lsn[one]), "due": int(due[at])}
                found.append(_finding("order_break", place, name | story))
            if overlap[at]:
                one = int(other[at])
                story = {"others": {"until": int(until[one]), "task": int(task[one])}}
                found.append(_finding("utube_overlap", place, name | story))
        ends = sorted({int(longest[-1]), len(queue) - 1}) if len(queue) else []
        self.before = takes.take(pa.array(ends, pa.int64()))
        return found


def _finding(check: str, place: dict[str, Any], story: dict[str, Any]) -> dict[str, Any]:
    return {"check": check, **place, "evidence": json.dumps(story, separators=(",", ":"))}


def _longest(queue: Ints, until: Ints, task: Ints) -> Ints:
    """Of each take: which of its queue's takes so far, itself included, is let go last."""
    count = len(queue)
    by_end = np.lexsort((task, until))
    place = np.empty(count, np.int64)
    place[by_end] = np.arange(count)
    number = np.cumsum(np.diff(queue, prepend=queue[:1]) != 0)
    last: Ints = by_end[np.maximum.accumulate(number * count + place) % max(count, 1)]
    return last
