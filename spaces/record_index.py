"""Records by status, priority and tube, with counters of what there is and of what happened.

Ready keys sit in lazily pruned heaps, one for all and one for each tube: a key is good while its
row is ready and still has this priority (and tube), so that an update may change both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedList

from tandemq.model.record import SET
from tandemq_server.spaces.index import Index

if TYPE_CHECKING:
    from tandemq_server.spaces.space import Row, Space

#: Status in a row to the letter of statistics; x: there is no such record.
LETTERS = {"r": "R", "t": "T", "~": "W", "!": "B", "z": "Z", "d": "D", "x": "X"}
#: Keys more than the live ones before a heap is pruned.
_SLACK = 64

Counters = tuple[dict[str, int], dict[str, int]]


class _Heap:
    """Keys of ready rows in order; `count` of them are live."""

    __slots__ = ("count", "keys")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.count = 0


class RecordIndex(Index):
    """Ready records in order of (field `pri`, id), as a whole and in each tube (field `tube`).

    counts: records by letter; transitions: "R-T" and the like to how often it happened here since
    `begin_counting`. by_tube: the same for tubes of `tracked`, where S is "in another tube".
    moves: the transitions as they are counted, by both statuses of the rows.
    flat: only a row's status matters, and counters go up: the way of nearly every change.
    """

    __slots__ = (
        "buried",
        "by_tube",
        "flat",
        "heaps",
        "moves",
        "others",
        "pri",
        "ready",
        "restoring",
        "rows",
        "space",
        "taken",
        "tracked",
        "tube",
    )

    def __init__(
        self, pri: int | None = None, tube: int | None = None, tracked: tuple[str, ...] = ()
    ) -> None:
        """`pri`, `tube`: fields of the row, None where records have none."""
        self.pri = pri
        self.tube = tube
        self.tracked = tracked
        self.rows: dict[Any, Row] = {}
        self.undoing(False)
        self.cleared()

    def attach(self, space: Space) -> None:
        self.space = space
        self.rows = space.rows

    def undoing(self, begins: bool) -> None:
        self.restoring = begins
        self.flat = self.pri is None and self.tube is None and not self.tracked and not begins

    def cleared(self) -> None:
        self.ready = _Heap()
        self.heaps: dict[Any, _Heap] = {}
        self.buried: SortedList = SortedList()
        self.taken: dict[Any, None] = {}
        self.others: dict[str, dict[Any, None]] = {"t": self.taken, "~": {}, "z": {}, "d": {}}
        self.moves: defaultdict[str, int] = defaultdict(int)
        self.by_tube: dict[str, Counters] = {
            name: (dict.fromkeys("RTWBZD", 0), {}) for name in self.tracked
        }

    def begin_counting(self) -> None:
        """Transitions from here on: those of a recovery are not what happened since the start."""
        self.moves.clear()
        for _, transitions in self.by_tube.values():
            transitions.clear()

    # -- changes ---------------------------------------------------------------------------------

    def added(self, row: Row) -> None:
        status = row[1]
        if self.flat and status == "r":
            ready = self.ready
            heappush(ready.keys, row[0])
            ready.count += 1
            self.moves["xr"] += 1
            return
        self._enter(row)
        if self.restoring:
            self._count("x", status, None, row)
            return
        self.moves["x" + status] += 1
        if self.by_tube:
            tracked = self.by_tube.get(self.tube_of(row))
            if tracked is not None:
                _move(*tracked, "X", LETTERS[status], 1)

    def removed(self, row: Row) -> None:
        if self.flat and row[1] == "t":
            del self.taken[row[0]]
            self.moves["tx"] += 1
            return
        self._leave(row)
        if self.by_tube or self.restoring:
            self._count(row[1], "x", row, None)
        else:
            self.moves[row[1] + "x"] += 1

    def changed(self, old: Row, new: Row) -> None:
        before, after = old[1], new[1]
        if self.flat and before == "r" and after == "t":
            key, ready = old[0], self.ready
            ready.count -= 1
            keys = ready.keys
            if keys and keys[0] == key:
                heappop(keys)
            elif len(keys) > 2 * ready.count + _SLACK:
                self._prune(ready, None)
            self.taken[key] = None
            self.moves["rt"] += 1
            return
        if (
            before != after
            or (self.pri is not None and old[self.pri] != new[self.pri])
            or (self.tube is not None and old[self.tube] != new[self.tube])
        ):
            self._leave(old)
            self._enter(new)
        if self.by_tube or self.restoring:
            self._count(before, after, old, new)
        else:
            self.moves[before + after] += 1

    def tube_of(self, row: Row) -> Any:
        return None if self.tube is None else row[self.tube]

    def _key(self, row: Row) -> Any:
        return row[0] if self.pri is None else (row[self.pri], row[0])

    def _enter(self, row: Row) -> None:
        status = row[1]
        if status == "t":
            self.taken[row[0]] = None
        elif status == "r":
            key = row[0] if self.pri is None else (row[self.pri], row[0])
            ready = self.ready
            heappush(ready.keys, key)
            ready.count += 1
            if self.tube is not None:
                heap = self.heaps.get(row[self.tube])
                if heap is None:
                    heap = self.heaps[row[self.tube]] = _Heap()
                heappush(heap.keys, key)
                heap.count += 1
        elif status == "!":
            self.buried.add(self._key(row))
        else:
            self.others[status][row[0]] = None

    def _leave(self, row: Row) -> None:
        status = row[1]
        if status == "t":
            del self.taken[row[0]]
        elif status == "r":
            key = row[0] if self.pri is None else (row[self.pri], row[0])
            self._shrink(self.ready, key, None)
            if self.tube is not None:
                name = row[self.tube]
                heap = self.heaps[name]
                self._shrink(heap, key, name)
                if not heap.count:
                    del self.heaps[name]
        elif status == "!":
            self.buried.remove(self._key(row))
        else:
            del self.others[status][row[0]]

    def _shrink(self, heap: _Heap, key: Any, tube: Any) -> None:
        heap.count -= 1
        keys = heap.keys
        if keys and keys[0] == key:
            heappop(keys)
        elif len(keys) > 2 * heap.count + _SLACK:
            self._prune(heap, tube)

    def _prune(self, heap: _Heap, tube: Any) -> None:
        """Keep the keys of rows that are ready now; whoever is on its way in adds its own."""
        heap.keys = list({key for key in heap.keys if self._good(key, tube)})
        heapify(heap.keys)

    def _good(self, key: Any, tube: Any) -> Row | None:
        row = self.rows.get(key if self.pri is None else key[1])
        if row is None or row[1] != "r":
            return None
        if self.pri is not None and row[self.pri] != key[0]:
            return None
        return row if tube is None or self.tube_of(row) == tube else None

    # -- counters --------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        others = self.others
        return {
            "R": self.ready.count,
            "T": len(others["t"]),
            "W": len(others["~"]),
            "B": len(self.buried),
            "Z": len(others["z"]),
            "D": len(others["d"]),
        }

    @property
    def transitions(self) -> dict[str, int]:
        """ "R-T" and the like: how often."""
        return {f"{LETTERS[move[0]]}-{LETTERS[move[1]]}": n for move, n in self.moves.items()}

    def _count(self, before: str, after: str, old: Row | None, new: Row | None) -> None:
        moves = self.moves
        if self.restoring:
            # The undoing of "before becomes after" is told as "after becomes before".
            before, after, old, new = after, before, new, old
            step = -1
        else:
            step = 1
        move = before + after
        number = moves.get(move, 0) + step
        if number > 0:
            moves[move] = number
        else:
            moves.pop(move, None)
        if self.by_tube:
            self._count_tubes(LETTERS[before], LETTERS[after], old, new, step)

    def _count_tubes(
        self, before: str, after: str, old: Row | None, new: Row | None, step: int
    ) -> None:
        was: Any = None if old is None else self.tube_of(old)
        is_now: Any = None if new is None else self.tube_of(new)
        if was == is_now or old is None or new is None:
            tracked = self.by_tube.get(is_now if old is None else was)
            if tracked is not None:
                _move(*tracked, before, after, step)
            return
        left, entered = self.by_tube.get(was), self.by_tube.get(is_now)
        if left is not None:
            _move(*left, before, "S", step)
        if entered is not None:
            _move(*entered, "S", after, step)

    # -- questions -------------------------------------------------------------------------------

    def first_ready(self, tube: Any = None) -> Row | None:
        """The ready record a take gets, of one tube or of any."""
        heap = self.ready if tube is None else self.heaps.get(tube)
        if heap is None:
            return None
        keys, rows, pri = heap.keys, self.rows, self.pri
        while keys:
            # As `_good` has it, without the call.
            key = keys[0]
            row = rows.get(key if pri is None else key[1])
            if (
                row is not None
                and row[1] == "r"
                and (pri is None or row[pri] == key[0])
                and (tube is None or row[self.tube] == tube)  # type: ignore[index]
            ):
                return row
            heappop(keys)
        return None

    def take_first(self) -> Row | None:
        """The first ready record, taken in one step; only where the index is `flat`.

        None where there is no such record, or not only its status changes: `row[2]` is its moment.
        """
        ready, rows = self.ready, self.rows
        keys = ready.keys
        while keys:
            key = keys[0]
            row = rows.get(key)
            if row is None or row[1] != "r":
                heappop(keys)
                continue
            if row[2]:
                return None
            # As `update` of the space has it; no other index looks at the status.
            rows[key] = new = (key, "t", *row[2:])
            heappop(keys)
            ready.count -= 1
            self.taken[key] = None
            self.moves["rt"] += 1
            space = self.space
            store = space.store
            store.undo.append((space, key, row))  # type: ignore[union-attr]
            if not space.temporary:
                store.ops.append((SET, space.id, key, 1, "t"))  # type: ignore[union-attr]
            return new
        return None

    def first_buried(self) -> Row | None:
        if not self.buried:
            return None
        key = self.buried[0]
        return self.rows[key if self.pri is None else key[1]]

    def by_status(self, status: str) -> Iterator[Row]:
        if status in self.others:
            found = [self.rows[key] for key in self.others[status]]
        else:
            found = [row for row in self.rows.values() if row[1] == status]
        return iter(sorted(found, key=self._key))

    def check(self) -> None:
        counts = dict.fromkeys("RTWBZD", 0)
        tubes: dict[Any, int] = {}
        for row in self.rows.values():
            counts[LETTERS[row[1]]] += 1
            if row[1] == "r":
                assert self._key(row) in self.ready.keys, f"ready key missing: {row}"
                if self.tube is not None:
                    assert self._key(row) in self.heaps[row[self.tube]].keys, row
                    tubes[row[self.tube]] = tubes.get(row[self.tube], 0) + 1
            elif row[1] == "!":
                assert self._key(row) in self.buried
            else:
                assert row[0] in self.others[row[1]]
        assert counts == self.counts, (counts, self.counts)
        assert self.ready.count == counts["R"]
        assert {name: heap.count for name, heap in self.heaps.items()} == tubes
        assert len(self.buried) == counts["B"]
        for name, (found, _) in self.by_tube.items():
            wanted = dict.fromkeys("RTWBZD", 0)
            for row in self.rows.values():
                if self.tube_of(row) == name:
                    wanted[LETTERS[row[1]]] += 1
            assert found == wanted, (name, found, wanted)


_NAMES = {(a, b): f"{a}-{b}" for a in "XSRTWBZD" for b in "XSRTWBZD"}


def _move(
    counts: dict[str, int], transitions: dict[str, int], before: str, after: str, step: int
) -> None:
    if before in counts:
        counts[before] -= step
    if after in counts:
        counts[after] += step
    name = _NAMES[before, after]
    number = transitions.get(name, 0) + step
    if number > 0:
        transitions[name] = number
    else:
        transitions.pop(name, None)
