"""Tasks of many tubes in one space: per tube by status, and in the order they are served.

A *lane* is one value of a field: one tube of a queue15 space. Nothing here changes a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sortedcontainers import SortedDict, SortedList

from tandemq_server.spaces.index import ID_BITS, ID_MASK, Index

if TYPE_CHECKING:
    from tandemq_server.spaces.space import Row, Space

STATUSES = "r~t!*"
#: The rank of a task that nobody moved forward or back.
MIDDLE = 1 << 32
_PRI_BITS = 8


class Lane:
    """Tasks of one tube. Ready ones as sort keys, rank above priority above id.

    front: ready, up to the middle rank; back: ready, sent behind the others. ages: ids of the ready
    tasks of the middle rank, kept only while something stands in `back`. others: the rest, oldest
    first, by status.
    """

    __slots__ = ("ages", "back", "front", "others")

    def __init__(self) -> None:
        self.front: SortedList = SortedList()
        self.back: SortedList = SortedList()
        self.ages: SortedList | None = None
        self.others: dict[str, SortedDict] = {status: SortedDict() for status in STATUSES[1:]}

    def __bool__(self) -> bool:
        return bool(self.front or self.back or any(self.others.values()))

    def counts(self) -> dict[str, int]:
        """Number of tasks by status."""
        found = {status: len(self.others[status]) for status in STATUSES[1:]}
        return {"r": len(self.front) + len(self.back), **found}


class LaneIndex(Index):
    """Lanes by name. A lane exists as long as it holds a task."""

    __slots__ = ("lane", "lanes", "pri", "rank", "rows", "turn")

    def __init__(self, lane: int, rank: int, pri: int, turn: int) -> None:
        """Numbers of the fields that hold the lane's name, the rank (smaller first), the priority
        (0 to 255, smaller first), and, for a rank behind the middle, the smallest id that did not
        exist when the task was sent there.
        """
        self.lane, self.rank, self.pri, self.turn = lane, rank, pri, turn
        self.rows: dict[Any, Row] = {}
        self.lanes: dict[str, Lane] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def key(self, row: Row) -> int:
        return (row[self.rank] << _PRI_BITS | row[self.pri]) << ID_BITS | row[0]  # type: ignore[no-any-return]

    def added(self, row: Row) -> None:
        lane = self.lanes.get(row[self.lane])
        if lane is None:
            lane = self.lanes[row[self.lane]] = Lane()
        if row[1] != "r":
            lane.others[row[1]][row[0]] = None
        elif row[self.rank] > MIDDLE:
            if lane.ages is None:
                keys = (key for key in lane.front if self.rank_of(key) == MIDDLE)
                lane.ages = SortedList(key & ID_MASK for key in keys)
            lane.back.add(self.key(row))
        else:
            lane.front.add(self.key(row))
            if lane.ages is not None and row[self.rank] == MIDDLE:
                lane.ages.add(row[0])

    def removed(self, row: Row) -> None:
        lane = self.lanes[row[self.lane]]
        if row[1] != "r":
            del lane.others[row[1]][row[0]]
        elif row[self.rank] > MIDDLE:
            lane.back.remove(self.key(row))
            if not lane.back:
                lane.ages = None
        else:
            lane.front.remove(self.key(row))
            if lane.ages is not None and row[self.rank] == MIDDLE:
                lane.ages.remove(row[0])
        if not lane:
            del self.lanes[row[self.lane]]

    def changed(self, old: Row, new: Row) -> None:
        if old[1] != new[1] or old[self.rank] != new[self.rank]:
            self.removed(old)
            self.added(new)

    def cleared(self) -> None:
        self.lanes.clear()

    # -- questions -------------------------------------------------------------------------------

    @staticmethod
    def rank_of(key: int) -> int:
        return key >> (ID_BITS + _PRI_BITS)

    def first_ready(self, name: str) -> Row | None:
        """Whose turn it is: those moved forward; then whoever was sent back, as soon as all that
        stood there at that moment is gone; else by priority and age.
        """
        lane = self.lanes.get(name)
        if lane is None:
            return None
        front, back = lane.front, lane.back
        if back and (not front or self.rank_of(front[0]) == MIDDLE):
            row = self.rows[back[0] & ID_MASK]
            if not lane.ages or lane.ages[0] >= row[self.turn]:
                return row
        return self.rows[front[0] & ID_MASK] if front else None

    def edge_ranks(self, name: str) -> tuple[int, int]:
        """Smallest and largest rank among the ready tasks, the middle included."""
        lane = self.lanes.get(name)
        if lane is None:
            return MIDDLE, MIDDLE
        first = self.rank_of(lane.front[0]) if lane.front else MIDDLE
        return first, self.rank_of(lane.back[-1]) if lane.back else MIDDLE

    def buried(self, name: str, count: int) -> list[int]:
        """Ids of up to `count` buried tasks, oldest first."""
        lane = self.lanes.get(name)
        return [] if lane is None else list(lane.others["!"].islice(0, count))

    def counts(self, name: str) -> dict[str, int]:
        lane = self.lanes.get(name)
        return dict.fromkeys(STATUSES, 0) if lane is None else lane.counts()

    def ids(self, name: str) -> list[int]:
        """Ids of all tasks of a lane."""
        lane = self.lanes.get(name)
        if lane is None:
            return []
        ready = [key & ID_MASK for keys in (lane.front, lane.back) for key in keys]
        return ready + [task_id for group in lane.others.values() for task_id in group]

    def by_status(self, status: str) -> Iterator[Row]:
        """Tasks of one state in all lanes; ready ones of a lane by their sort keys."""
        rows = self.rows
        for name in list(self.lanes):
            lane = self.lanes.get(name)
            if lane is None:
                continue
            if status == "r":
                ids = [key & ID_MASK for keys in (lane.front, lane.back) for key in keys]
            else:
                ids = list(lane.others.get(status, ()))
            for task_id in ids:
                if (row := rows.get(task_id)) is not None and row[1] == status:
                    yield row

    def check(self) -> None:
        for name, lane in self.lanes.items():
            assert lane, f"lane {name} is empty"
            ready = sorted(
                self.key(row)
                for row in self.rows.values()
                if row[self.lane] == name and row[1] == "r"
            )
            assert [*lane.front, *lane.back] == ready
            assert (lane.ages is None) == (not lane.back)
            if lane.ages is not None:
                assert list(lane.ages) == sorted(
                    key & ID_MASK for key in ready if self.rank_of(key) == MIDDLE
                )
        found = sorted((name, task_id) for name in self.lanes for task_id in self.ids(name))
        assert found == sorted((row[self.lane], row[0]) for row in self.rows.values())


class NameIndex(Index):
    """Tasks by a name of their own that never changes: primary keys by the value of a field."""

    __slots__ = ("field", "keys", "rows")

    def __init__(self, field: int) -> None:
        self.field = field
        self.keys: dict[Any, int] = {}
        self.rows: dict[Any, Row] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def added(self, row: Row) -> None:
        self.keys[row[self.field]] = row[0]

    def removed(self, row: Row) -> None:
        del self.keys[row[self.field]]

    def changed(self, old: Row, new: Row) -> None:
        """The name never changes."""

    def cleared(self) -> None:
        self.keys.clear()

    def find(self, name: Any) -> Row | None:
        key = self.keys.get(name)
        return None if key is None else self.rows[key]

    def check(self) -> None:
        assert self.keys == {row[self.field]: row[0] for row in self.rows.values()}
