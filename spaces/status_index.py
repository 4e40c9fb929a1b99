"""Tasks by status: which one comes first, which are buried, how many there are of each.

Ready keys sit in a lazily pruned heap, so that a put and a take cost one heap step each. Nothing
here changes a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from spaces.index import ID_BITS, ID_MASK, Index

if TYPE_CHECKING:
    from spaces.space import Row, Space


class StatusIndex(Index):
    """Tasks by status (field 1), ready ones in order of (priority, id).

    Ready keys sit in a heap that is pruned lazily: a key whose row is gone or no longer ready is
    dropped when it surfaces, and all of them when they outnumber the live ones. Buried keys are
    kept sorted because `kick` takes them one by one; taken and delayed ones are only ever listed.
    The priority of a row never changes.
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
            heappush(
                self.ready, row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]
            )
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
            if ready and ready[0] == (
                row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]
            ):
                heappop(ready)
            elif len(ready) > 2 * self.ready_count + 64:
                self._compact()
        elif status == "!":
            self.buried.remove(self.key(row))
        else:
            del self.delayed[row[0]]

    def changed(self, old: Row, new: Row) -> None:
        was, now = old[1], new[1]
        if was == now:
            return
        if was == "r" and now == "t":
            # What a replica sees most.
            self.ready_count -= 1
            ready, pri = self.ready, self.pri
            if ready and ready[0] == (
                old[0] if not pri or not old[pri] else old[pri] << ID_BITS | old[0]
            ):
                heappop(ready)
            elif len(ready) > 2 * self.ready_count + 64:
                self._compact()
            self.taken[new[0]] = None
        else:
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

    def purge(self) -> None:
        self._compact()

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
        ready = {self.key(self.rows[task_id]) for task_id in by["r"]}
        assert ready <= set(self.ready), f"ready keys missing: {ready - set(self.ready)}"
        assert self.ready_count == len(by["r"]), (self.ready_count, len(by["r"]))
        assert set(self.taken) == by["t"], set(self.taken) ^ by["t"]
        assert set(self.delayed) == by["~"], set(self.delayed) ^ by["~"]
        assert list(self.buried) == sorted(self.key(self.rows[task_id]) for task_id in by["!"])


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

    def added_many(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.added(row)

    def take_ready(self, count: int) -> list[Row]:
        raise NotImplementedError("the order of ready rows is kept by another index")

    def first_ready(self) -> Row | None:
        raise NotImplementedError("the order of ready rows is kept by another index")

    def by_status(self, status: str) -> Iterator[Row]:
        if status != "r":
            return super().by_status(status)
        found = [row for row in self.rows.values() if row[1] == "r"]
        return iter(sorted(found, key=self.key))

    def check(self) -> None:
        assert not self.ready, "keys nobody prunes"
        self.ready = [self.key(row) for row in self.rows.values() if row[1] == "r"]
        super().check()
        self.ready = []
