"""Tasks by status: which one comes first, which are buried, how many there are of each.

Ready keys stand in a line as they come, or in a heap if they come out of order; both are pruned
lazily. Nothing here changes a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from tandemq.model.record import SET
from tandemq_server.spaces.index import ID_BITS, ID_MASK, Index

if TYPE_CHECKING:
    from tandemq_server.spaces.space import Row, Space


class StatusIndex(Index):
    """Tasks by status (field 1), ready ones in order of (priority, id).

    line: ready keys, each above the one before, as nearly all come; late: a heap of the others. A
    key whose row is gone, no longer ready or, after a call that failed, another one of the same id
    is dropped when its turn comes, and all of them when they outnumber the live ones. Buried keys
    are kept sorted because `kick` takes them one by one; taken and delayed ones are only ever
    listed. The priority of a row never changes.
    """

    __slots__ = (
        "buried",
        "delayed",
        "late",
        "line",
        "pri",
        "ready_count",
        "rows",
        "space",
        "taken",
    )

    def __init__(self, pri: int | None = None) -> None:
        """`pri`: the field that holds the priority; None orders by id alone."""
        self.pri = pri
        self.rows: dict[Any, Row] = {}
        self.cleared()

    def attach(self, space: Space) -> None:
        self.space = space
        self.rows = space.rows

    def cleared(self) -> None:
        self.line: deque[int] = deque()
        self.late: list[int] = []
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
            pri, line = self.pri, self.line
            key = row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0]
            if not line or key > line[-1]:
                line.append(key)
            else:
                heappush(self.late, key)
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
            pri = self.pri
            self._leaves(row[0] if not pri or not row[pri] else row[pri] << ID_BITS | row[0])
        elif status == "!":
            self.buried.remove(self.key(row))
        else:
            del self.delayed[row[0]]

    def changed(self, old: Row, new: Row) -> None:
        was, now = old[1], new[1]
        if was == now:
            return
        if was == "r" and now == "t":
            # Every take: the key whose turn it is leaves without a call.
            line, pri = self.line, self.pri
            key = old[0] if not pri or not old[pri] else old[pri] << ID_BITS | old[0]
            if line and line[0] == key:
                line.popleft()
                self.ready_count -= 1
            else:
                self._leaves(key)
            self.taken[new[0]] = None
        else:
            self.removed(old)
            self.added(new)

    def added_many(self, rows: Sequence[Row]) -> None:
        keys = [row[0] for row in rows if row[1] == "r"]
        line = self.line
        if self.pri is not None or len(keys) < len(rows) or (line and keys[0] <= line[-1]):
            super().added_many(rows)
            return
        # New ids ascend.
        line.extend(keys)
        self.ready_count += len(keys)

    def take_ready(self, count: int) -> list[Row]:
        """Up to `count` ready rows in order, counted as taken from here on.

        The caller must turn every one into a taken row in the same breath (`Space.update_many`).
        """
        line, late, rows, pri = self.line, self.late, self.rows, self.pri
        found: dict[int, Row] = {}
        if not late:
            keys = [line.popleft() for _ in range(min(count, len(line)))]
            found = {
                row[0]: row
                for key in keys
                if (row := rows.get(key & ID_MASK)) is not None
                and row[1] == "r"
                and (pri is None or row[pri] == key >> ID_BITS)
            }
        while len(found) < count:
            if late and (not line or late[0] <= line[0]):
                key = heappop(late)
            elif line:
                key = line.popleft()
            else:
                break
            row = rows.get(key & ID_MASK)
            if row is not None and self._good(key, row):
                found[row[0]] = row
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

    def _leaves(self, key: int) -> None:
        """A key is ready no more."""
        self.ready_count -= 1
        line, late = self.line, self.late
        if line and line[0] == key:
            line.popleft()
        elif line and line[-1] == key:
            # Put by a call that failed, mostly: its id comes again.
            line.pop()
        elif late and late[0] == key:
            heappop(late)
        elif len(line) + len(late) > 2 * self.ready_count + 64:
            self._compact()

    def _compact(self) -> None:
        rows = self.rows
        keys = {*self.line, *self.late}
        live = [key for key in keys if (row := rows.get(key & ID_MASK)) and self._good(key, row)]
        self.line = deque(sorted(live))
        self.late = []

    def _good(self, key: int, row: Row) -> bool:
        pri = self.pri
        return row[1] == "r" and (pri is None or row[pri] == key >> ID_BITS)

    def first_ready(self) -> Row | None:
        """The ready row that a take would get, or None."""
        line, late, rows, pri = self.line, self.late, self.rows, self.pri
        while True:
            # As `_good` has it, without the call.
            if late and (not line or late[0] <= line[0]):
                row = rows.get(late[0] & ID_MASK)
                if row and row[1] == "r" and (pri is None or row[pri] == late[0] >> ID_BITS):
                    return row
                heappop(late)
            elif line:
                row = rows.get(line[0] & ID_MASK)
                if row and row[1] == "r" and (pri is None or row[pri] == line[0] >> ID_BITS):
                    return row
                line.popleft()
            else:
                return None

    def take_first(self) -> Row | None:
        """The ready row whose turn it is, taken in one step; None if there is none.

        As `update` of the space has it, where no other index looks at a row's status.
        """
        row = self.first_ready()
        if row is None:
            return None
        key, space = row[0], self.space
        self.rows[key] = new = (key, "t", *row[2:])
        line, late = self.line, self.late
        if late and (not line or late[0] <= line[0]):
            heappop(late)
        else:
            line.popleft()
        self.ready_count -= 1
        self.taken[key] = None
        store = space.store
        store.undo.append((space, key, row))  # type: ignore[union-attr]
        if not space.temporary:
            store.ops.append((SET, space.id, key, 1, "t"))  # type: ignore[union-attr]
        return new

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
            wanted = {key & ID_MASK for keys in (self.line, self.late) for key in keys}
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
        kept = {*self.line, *self.late}
        assert ready <= kept, f"ready keys missing: {ready - kept}"
        assert list(self.line) == sorted(set(self.line)), "the line is out of order"
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

    def changed(self, old: Row, new: Row) -> None:
        if old[1] == "r" and new[1] == "t":
            self.ready_count -= 1
            self.taken[new[0]] = None
        else:
            super().changed(old, new)

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
        assert not self.line, "keys nobody prunes"
        assert not self.late, "keys nobody prunes"
        self.late = [self.key(row) for row in self.rows.values() if row[1] == "r"]
        super().check()
        self.late = []
