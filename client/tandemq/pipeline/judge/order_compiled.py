"""`order.order_walk` for numba: the same walk over arrays."""

# Machine code: types are numba's, branches are what it is made of.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-overload"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

import heapq

import numpy as np
from numba import njit


@njit(cache=True)
def order_walk(queue, rec, act, rank, group, ready):
    found = np.empty((64, 2), np.int64)
    many = 0
    heap = [(np.int64(0), np.int64(0))]
    heap.clear()
    at, count = 0, len(queue)
    current = np.int64(0)
    fresh = True
    while at < count:
        if fresh or queue[at] != current:
            current, fresh = queue[at], False
            heap.clear()
        if act[at] == 0:
            ready[group[at]] = at
            heapq.heappush(heap, (rank[at], np.int64(at)))
            at += 1
            continue
        if act[at] == 1:
            ready[group[at]] = -1
            at += 1
            continue
        begin, most = at, at
        while at < count and act[at] == 2 and rec[at] == rec[begin] and queue[at] == current:
            ready[group[at]] = -1
            if rank[at] > rank[most]:
                most = at
            at += 1
        while len(heap) > 0 and (ready[group[heap[0][1]]] != heap[0][1] or heap[0][0] < rank[most]):
            event = heapq.heappop(heap)[1]
            if ready[group[event]] == event:
                if many == len(found):
                    wider = np.empty((2 * many, 2), np.int64)
                    wider[:many] = found
                    found = wider
                found[many, 0], found[many, 1] = event, most
                many += 1
    return found[:many]
