"""The spaces every node has, with the names, fields and indexes connectors may know.

Ids are fixed: they stand in logs. `_queue_consumers` and `_queue_session_ids` live in memory only
and are made up when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tandemq.model.record import DELETE, DELETE_MANY, INSERT, INSERT_MANY, Op
from tandemq_server.spaces.index import GroupIndex, Index
from tandemq_server.spaces.space import ADDED, CHANGED, IndexShape, Row, Space

QUEUE_ID, CONSUMERS_ID, TAKEN_ID, SESSION_IDS_ID, SHARED_ID = 512, 513, 514, 515, 516
CONFIG_ID, GRANTS_ID = 517, 518

# Fields of the rows.
TUBE_NAME, TUBE_ID, TUBE_SPACE, TUBE_TYPE, TUBE_OPTS = range(5)
TAKEN_TUBE, TAKEN_TASK, TAKEN_CONN, TAKEN_SESSION, TAKEN_TIME = range(5)
SHARED_UUID, SHARED_EXPIRES, SHARED_ACTIVE, SHARED_USER = range(4)


class CatalogueIndex(Index):
    """Tells the engine which rows of a space come and go, on whichever road they do."""

    __slots__ = ("altered", "appears", "emptied", "goes", "rows")

    alone = False

    def __init__(
        self,
        appears: Callable[[Row], None],
        goes: Callable[[Row], None],
        emptied: Callable[[], None] = lambda: None,
        changed: Callable[[Row], None] | None = None,
    ) -> None:
        """`emptied`: all rows went at once. Most spaces of this kind never see that. `changed`: a
        row became this one; unless given, the old one goes and the new one appears.
        """
        self.appears = appears
        self.goes = goes
        self.emptied = emptied
        self.altered = changed
        self.rows: dict[Any, Row] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def added(self, row: Row) -> None:
        self.appears(row)

    def removed(self, row: Row) -> None:
        self.goes(row)

    def changed(self, old: Row, new: Row) -> None:
        if self.altered is not None:
            self.altered(new)
        else:
            super().changed(old, new)

    def cleared(self) -> None:
        self.emptied()


def taken_key(row: Row) -> tuple[int, int]:
    return row[0], row[1]


def queue_space(index: Index) -> Space:
    return Space(
        QUEUE_ID,
        "_queue",
        (
            ("tube_name", "string"),
            ("tube_id", "unsigned"),
            ("space_name", "string"),
            ("tube_type", "string"),
            ("opts", "*"),
        ),
        indexes=(index,),
        shapes=(IndexShape("tube", [(0, "string")]), IndexShape("tube_id", [(1, "unsigned")])),
    )


class TakenSpace(Space):
    """Who holds what. Every take and ack passes here, so the two changes are written out flat."""

    __slots__ = ("by_session",)

    by_session: dict[bytes, dict[tuple[int, int], None]]

    def own(self, row: Row) -> None:
        """Insert an ownership row, replacing a leftover of the same task."""
        key = (row[0], row[1])
        rows = self.rows
        if key in rows:
            self.delete(key)
        rows[key] = row
        group = self.by_session.get(row[3])
        if group is None:
            group = self.by_session[row[3]] = {}
        group[key] = None
        store = self.store
        assert store is not None
        store.undo.append((self, key, None))
        if not self.temporary:
            store.ops.append((INSERT, TAKEN_ID, row))

    def own_many(self, rows: list[Row], session: bytes) -> None:
        """Insert ownership rows of tasks nobody owns, all of one session."""
        keys: list[tuple[int, int]] = [row[:2] for row in rows]
        store = self.store
        assert store is not None
        if any(map(self.rows.__contains__, keys)):
            for key in keys:
                self.disown(*key)
        self.rows.update(zip(keys, rows, strict=True))
        self.by_session.setdefault(session, {}).update(dict.fromkeys(keys))
        store.undo.append((self, ADDED, keys))
        if not self.temporary:
            store.ops.append((INSERT_MANY, TAKEN_ID, rows))

    def disown_many(self, keys: list[tuple[int, int]], session: bytes) -> None:
        """Remove the ownership rows of tasks that all belong to one session."""
        store = self.store
        assert store is not None
        pop = self.rows.pop
        gone = [pop(key) for key in keys]
        group = self.by_session[session]
        if len(group) == len(keys):
            del self.by_session[session]
        else:
            for key in keys:
                del group[key]
        store.undo.append((self, CHANGED, gone))
        if not self.temporary:
            store.ops.append((DELETE_MANY, TAKEN_ID, keys))

    def disown(self, tube_id: int, task_id: int) -> Row | None:
        """Remove and return an ownership row, if there is one."""
        key = (tube_id, task_id)
        row = self.rows.pop(key, None)
        if row is None:
            return None
        group = self.by_session[row[3]]
        del group[key]
        if not group:
            del self.by_session[row[3]]
        store = self.store
        assert store is not None
        store.undo.append((self, key, row))
        if not self.temporary:
            store.ops.append((DELETE, TAKEN_ID, key))
        return row

    def replay(self, ops: Sequence[Op]) -> Op | None:
        rows, groups = self.rows, self.by_session
        for op in ops:
            code, fields = op[0], op[2]
            key = (fields[0], fields[1])
            if code == DELETE:
                if key not in rows:
                    return op
                session = rows.pop(key)[3]
                group = groups[session]
                del group[key]
                if not group:
                    del groups[session]
            elif code == INSERT and key not in rows:
                rows[key] = row = (*fields,)
                if row[3] in groups:
                    groups[row[3]][key] = None
                else:
                    groups[row[3]] = {key: None}
            elif (unfit := super().replay((op,))) is not None:
                return unfit
        return None

    def clear(self) -> None:
        self.by_session.clear()
        super().clear()


def taken_space() -> TakenSpace:
    index = GroupIndex(TAKEN_SESSION, taken_key)
    space = TakenSpace(
        TAKEN_ID,
        "_queue_taken_2",
        (
            ("tube_id", "unsigned"),
            ("task_id", "unsigned"),
            ("connection_id", "unsigned"),
            ("session_uuid", "string"),
            ("taken_time", "unsigned"),
        ),
        indexes=(index,),
        shapes=(
            IndexShape("task", [(0, "unsigned"), (1, "unsigned")]),
            IndexShape("uuid", [(3, "string")], unique=False),
        ),
        temporary=True,
        key_of=taken_key,
    )
    space.by_session = index.groups
    return space


def shared_space(index: Index) -> Space:
    return Space(
        SHARED_ID,
        "_queue_shared_sessions",
        (
            ("uuid", "string"),
            ("exp_time", "unsigned"),
            ("active", "boolean"),
            ("user", "string"),
        ),
        indexes=(index,),
        shapes=(
            IndexShape("uuid", [(0, "string")]),
            IndexShape("active", [(2, "boolean"), (0, "string")]),
        ),
        temporary=True,
    )


def consumers_space() -> Space:
    return Space(
        CONSUMERS_ID,
        "_queue_consumers",
        (
            ("connection_id", "unsigned"),
            ("fiber_id", "unsigned"),
            ("tube_id", "unsigned"),
            ("event_time", "unsigned"),
            ("fiber_time", "unsigned"),
        ),
        shapes=(
            IndexShape("pk", [(0, "unsigned"), (1, "unsigned")]),
            IndexShape("consumer", [(2, "unsigned"), (3, "unsigned")], unique=False),
        ),
        temporary=True,
        key_of=taken_key,
    )


def session_ids_space() -> Space:
    return Space(
        SESSION_IDS_ID,
        "_queue_session_ids",
        (("connection_id", "unsigned"), ("session_uuid", "string")),
        shapes=(
            IndexShape("conn_id", [(0, "unsigned")]),
            IndexShape("uuid", [(1, "string")], unique=False),
        ),
        temporary=True,
    )


def config_space(index: Index) -> Space:
    """Settings made by calls: name, value."""
    return Space(
        CONFIG_ID,
        "_tandem_config",
        (("name", "string"), ("value", "*")),
        indexes=(index,),
        shapes=(IndexShape("name", [(0, "string")]),),
    )


def grants_space(index: Index) -> Space:
    """Rights made by calls: user, what may be called."""
    return Space(
        GRANTS_ID,
        "_tandem_grants",
        (("user", "string"), ("call", "string")),
        indexes=(index,),
        shapes=(IndexShape("grant", [(0, "string"), (1, "string")]),),
        key_of=taken_key,
    )
