"""The order of takes: which ready task was passed over.

Each queue is gone through once with a heap of what is ready, as a tube that does what it promises
would have it: what a record takes must be the first of them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandemq.pipeline.judge import words as w
from tandemq.pipeline.judge.table import Bits, Ints
from tandemq.pipeline.judge.tasks import PRI, PRI15, RANK15, READY, TAKEN, TaskChanges
from tandemq.pipeline.judge.world import TTL_DRIVERS, ChunkView, LoggedTube

#: queue15: ranks of tasks nobody moved; larger ones are sent back and wait for a turn of theirs.
MIDDLE_15 = 1 << 32
ENTERS, LEAVES, IS_TAKEN = range(3)
#: More events than this are worth loading compiled code for.
WORTH_COMPILING = 400_000


@dataclass(frozen=True)
class Passed:
    """`change`: the change after which it was ready; `by`: the take that passed it over."""

    change: int
    by: int
    still_there: bool


def passed_over(view: ChunkView, t: TaskChanges) -> list[Passed]:
    """Tasks that were ready while a later one of their queue was taken; each told of once."""
    queue, rank, judged = _places(view, t)
    entered = judged & (t.sa == READY) & ((t.sb != READY) | ~t.existed)
    left = judged & (t.sb == READY) & t.existed & (t.sa != READY)
    chosen = np.flatnonzero((entered & t.table.whole) | left)
    if not len(chosen):
        return []
    act = np.where(entered[chosen], ENTERS, np.where(t.sa[chosen] == TAKEN, IS_TAKEN, LEAVES))
    at = np.where(t.table.real, t.at, -1)[chosen]
    # All that a record takes leaves before it is judged.
    order = np.lexsort((at, queue[chosen]))
    chosen, act = chosen[order], act[order]
    group = np.cumsum(t.table.first) - 1
    found = walk(queue[chosen], t.rec[chosen], act, rank[chosen], group[chosen], int(group[-1]) + 1)
    last = np.zeros(int(group[-1]) + 1, np.int64)
    last[group] = np.arange(len(t))
    passed = []
    for ready, take in found:
        change, end = int(chosen[ready]), int(last[group[chosen[ready]]])
        stays = bool(t.sa[end] == READY) and bool(t.exists[end])
        passed.append(Passed(change, int(chosen[take]), stays))
    return passed


def _places(view: ChunkView, t: TaskChanges) -> tuple[Ints, Ints, Bits]:
    """(queue, rank in it, whether its order is judged) of each change."""
    fifo, ttl = t.of("fifo", "utube"), t.of(*TTL_DRIVERS)
    lanes, records = t.of("queue15"), t.of("xqueue")
    sub = np.zeros(len(t), np.int64)
    pri = np.zeros(len(t), np.int64)
    key = t.task
    judged = (fifo | ttl) & (t.table.real | t.exists)
    for mine, field in ((t.of("utube"), 2), (t.of("utubettl"), 7), (lanes, 2)):
        if mine.any():
            sub = np.where(mine, np.where(t.exists, t.after(field), t.before(field)), sub)
    if ttl.any():
        pri = np.where(ttl, np.where(t.exists, t.after(PRI), t.before(PRI)), pri)
    if lanes.any():
        rank15: Ints = np.where(t.exists, t.after(RANK15), t.before(RANK15))
        stored = np.where(t.exists, t.after(PRI15), t.before(PRI15))
        pri = np.where(lanes, rank15 << 8 | stored, pri)
        judged |= lanes & (rank15 <= MIDDLE_15)
    if records.any():
        pri, key, fit = _of_records(view, t, pri, key)
        judged |= records & fit
    queue = t.tube * 1_000_003 + (sub % 1_000_000_007) * 4_000_037
    return queue, _ranks(pri, key), judged


def _of_records(view: ChunkView, t: TaskChanges, pri: Ints, key: Ints) -> tuple[Ints, Ints, Bits]:
    """Of xqueue: the field of the priority, and keys by number or by how their text begins."""
    fields = view.of_tubes(_priority_field)
    fit = np.ones(len(t), bool)
    for field in np.unique(fields).tolist():
        if field <= 0:
            continue
        mine = fields[t.tube] == field
        if field >= w.FIELDS:
            fit &= ~mine
            continue
        pri = np.where(mine, np.where(t.exists, t.after(field), t.before(field)), pri)
    begins = t.table.of_line(w.PREFIX)
    return pri, np.where(begins > 0, begins, key), fit


def _priority_field(tube: LoggedTube) -> int:
    """Field of an xqueue's rows that orders them, 0 for none."""
    if tube.driver != "xqueue":
        return 0
    fields: dict[str, Any] = tube.opts.get("fields", {})
    at = fields.get("priority")
    if at is None:
        return 0
    own = (tube.opts.get("pk"), fields.get("status"), fields.get("runat"))
    others = [one for one in range(len(tube.opts.get("format", ()))) if one not in own]
    return 5 + others.index(at) if at in others else 0


def _ranks(pri: Ints, key: Ints) -> Ints:
    """One number for both."""
    if not len(pri):
        return pri
    if pri.min() >= 0 and pri.max() < 1 << 20 and key.min() >= 0 and key.max() < 1 << 42:
        return pri << 42 | key
    order = np.lexsort((key, pri))
    new = np.ones(len(order), np.int64)
    new[1:] = (pri[order][1:] != pri[order][:-1]) | (key[order][1:] != key[order][:-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(new)
    return found


def walk(
    queue: Ints, rec: Ints, act: Ints, rank: Ints, group: Ints, groups: int
) -> list[tuple[int, int]]:
    """(event after which it was ready, take that passed it over); see `order_walk`."""
    if len(queue) >= WORTH_COMPILING:
        try:
            from tandemq.pipeline.judge.order_compiled import order_walk as compiled

            found = compiled(queue, rec, act, rank, group, np.full(groups, -1, np.int64))
            return [(int(one), int(other)) for one, other in found.tolist()]
        except (ImportError, RuntimeError):
            pass
    lists = (queue.tolist(), rec.tolist(), act.tolist(), rank.tolist(), group.tolist())
    return order_walk(*lists, [-1] * groups)


def order_walk(
    queue: list[int], rec: list[int], act: list[int], rank: list[int], group: list[int],
    ready: list[int],
) -> list[tuple[int, int]]:  # fmt: skip
    """Events by queue, in their order. ready: -1 for each task; the event that made it so later."""
    found: list[tuple[int, int]] = []
    heap: list[tuple[int, int]] = []
    at, count = 0, len(queue)
    current = None
    while at < count:
        if queue[at] != current:
            current, heap = queue[at], []
        if act[at] == ENTERS:
            ready[group[at]] = at
            heapq.heappush(heap, (rank[at], at))
            at += 1
            continue
        if act[at] == LEAVES:
            ready[group[at]] = -1
            at += 1
            continue
        begin, most = at, at
        while at < count and act[at] == IS_TAKEN and rec[at] == rec[begin] and queue[at] == current:
            ready[group[at]] = -1
            if rank[at] > rank[most]:
                most = at
            at += 1
        while heap and (ready[group[heap[0][1]]] != heap[0][1] or heap[0][0] < rank[most]):
            event = heapq.heappop(heap)[1]
            if ready[group[event]] == event:
                found.append((event, most))
    return found
