"""What connectors read at connect: rows describing spaces and indexes, and the SELECT itself.

Which spaces there are and what they hold is the server's; this file only shapes and filters rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tandemq.model.errors import (
    ER_ILLEGAL_PARAMS,
    ER_KEY_PART_TYPE,
    ER_NO_SUCH_INDEX,
    ER_NO_SUCH_SPACE,
    QueueError,
)
from tandemq_server.wire.arguments import malformed
from tandemq_server.wire.constants import (
    KEY_INDEX_ID,
    KEY_ITERATOR,
    KEY_KEY,
    KEY_LIMIT,
    KEY_OFFSET,
    KEY_SPACE_ID,
    SPACE_INDEX,
    SPACE_SPACE,
    SPACE_VCOLLATION,
    SPACE_VINDEX,
    SPACE_VSPACE,
)
from tandemq_server.wire.packets import missing_field

EQ: Final = 0
REQ: Final = 1
ALL: Final = 2
LT: Final = 3
LE: Final = 4
GE: Final = 5
GT: Final = 6
_UINT_MAX: Final = 2**64 - 1
# Owner of everything: the user `admin`.
_OWNER: Final = 1


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """`parts`: (field number from 0, type name) of each part of the key."""

    id: int
    name: str
    type: str
    unique: bool
    parts: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class SpaceDescription:
    """`format`: (field name, type name) of each field."""

    id: int
    name: str
    format: Sequence[tuple[str, str]]
    indexes: Sequence[IndexDescription]
    engine: str = "memtx"
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class SelectRequest:
    space_id: int
    index_id: int
    iterator: int
    limit: int
    offset: int
    key: list[Any]


def parse_select(body: dict[int, Any]) -> SelectRequest:
    """A SELECT body; index, offset and iterator default to 0, an empty EQ key means all.

    Raises QueueError 69 (space, limit or key missing), 20 (wrong type), 1 (unknown iterator).
    """
    space_id = _uint(body, KEY_SPACE_ID, "space id")
    limit = _uint(body, KEY_LIMIT, "limit")
    index_id = _uint(body, KEY_INDEX_ID, "index id", 0)
    iterator = _uint(body, KEY_ITERATOR, "iterator", EQ)
    offset = _uint(body, KEY_OFFSET, "offset", 0)
    key = body.get(KEY_KEY)
    if key is None:
        raise missing_field("key")
    if not isinstance(key, list):
        raise malformed("packet body")
    if iterator > GT:
        raise QueueError(ER_ILLEGAL_PARAMS, "Illegal parameters, Invalid iterator type")
    return SelectRequest(space_id, index_id, iterator, limit, offset, key)


def _uint(body: dict[int, Any], key: int, name: str, default: int | None = None) -> int:
    value = body.get(key, default)
    if value is None:
        raise missing_field(name)
    if type(value) is not int or not 0 <= value <= _UINT_MAX:
        raise malformed("packet body")
    return value


def no_such_space(space_id: int) -> QueueError:
    return QueueError(ER_NO_SUCH_SPACE, f"Space '{space_id}' does not exist")


def no_such_index(index_id: int, space: str) -> QueueError:
    return QueueError(ER_NO_SUCH_INDEX, f"No index #{index_id} is defined in space '{space}'")


def vspace_rows(spaces: Iterable[SpaceDescription]) -> list[list[Any]]:
    """Rows of 281 and 280: [id, owner, name, engine, field_count, flags, format]."""
    rows: list[list[Any]] = []
    for space in spaces:
        flags = {"temporary": True} if space.temporary else {}
        fields = [{"name": name, "type": kind} for name, kind in space.format]
        rows.append([space.id, _OWNER, space.name, space.engine, 0, flags, fields])
    rows.sort(key=lambda row: row[0])
    return rows


def vindex_rows(spaces: Iterable[SpaceDescription]) -> list[list[Any]]:
    """Rows of 289 and 288: [space_id, index_id, name, type, {unique}, [[field, type], ...]]."""
    rows: list[list[Any]] = [
        [
            space.id,
            index.id,
            index.name,
            index.type,
            {"unique": index.unique},
            [list(part) for part in index.parts],
        ]
        for space in spaces
        for index in space.indexes
    ]
    rows.sort(key=lambda row: (row[0], row[1]))
    return rows


def vcollation_rows() -> list[list[Any]]:
    """Rows of 277: [id, name, owner, type, locale, opts]. Keys are compared as bytes here."""
    return [[0, "none", _OWNER, "BINARY", "", {}], [3, "binary", _OWNER, "BINARY", "", {}]]


def filter_rows(
    rows: Iterable[Sequence[Any]],
    key: Sequence[Any],
    iterator: int,
    limit: int,
    offset: int,
    key_fields: Sequence[int],
) -> list[Sequence[Any]]:
    """The rows a SELECT asks for, in index order: `key` may name only the first key fields.

    Raises QueueError 18 when a key part has another type than the rows' fields, 1 for a key with
    too many parts.
    """
    if len(key) > len(key_fields):
        raise QueueError(
            ER_ILLEGAL_PARAMS,
            f"Illegal parameters, key has {len(key)} parts, the index {len(key_fields)}",
        )
    ordered = sorted(rows, key=lambda row: [row[number] for number in key_fields])
    if iterator in (REQ, LT, LE):
        ordered.reverse()
    wanted = list(key)
    used = list(key_fields[: len(wanted)])
    if wanted:
        for number, part in enumerate(wanted):
            if ordered and not _comparable(part, ordered[0][used[number]]):
                raise _key_type(number, ordered[0][used[number]])
        ordered = [
            row for row in ordered if _matches([row[number] for number in used], wanted, iterator)
        ]
    return ordered[offset : offset + limit]


def _matches(fields: list[Any], wanted: list[Any], iterator: int) -> bool:
    """ALL with a key means GE, as on the field's server."""
    if iterator in (EQ, REQ):
        return fields == wanted
    if iterator == LT:
        return fields < wanted
    if iterator == LE:
        return fields <= wanted
    if iterator == GT:
        return fields > wanted
    return fields >= wanted


