"""Sub-queues: which of them may deliver next, whatever their number and however long they are.

Keys only, lazily pruned heaps; nothing here changes a row.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from tandemq_server.spaces.index import ID_BITS, ID_MASK, Index

if TYPE_CHECKING:
    from tandemq_server.spaces.space import Row, Space


class SubQueue:
    """One sub-queue: the heap of its ready keys (lazily pruned) and how many are taken."""

    __slots__ = ("heap", "ready", "taken")

    def __init__(self) -> None:
        self.heap: list[int] = []
        self.ready = 0
        self.taken = 0


class SubQueueIndex(Index):
    """Which sub-queue may deliver next: one head per sub-queue that holds no taken task.

    `heads` has (at least) the smallest ready key of every free sub-queue; entries that no longer
    are one are dropped when they surface. Every operation is O(log n), whatever the number of
    sub-queues and however many tasks wait behind a busy one. Name and priority of a row never
    change; but after a call that failed its id may come again with others, so a key is good while
    the row has them.
    """

    __slots__ = ("heads", "name", "pri", "rows", "subs")

    def __init__(self, name: int, pri: int | None = None) -> None:
        """`name`: the field with the sub-queue's name; `pri`: the priority field, if any."""
        self.name = name
        self.pri = pri
        self.rows: dict[Any, Row] = {}
        self.cleared()

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def cleared(self) -> None:
        self.heads: list[int] = []
        self.subs: dict[str, SubQueue] = {}

    def added(self, row: Row) -> None:
        status = row[1]
        if status == "r":
            pri = self.pri
            key = row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]
            sub = self.subs.get(row[self.name])
            if sub is None:
                sub = self.subs[row[self.name]] = SubQueue()
            heap = sub.heap
            heappush(heap, key)
            sub.ready += 1
            if not sub.taken and heap[0] == key:
                self._push_head(key)
        elif status == "t":
            sub = self.subs.get(row[self.name])
            if sub is None:
                sub = self.subs[row[self.name]] = SubQueue()
            sub.taken += 1

    def removed(self, row: Row) -> None:
        status = row[1]
        if status == "t":
            sub = self.subs[row[self.name]]
            sub.taken -= 1
            if not sub.taken:
                self._freed(row[self.name], sub)
        elif status == "r":
            sub = self.subs[row[self.name]]
            sub.ready -= 1
            if not sub.ready and not sub.taken:
                del self.subs[row[self.name]]
                return
            pri = self.pri
            key = row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]
            heap = sub.heap
            if heap and heap[0] == key:
                heappop(heap)
                if self.heads and self.heads[0] == key:
                    heappop(self.heads)
                if not sub.taken:
                    self._freed(row[self.name], sub)
            elif len(heap) > 2 * sub.ready + 64:
                self._compact(row[self.name], sub)

    def changed(self, old: Row, new: Row) -> None:
        before, after = old[1], new[1]
        if before == after:
            return
        if before == "r" and after == "t":
            # The sub-queue turns busy in one step, so no next head is offered in between.
            sub = self.subs[old[self.name]]
            sub.taken += 1
            sub.ready -= 1
            heap = sub.heap
            pri = self.pri
            key = old[0] if not pri or not old[pri] else old[pri] << ID_BITS | old[0]
            if heap and heap[0] == key:
                heappop(heap)
                if self.heads and self.heads[0] == key:
                    heappop(self.heads)
            elif len(heap) > 2 * sub.ready + 64:
                self._compact(old[self.name], sub)
        else:
            self.removed(old)
            self.added(new)

    def _freed(self, name: str, sub: SubQueue) -> None:
        """No taken task (any more): offer the next ready one, or forget the sub-queue."""
        if not sub.ready:
            del self.subs[name]
            return
        self._prune(name, sub)
        if sub.heap:
            self._push_head(sub.heap[0])

    def _push_head(self, key: int) -> None:
        heads = self.heads
        heappush(heads, key)
        if len(heads) > 4 * len(self.subs) + 64:
            self.heads = self._live_heads()
            heapify(self.heads)

    def _live_heads(self) -> list[int]:
        heads = []
        for name, sub in self.subs.items():
            if sub.ready and not sub.taken:
                self._prune(name, sub)
                if sub.heap:
                    heads.append(sub.heap[0])
        return heads

    def _good(self, key: int, name: str) -> bool:
        row, pri = self.rows.get(key & ID_MASK), self.pri
        return (
            row is not None
            and row[1] == "r"
            and row[self.name] == name
            and (pri is None or row[pri] == key >> ID_BITS)
        )

    def _prune(self, name: str, sub: SubQueue) -> None:
        """Drop keys that are good no more. (All of them, in the middle of a batch.)"""
        heap = sub.heap
        while heap and not self._good(heap[0], name):
            heappop(heap)

    def _compact(self, name: str, sub: SubQueue) -> None:
        sub.heap = list({key for key in sub.heap if self._good(key, name)})
        heapify(sub.heap)

    def first_ready(self) -> Row | None:
        """The ready row of a free sub-queue that a take would get, or None."""
        heads, rows, subs = self.heads, self.rows, self.subs
        while heads:
            key = heads[0]
            row = rows.get(key & ID_MASK)
            if row is not None and row[1] == "r":
                sub = subs[row[self.name]]
                if not sub.taken and sub.heap[0] == key:
                    return row
            heappop(heads)
        return None

    def first_ready_of(self, name: str) -> Row | None:
        """The next row of one sub-queue, busy or not, or None."""
        sub = self.subs.get(name)
        if sub is None or not sub.ready:
            return None
        self._prune(name, sub)
        return self.rows[sub.heap[0] & ID_MASK]

    def check(self) -> None:
        wanted: dict[str, SubQueue] = {}
        for task_id, row in self.rows.items():
            if row[1] in "rt":
                sub = wanted.setdefault(row[self.name], SubQueue())
                sub.taken += row[1] == "t"
                if row[1] == "r":
                    sub.ready += 1
                    sub.heap.append((row[self.pri] if self.pri else 0) << ID_BITS | task_id)
        assert set(self.subs) == set(wanted), f"sub-queues: {set(self.subs) ^ set(wanted)}"
        heads = set(self.heads)
        for name, sub in self.subs.items():
            want = wanted[name]
            assert (sub.ready, sub.taken) == (want.ready, want.taken), name
            assert set(want.heap) <= set(sub.heap), f"keys of {name} missing"
            if want.heap and not sub.taken:
                assert sub.heap[0] == min(want.heap), f"{name} would deliver a wrong task"
                assert sub.heap[0] in heads, f"{name} is free and offers no head"
