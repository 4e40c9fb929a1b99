"""Secondary indexes: told of every change of their space, on masters and replicas alike.

An index keeps only keys and finds rows through the space it is attached to, so it costs a few
bytes a row and promotion never rebuilds one. Nothing here changes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

if TYPE_CHECKING:
    from spaces.space import Row, Space

#: A sort key is one int: priority above these bits, task id below.
ID_BITS = 64
ID_MASK = (1 << ID_BITS) - 1


class Index:
    """What a space calls after each change. Rows are the tuples before and after."""

    __slots__ = ()

    def attach(self, space: Space) -> None:
        """Called once, when the space joins a store and before its first row."""

    def added(self, row: Row) -> None:
        raise NotImplementedError

    def removed(self, row: Row) -> None:
        raise NotImplementedError

    def changed(self, old: Row, new: Row) -> None:
        self.removed(old)
        self.added(new)

    def added_many(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.added(row)

    def removed_many(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.removed(row)

    def changed_many(self, old: Sequence[Row], new: Sequence[Row]) -> None:
        for before, after in zip(old, new, strict=True):
            self.changed(before, after)

    def cleared(self) -> None:
        """The space was truncated."""
        raise NotImplementedError

    def check(self) -> None:
        """Assert the index agrees with the rows (O(n), for tests and verify mode)."""


class StatusIndex(Index):
    """Tasks by status (field 1), ready ones in order of (priority, id).

    Ready keys sit in a heap that is pruned lazily: a key whose row is gone or no longer ready is
    dropped when it surfaces, and all of them when they outnumber the live ones. Buried keys are
    kept sorted because `kick` takes them one by one; taken and delayed ones are only ever listed.
    """

    __slots__ = ("buried", "delayed", "pri", "ready", "ready_count", "rows", "taken")

    def __init__(self, pri: int | None = None) -> None:
        """`pri`: the field that holds the priority; None orders by id alone."""
        self.pri = pri
        self.rows: dict[Any, Row] = {}
        self.cleared()

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def cleared(self) -> None:
        self.ready: list[int] = []
        self.ready_count = 0
        self.taken: dict[int, None] = {}
        self.delayed: dict[int, None] = {}
        self.buried: SortedList = SortedList()

    def key(self, row: Row) -> int:
        pri = self.pri
        return row[0] if pri is None else row[pri] << ID_BITS | row[0]  # type: ignore[no-any-return]

    def added(self, row: Row) -> None:
        status = row[1]
        if status == "r":
            pri = self.pri
            heappush(self.ready, row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0])
            self.ready_count += 1
        elif status == "t":
            self.taken[row[0]] = None
        elif status == "!":
            self.buried.add(self.key(row))
        else:
            self.delayed[row[0]] = None

    def removed(self, row: Row) -> None:
        status = row[1]
        if status == "t":
            del self.taken[row[0]]
        elif status == "r":
            self.ready_count -= 1
            ready = self.ready
            pri = self.pri
            if ready[0] == (row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]):
                heappop(ready)
            elif len(ready) > 2 * self.ready_count + 64:
                self._compact()
        elif status == "!":
            self.buried.remove(self.key(row))
        else:
            del self.delayed[row[0]]

    def changed(self, old: Row, new: Row) -> None:
        if old[1] != new[1]:
            self.removed(old)
            self.added(new)

    def added_many(self, rows: Sequence[Row]) -> None:
        if self.pri is not None:
            super().added_many(rows)
            return
        ready = self.ready
        for row in rows:
            if row[1] == "r":
                heappush(ready, row[0])
                self.ready_count += 1
            else:
                self.added(row)

    def take_ready(self, count: int) -> list[Row]:
        """Up to `count` ready rows in order, counted as taken from here on.

        The caller must turn every one into a taken row in the same breath (`Space.update_many`).
        """
        ready, rows = self.ready, self.rows
        found: dict[int, Row] = {}
        while ready and len(found) < count:
            task_id = heappop(ready) & ID_MASK
            row = rows.get(task_id)
            if row is not None and row[1] == "r":
                found[task_id] = row
        self.ready_count -= len(found)
        self.taken.update(dict.fromkeys(found))
        return list(found.values())

    def removed_many(self, rows: Sequence[Row]) -> None:
        taken = self.taken
        for row in rows:
            if row[1] == "t":
                del taken[row[0]]
            else:
                self.removed(row)

    def _compact(self) -> None:
        rows = self.rows
        live = {key for key in self.ready if (row := rows.get(key & ID_MASK)) and row[1] == "r"}
        self.ready = list(live)
        heapify(self.ready)

    def first_ready(self) -> Row | None:
        """The ready row that a take would get, or None."""
        ready = self.ready
        rows = self.rows
        while ready:
            row = rows.get(ready[0] & ID_MASK)
            if row is not None and row[1] == "r":
                return row
            heappop(ready)
        return None

    def first_buried(self) -> Row | None:
        return self.rows[self.buried[0] & ID_MASK] if self.buried else None

    def counts(self) -> dict[str, int]:
        return {
            "taken": len(self.taken),
            "buried": len(self.buried),
            "ready": self.ready_count,
            "delayed": len(self.delayed),
        }

    def by_status(self, status: str) -> Iterator[Row]:
        """Rows of one status in order of (priority, id): O(n log n), for listings."""
        rows = self.rows
        if status == "r":
            wanted = {key & ID_MASK for key in self.ready}
            found = [r for k in wanted if (r := rows.get(k)) is not None and r[1] == "r"]
        elif status == "!":
            found = [rows[key & ID_MASK] for key in self.buried]
        else:
            members = self.taken if status == "t" else self.delayed if status == "~" else ()
            found = [rows[key] for key in members]
        return iter(sorted(found, key=self.key))

    def check(self) -> None:
        by: dict[str, set[int]] = {"r": set(), "t": set(), "!": set(), "~": set()}
        for key, row in self.rows.items():
            by[row[1]].add(key)
        live = {k & ID_MASK for k in self.ready} & by["r"]
        assert live == by["r"], f"ready keys missing: {by['r'] - live}"
        assert self.ready_count == len(by["r"]), (self.ready_count, len(by["r"]))
        assert set(self.taken) == by["t"]
        assert set(self.delayed) == by["~"]
        assert {k & ID_MASK for k in self.buried} == by["!"]


class CountingStatusIndex(StatusIndex):
    """Tasks by status where another index knows which ready one comes first."""

    __slots__ = ()

    def added(self, row: Row) -> None:
        status = row[1]
        if status == "r":
            self.ready_count += 1
        elif status == "t":
            self.taken[row[0]] = None
        else:
            super().added(row)

    def removed(self, row: Row) -> None:
        status = row[1]
        if status == "r":
            self.ready_count -= 1
        elif status == "t":
            del self.taken[row[0]]
        else:
            super().removed(row)

    def by_status(self, status: str) -> Iterator[Row]:
        if status != "r":
            return super().by_status(status)
        found = [row for row in self.rows.values() if row[1] == "r"]
        return iter(sorted(found, key=self.key))

    def check(self) -> None:
        ready = [self.key(row) for row in self.rows.values() if row[1] == "r"]
        assert self.ready_count == len(ready), (self.ready_count, len(ready))
        self.ready = ready
        super().check()
        self.ready = []


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
    sub-queues and however many tasks wait behind a busy one.
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
            pri = self.pri
            key = row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]
            heap = sub.heap
            if heap[0] == key:
                heappop(heap)
                if self.heads and self.heads[0] == key:
                    heappop(self.heads)
                if not sub.taken:
                    self._freed(row[self.name], sub)
            elif len(heap) > 2 * sub.ready + 64:
                self._compact(sub)

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
            if heap[0] == key:
                heappop(heap)
                if self.heads and self.heads[0] == key:
                    heappop(self.heads)
            elif len(heap) > 2 * sub.ready + 64:
                self._compact(sub)
        else:
            self.removed(old)
            self.added(new)

    def _freed(self, name: str, sub: SubQueue) -> None:
        """No taken task (any more): offer the next ready one, or forget the sub-queue."""
        if not sub.ready:
            del self.subs[name]
            return
        heap = sub.heap
        rows = self.rows
        while (row := rows.get(heap[0] & ID_MASK)) is None or row[1] != "r":
            heappop(heap)
        self._push_head(heap[0])

    def _push_head(self, key: int) -> None:
        heads = self.heads
        heappush(heads, key)
        if len(heads) > 4 * len(self.subs) + 64:
            self.heads = self._live_heads()
            heapify(self.heads)

    def _live_heads(self) -> list[int]:
        heads = []
        for sub in self.subs.values():
            if sub.ready and not sub.taken:
                self._prune(sub)
                heads.append(sub.heap[0])
        return heads

    def _prune(self, sub: SubQueue) -> None:
        heap, rows = sub.heap, self.rows
        while (row := rows.get(heap[0] & ID_MASK)) is None or row[1] != "r":
            heappop(heap)

    def _compact(self, sub: SubQueue) -> None:
        rows = self.rows
        live = {key for key in sub.heap if (row := rows.get(key & ID_MASK)) and row[1] == "r"}
        sub.heap = list(live)
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
        self._prune(sub)
        return self.rows[sub.heap[0] & ID_MASK]

    def check(self) -> None:
        ready: dict[str, int] = {}
        taken: dict[str, int] = {}
        for row in self.rows.values():
            if row[1] in "rt":
                side = ready if row[1] == "r" else taken
                side[row[self.name]] = side.get(row[self.name], 0) + 1
        assert set(self.subs) == set(ready) | set(taken), "sub-queues differ from rows"
        for name, sub in self.subs.items():
            assert sub.ready == ready.get(name, 0), (name, sub.ready, ready.get(name, 0))
            assert sub.taken == taken.get(name, 0), (name, sub.taken, taken.get(name, 0))
        assert set(self._live_heads()) <= set(self.heads), "a free sub-queue offers no head"


class DeadlineIndex(Index):
    """Rows with a next moment to look at them, kept in the store's one timer structure."""

    __slots__ = ("due", "field", "space_id", "timers")

    def __init__(self, field: int, due: Callable[[Row], int | None]) -> None:
        """`field`: where the moment stands; `due(row)`: that moment in µs, None for never."""
        self.field = field
        self.due = due

    def attach(self, space: Space) -> None:
        assert space.store is not None
        self.timers = space.store.timers
        self.space_id = space.id

    def added(self, row: Row) -> None:
        due = self.due(row)
        if due is not None:
            self.timers.add((due, self.space_id, row[0]))

    def removed(self, row: Row) -> None:
        due = self.due(row)
        if due is not None:
            self.timers.remove((due, self.space_id, row[0]))

    def changed(self, old: Row, new: Row) -> None:
        if old[self.field] != new[self.field]:
            self.removed(old)
            self.added(new)

    def cleared(self) -> None:
        others = [entry for entry in self.timers if entry[1] != self.space_id]
        self.timers.clear()
        self.timers.update(others)


class GroupIndex(Index):
    """Primary keys grouped by one field: whose taken tasks are these."""

    __slots__ = ("field", "groups", "key")

    def __init__(self, field: int, key: Callable[[Row], Any]) -> None:
        self.field = field
        self.key = key
        self.groups: dict[Any, dict[Any, None]] = {}

    def added(self, row: Row) -> None:
        group = self.groups.get(row[self.field])
        if group is None:
            group = self.groups[row[self.field]] = {}
        group[self.key(row)] = None

    def removed(self, row: Row) -> None:
        group = self.groups[row[self.field]]
        del group[self.key(row)]
        if not group:
            del self.groups[row[self.field]]

    def changed(self, old: Row, new: Row) -> None:
        if old[self.field] != new[self.field]:
            self.removed(old)
            self.added(new)

    def cleared(self) -> None:
        self.groups.clear()