def _comparable(part: Any, field: Any) -> bool:
    if isinstance(field, str):
        return isinstance(part, str)
    if isinstance(field, bytes):
        return isinstance(part, bytes)
    return isinstance(part, (int, float)) and not isinstance(part, bool)


def _key_type(number: int, field: Any) -> QueueError:
    expected = "string" if isinstance(field, (str, bytes)) else "unsigned"
    return QueueError(
        ER_KEY_PART_TYPE,
        f"Supplied key type of part {number} does not match index part type: expected {expected}",
    )


def _view(space_id: int, name: str, engine: str, format_: str, parts: str) -> SpaceDescription:
    """`format_`: `name:type ...`; `parts`: `index_id:name:unique:field,field ...`."""
    fields = [(field.split(":")[0], field.split(":")[1]) for field in format_.split()]
    indexes = []
    for text in parts.split():
        index_id, index_name, unique, numbers = text.split(":")
        key = [(int(number), fields[int(number)][1]) for number in numbers.split(",")]
        indexes.append(IndexDescription(int(index_id), index_name, "tree", unique == "1", key))
    return SpaceDescription(space_id, name, fields, indexes, engine)


_SPACE_FORMAT: Final = (
    "id:unsigned owner:unsigned name:string engine:string field_count:unsigned flags:map "
    "format:array"
)
_INDEX_FORMAT: Final = "id:unsigned iid:unsigned name:string type:string opts:map parts:array"
_COLLATION_FORMAT: Final = (
    "id:unsigned name:string owner:unsigned type:string locale:string opts:map"
)
_SPACE_INDEXES: Final = "0:primary:1:0 1:owner:0:1 2:name:1:2"
_INDEX_INDEXES: Final = "0:primary:1:0,1 2:name:1:0,2"

# The spaces that describe spaces, as they describe themselves.
_SYSTEM_SPACES: Final[tuple[SpaceDescription, ...]] = (
    _view(
        SPACE_VCOLLATION, "_vcollation", "sysview", _COLLATION_FORMAT, "0:primary:1:0 1:name:1:1"
    ),
    _view(SPACE_SPACE, "_space", "memtx", _SPACE_FORMAT, _SPACE_INDEXES),
    _view(SPACE_VSPACE, "_vspace", "sysview", _SPACE_FORMAT, _SPACE_INDEXES),
    _view(SPACE_INDEX, "_index", "memtx", _INDEX_FORMAT, _INDEX_INDEXES),
    _view(SPACE_VINDEX, "_vindex", "sysview", _INDEX_FORMAT, _INDEX_INDEXES),
)

#: Their ids by name.
SYSTEM_IDS: Final = {space.name: space.id for space in _SYSTEM_SPACES}
SYSTEM_NAMES: Final = {space.id: space.name for space in _SYSTEM_SPACES}


# Space id -> its rows, given the descriptions of all other spaces.
SYSTEM_SPACES: Final[dict[int, Callable[[Iterable[SpaceDescription]], list[list[Any]]]]] = {
    SPACE_VCOLLATION: lambda spaces: vcollation_rows(),
    SPACE_SPACE: lambda spaces: vspace_rows((*_SYSTEM_SPACES, *spaces)),
    SPACE_VSPACE: lambda spaces: vspace_rows((*_SYSTEM_SPACES, *spaces)),
    SPACE_INDEX: lambda spaces: vindex_rows((*_SYSTEM_SPACES, *spaces)),
    SPACE_VINDEX: lambda spaces: vindex_rows((*_SYSTEM_SPACES, *spaces)),
}


def select_system(
    request: SelectRequest, spaces: Iterable[SpaceDescription]
) -> list[Sequence[Any]]:
    """SELECT on a space of `SYSTEM_SPACES`, `spaces` being all others.

    Raises QueueError 36 for another space, 35 for an unknown index, and those of `filter_rows`.
    """
    for system in _SYSTEM_SPACES:
        if system.id == request.space_id:
            break
    else:
        raise no_such_space(request.space_id)
    fields = [
        [number for number, _ in index.parts]
        for index in system.indexes
        if index.id == request.index_id
    ]
    if not fields:
        raise no_such_index(request.index_id, system.name)
    rows = SYSTEM_SPACES[request.space_id](spaces)
    return filter_rows(
        rows, request.key, request.iterator, request.limit, request.offset, fields[0]
    )
