"""A space: rows by primary key, their indexes, and the trail a transaction leaves.

Every change lands in memory at once, in the store's list of ops (what will be logged) and in its
undo list (what a failed call takes back). Who may change what is decided above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tandemq.model.record import (
    DELETE,
    DELETE_MANY,
    INSERT,
    INSERT_MANY,
    SET,
    SET_MANY,
    TRUNCATE,
    Op,
)

if TYPE_CHECKING:
    from tandemq_server.spaces.index import Index
    from tandemq_server.spaces.store import Store

Row = tuple[Any, ...]


class _Many:
    """Stands for the key in an undo list: what is taken back is more than one row."""


#: The whole space was emptied; the old row is (next id, all rows).
TRUNCATED = _Many()
#: Rows were added; the old row is the list of their keys.
ADDED = _Many()
#: Rows were replaced or removed; the old row is the list of what they were.
CHANGED = _Many()


class IndexShape:
    """How connectors see an index: name, kind, and (field, type) parts, fields from 0."""

    __slots__ = ("name", "parts", "type", "unique")

    def __init__(
        self, name: str, parts: Sequence[tuple[int, str]], unique: bool = True, kind: str = "tree"
    ) -> None:
        self.name = name
        self.parts = tuple(parts)
        self.unique = unique
        self.type = kind


class Space:
    """A table of tuples.

    id: number, unique for ever in one cluster; name: what SELECT finds it by.
    format: (field name, type) pairs; raw: the field that holds raw MessagePack, if any.
    key: number of the primary key's field, or a function from row to key for composite ones.
    temporary: neither logged nor shipped. alone: no index looks beyond this space.
    """

    __slots__ = (
        "alone",
        "driver",
        "format",
        "id",
        "indexes",
        "key_of",
        "name",
        "next_id",
        "opts",
        "raw",
        "rows",
        "shapes",
        "store",
        "temporary",
    )

    def __init__(
        self,
        space_id: int,
        name: str,
        fields: Sequence[tuple[str, str]],
        *,
        indexes: Iterable[Index] = (),
        shapes: Sequence[IndexShape] = (),
        temporary: bool = False,
        raw: int | None = None,
        key_of: Callable[[Row], Any] | None = None,
    ) -> None:
        self.id = space_id
        self.name = name
        self.format = tuple(fields)
        self.indexes = tuple(indexes)
        self.alone = all(index.alone for index in self.indexes)
        self.shapes = tuple(shapes)
        self.temporary = temporary
        self.raw = raw
        self.key_of = key_of
        self.rows: dict[Any, Row] = {}
        #: One above the largest id this space has ever held (integer primary keys only).
        self.next_id = 0
        self.store: Store | None = None
        self.driver = ""
        self.opts: dict[str, Any] = {}

    def attach(self, store: Store) -> None:
        self.store = store
        for index in self.indexes:
            index.attach(self)

    # -- changes made by the engine and the drivers, inside a transaction ------------------------

    def insert(self, row: Row) -> None:
        """Add a row whose key must be free."""
        if self.key_of is None:
            key = row[0]
            if type(key) is int and key >= self.next_id:
                self.next_id = key + 1
        else:
            key = self.key_of(row)
        rows = self.rows
        assert key not in rows, f"space {self.name}: key {key!r} is taken"
        rows[key] = row
        for index in self.indexes:
            index.added(row)
        store = self.store
        store.undo.append((self, key, None))  # type: ignore[union-attr]
        if not self.temporary:
            store.ops.append((INSERT, self.id, row))  # type: ignore[union-attr]

    def update(self, key: Any, old: Row, new: Row, op: tuple[Any, ...]) -> None:
        """Replace `old` by `new`; `op` is the SET that says the same (see `set_op`)."""
        self.rows[key] = new
        for index in self.indexes:
            index.changed(old, new)
        store = self.store
        store.undo.append((self, key, old))  # type: ignore[union-attr]
        if not self.temporary:
            store.ops.append(op)  # type: ignore[union-attr]

    def set(self, key: Any, *pairs: Any) -> Row:
        """Set fields of a row: `set(key, field, value, field, value, ...)`. Returns the new row."""
        old = self.rows[key]
        fields = list(old)
        for at in range(0, len(pairs), 2):
            fields[pairs[at]] = pairs[at + 1]
        new = tuple(fields)
        self.update(key, old, new, (SET, self.id, key, *pairs))
        return new

    def delete(self, key: Any) -> Row:
        """Remove and return a row that must exist."""
        old = self.rows.pop(key)
        for index in self.indexes:
            index.removed(old)
        store = self.store
        store.undo.append((self, key, old))  # type: ignore[union-attr]
        if not self.temporary:
            store.ops.append((DELETE, self.id, key))  # type: ignore[union-attr]
        return old

    # The same for many rows at once, ids as primary keys: one op, one pass over each index.

    def insert_many(self, rows: list[Row]) -> None:
        """Add rows with new, ascending ids."""
        store = self.store
        assert store is not None
        keys = [row[0] for row in rows]
        self.rows.update(zip(keys, rows, strict=True))
        self.next_id = keys[-1] + 1
        for index in self.indexes:
            index.added_many(rows)
        store.undo.append((self, ADDED, keys))
        if not self.temporary:
            store.ops.append((INSERT_MANY, self.id, rows))

    def insert_keyed(self, keys: list[Any], rows: list[Row]) -> None:
        """Add rows by keys that are no ids and must be free."""
        if not rows:
            return
        store = self.store
        assert store is not None
        assert self.rows.keys().isdisjoint(keys), f"space {self.name}: a key is taken"
        self.rows.update(zip(keys, rows, strict=True))
        for index in self.indexes:
            index.added_many(rows)
        store.undo.append((self, ADDED, keys))
        if not self.temporary:
            store.ops.append((INSERT_MANY, self.id, rows))

    def update_many(self, old: list[Row], new: list[Row], told: Index, *pairs: Any) -> None:
        """Replace rows; `pairs` (field, value, ...) says what became of every one of them.

        `told` is the index that already knows.
        """
        store = self.store
        assert store is not None
        keys = [row[0] for row in new]
        self.rows.update(zip(keys, new, strict=True))
        for index in self.indexes:
            if index is not told:
                index.changed_many(old, new)
        store.undo.append((self, CHANGED, old))
        if not self.temporary:
            store.ops.append((SET_MANY, self.id, keys, *pairs))

    def delete_many(self, keys: list[int]) -> list[Row]:
        """Remove and return rows that must exist."""
        store = self.store
        assert store is not None
        pop = self.rows.pop
        gone = [pop(key) for key in keys]
        for index in self.indexes:
            index.removed_many(gone)
        store.undo.append((self, CHANGED, gone))
        if not self.temporary:
            store.ops.append((DELETE_MANY, self.id, keys))
        return gone

    def truncate(self) -> None:
        """Remove every row and start ids at 0 again."""
        store = self.store
        assert store is not None
        store.undo.append((self, TRUNCATED, (self.next_id, list(self.rows.values()))))
        self.clear()
        if not self.temporary:
            store.ops.append((TRUNCATE, self.id))

    # -- changes that arrive from a log, a snapshot or an undo list ------------------------------

    def put(self, row: Row) -> None:
        """Insert or replace, leaving no trail."""
        key_of, rows = self.key_of, self.rows
        if key_of is None:
            key = row[0]
            if type(key) is int and key >= self.next_id:
                self.next_id = key + 1
        else:
            key = key_of(row)
        if key not in rows:
            rows[key] = row
            for index in self.indexes:
                index.added(row)
        else:
            old, rows[key] = rows[key], row
            for index in self.indexes:
                index.changed(old, row)

    def put_all(self, rows: list[Row]) -> None:
        """`put` for each row; all at once where they have new, ascending ids."""
        first = rows[0][0]
        if len(rows) > 1 and self.key_of is None and type(first) is int and first >= self.next_id:
            new = {row[0]: row for row in rows}
            if [*new] == [*range(first, first + len(rows))]:
                self.rows.update(new)
                self.next_id = first + len(rows)
                for index in self.indexes:
                    index.added_many(rows)
                return
        for row in rows:
            self.put(row)

    def replay(self, ops: Sequence[Op]) -> Op | None:
        """INSERT, SET and DELETE ops of records, in order; gives the first that does not fit."""
        rows, indexes = self.rows, self.indexes
        fresh: list[Row] = []
        for op in ops:
            code, key = op[0], op[2]
            if code == INSERT:
                fresh.append((*key,))
                continue
            if fresh:
                self.put_all(fresh)
                fresh = []
            if type(key) is list:
                key = (*key,)
            if key not in rows:
                return op
            if code == SET:
                old = rows[key]
                fields = [*old]
                for at in range(3, len(op), 2):
                    fields[op[at]] = op[at + 1]
                rows[key] = new = (*fields,)
                for index in indexes:
                    index.changed(old, new)
            else:
                old = rows.pop(key)
                for index in indexes:
                    index.removed(old)
        if fresh:
            self.put_all(fresh)
        return None

    def discard(self, key: Any) -> bool:
        """Remove a row if it is there, leaving no trail; tells whether it was."""
        old = self.rows.pop(key, None)
        if old is None:
            return False
        for index in self.indexes:
            index.removed(old)
        return True

    def assign(self, key: Any, pairs: Sequence[Any], start: int = 0) -> bool:
        """Set fields of a row if it is there, leaving no trail; tells whether it was.

        pairs: from `start` on number and value of each field.
        """
        rows = self.rows
        if key not in rows:
            return False
        old = rows[key]
        fields = [*old]
        for at in range(start, len(pairs), 2):
            fields[pairs[at]] = pairs[at + 1]
        rows[key] = new = (*fields,)
        for index in self.indexes:
            index.changed(old, new)
        return True

    def restore(self, key: Any, old: Any) -> None:
        """Undo one change: the row was `old` (None: absent, its id unspent again)."""
        if key is TRUNCATED:
            self.clear()
            for row in old[1]:
                self.put(row)
            self.next_id = old[0]
        elif key is CHANGED:
            for row in reversed(old):
                self.put(row)
        elif key is ADDED:
            for one in reversed(old):
                self.restore(one, None)
        elif old is not None:
            self.put(old)
        elif self.discard(key) and self.key_of is None and self.next_id - 1 == key:
            self.next_id = key

    def clear(self) -> None:
        self.rows.clear()
        self.next_id = 0
        for index in self.indexes:
            index.cleared()

    def check(self) -> None:
        """Assert rows and indexes agree (O(n), for tests and verify mode)."""
        for key, row in self.rows.items():
            assert key == (row[0] if self.key_of is None else self.key_of(row))
        for index in self.indexes:
            index.check()
