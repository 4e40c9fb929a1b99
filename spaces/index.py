"""Indexes: told of every change of their space, on masters and replicas alike.

The contract, deadlines and groups are here; tasks by status and sub-queues have their own files.
An index keeps only keys and finds rows through its space; nothing here changes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tandemq_server.spaces.space import Row, Space

#: A sort key is one int: priority above these bits, task id below.
ID_BITS = 64
ID_MASK = (1 << ID_BITS) - 1


class Index:
    """What a space calls after each change, when `space.rows` shows it already.

    alone: it looks at no other space and no other space's index looks at what it keeps, so that
    changes of several spaces may come in any order.

    Rows are the tuples before and after. The `_many` calls come after all rows have changed, so
    an index must not conclude from a row it was not told of yet.
    """

    __slots__ = ()

    alone: ClassVar[bool] = True

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

    def purge(self) -> None:
        """Rows were taken back, so their ids may come again: keep no trace of rows that are gone.

        Only after a call failed that had added rows; but who may put may let calls fail on purpose,
        so an index does better to look at the row of a key that surfaces: then it needs none.
        """

    def undoing(self, begins: bool) -> None:
        """A change is about to be taken back, or was: for indexes that count what happened."""

    def check(self) -> None:
        """Assert the index agrees with the rows (O(n), for tests and verify mode)."""


class DeadlineIndex(Index):
    """Rows with a next moment to look at them, kept in the store's one timer structure."""

    __slots__ = ("due", "field", "given_up", "rows", "space_id", "timers")

    def __init__(self, field: int, due: Callable[[Row], int | None]) -> None:
        """`field`: where the moment stands; `due(row)`: that moment in µs, None for never.

        `due` may look at `field` and at fields that never change, at nothing else.
        """
        self.field = field
        self.due = due

    def attach(self, space: Space) -> None:
        assert space.store is not None
        self.rows = space.rows
        self.timers = space.store.timers
        self.given_up = space.store.given_up
        self.space_id = space.id

    def added(self, row: Row) -> None:
        due = self.due(row)
        if due is not None:
            self.timers.add((due, self.space_id, row[0]))

    def removed(self, row: Row) -> None:
        due = self.due(row)
        if due is not None:
            entry = (due, self.space_id, row[0])
            # Not there only if the engine gave this deadline up.
            self.timers.discard(entry)
            if self.given_up:
                self.given_up.discard(entry)

    def changed(self, old: Row, new: Row) -> None:
        if old[self.field] != new[self.field]:
            self.removed(old)
            self.added(new)

    def cleared(self) -> None:
        others = [entry for entry in self.timers if entry[1] != self.space_id]
        self.timers.clear()
        self.timers.update(others)
        self.given_up -= {entry for entry in self.given_up if entry[1] == self.space_id}

    def check(self) -> None:
        space_id = self.space_id
        wanted = {
            (due, space_id, row[0])
            for row in self.rows.values()
            if (due := self.due(row)) is not None
        }
        found = [entry for entry in self.timers if entry[1] == space_id]
        assert len(found) == len(set(found)), "a deadline stands twice"
        mine = {entry for entry in self.given_up if entry[1] == space_id}
        assert set(found) | mine == wanted, set(found) ^ wanted


class GroupIndex(Index):
    """Primary keys grouped by one field: whose taken tasks are these."""

    __slots__ = ("field", "groups", "key", "rows")

    def __init__(self, field: int, key: Callable[[Row], Any]) -> None:
        self.field = field
        self.key = key
        self.rows: dict[Any, Row] = {}
        self.groups: dict[Any, dict[Any, None]] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

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

    def check(self) -> None:
        wanted: dict[Any, set[Any]] = {}
        for key, row in self.rows.items():
            wanted.setdefault(row[self.field], set()).add(key)
        assert {name: set(group) for name, group in self.groups.items()} == wanted
