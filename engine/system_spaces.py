"""The spaces every node has, with the names, fields and indexes connectors may know.

Ids are fixed: they stand in logs. `_queue_consumers` and `_queue_session_ids` live in memory only
and are made up when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spaces.index import GroupIndex, Index
from spaces.space import IndexShape, Row, Space

QUEUE_ID, CONSUMERS_ID, TAKEN_ID, SESSION_IDS_ID, SHARED_ID = 512, 513, 514, 515, 516
CONFIG_ID, GRANTS_ID = 517, 518

# Fields of the rows.
TUBE_NAME, TUBE_ID, TUBE_SPACE, TUBE_TYPE, TUBE_OPTS = range(5)
TAKEN_TUBE, TAKEN_TASK, TAKEN_CONN, TAKEN_SESSION, TAKEN_TIME = range(5)
SHARED_UUID, SHARED_EXPIRES, SHARED_ACTIVE = range(3)


class CatalogueIndex(Index):
    """Tells the engine which rows of a space come and go, on whichever road they do."""

    __slots__ = ("appears", "goes", "rows")

    def __init__(self, appears: Callable[[Row], None], goes: Callable[[Row], None]) -> None:
        self.appears = appears
        self.goes = goes
        self.rows: dict[Any, Row] = {}

    def attach(self, space: Space) -> None:
        self.rows = space.rows

    def added(self, row: Row) -> None:
        self.appears(row)

    def removed(self, row: Row) -> None:
        self.goes(row)

    def cleared(self) -> None:
        """System spaces are never truncated by a call; an empty one has nothing to tell."""


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


def taken_space() -> Space:
    return Space(
        TAKEN_ID,
        "_queue_taken_2",
        (
            ("tube_id", "unsigned"),
            ("task_id", "unsigned"),
            ("connection_id", "unsigned"),
            ("session_uuid", "string"),
            ("taken_time", "unsigned"),
        ),
        indexes=(GroupIndex(TAKEN_SESSION, taken_key),),
        shapes=(
            IndexShape("task", [(0, "unsigned"), (1, "unsigned")]),
            IndexShape("uuid", [(3, "string")], unique=False),
        ),
        temporary=True,
        key_of=taken_key,
    )


def shared_space(index: Index) -> Space:
    return Space(
        SHARED_ID,
        "_queue_shared_sessions",
        (("uuid", "string"), ("exp_time", "unsigned"), ("active", "boolean")),
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
