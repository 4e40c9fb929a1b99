"""Reading spaces: what SELECT of a connector sees, rows with payloads spliced as they are.

A look-up by primary key costs one dictionary access; anything else sorts what it finds, which is
what a person looking around can wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import ER_KEY_PART_TYPE, ER_NO_SUCH_INDEX, QueueError
from tandemq.model.raw import Raw, raw_str
from tandemq.model.task import NEVER_US
from tandemq_server.engine.system_spaces import CONSUMERS_ID, SESSION_IDS_ID, SHARED_ID, TAKEN_ID
from tandemq_server.spaces.view import ViewSpace

if TYPE_CHECKING:
    from tandemq_server.engine.ports import EnginePort
    from tandemq_server.spaces.space import IndexShape, Row, Space

EQ, REQ, ALL, LT, LE, GE, GT = range(7)
#: Fields that hold the 16 bytes of a UUID and are shown as a str of those bytes.
_UUID_FIELDS = {TAKEN_ID: 3, SESSION_IDS_ID: 1, SHARED_ID: 0}


def select(
    engine: EnginePort,
    space: Space,
    index_id: int,
    key: list[Any],
    iterator: int,
    offset: int,
    limit: int,
) -> list[list[Any]]:
    """Rows as lists, payloads as `Raw`. Raises 35 and 18."""
    if index_id >= len(space.shapes):
        raise QueueError(
            ER_NO_SUCH_INDEX, f"No index #{index_id} is defined in space '{space.name}'"
        )
    shape = space.shapes[index_id]
    key = [_comparable(part) for part in key]
    _check_key(shape, key)
    rows = _rows(engine, space, shape, key, iterator)
    return [_visible(space, row) for row in rows[offset : offset + limit]]


def size(engine: EnginePort, space: Space) -> int:
    """How many rows a space has."""
    if space.id in (SESSION_IDS_ID, CONSUMERS_ID):
        return len(_source(engine, space))
    return len(space.rows)


def _rows(
    engine: EnginePort, space: Space, shape: IndexShape, key: list[Any], iterator: int
) -> list[Row]:
    simple = space.key_of is None and shape is space.shapes[0]
    if simple and len(key) == 1 and iterator in (EQ, REQ) and type(key[0]) is int:
        row = space.rows.get(key[0])
        return [] if row is None else [row]
    fields = [field for field, _ in shape.parts]

    view = space.view if isinstance(space, ViewSpace) else list

    def parts(row: Row) -> tuple[Any, ...]:
        row = tuple(view(row))
        return tuple(_comparable(row[field]) for field in fields)

    ordered = sorted(_source(engine, space), key=parts)
    wanted = tuple(key)
    width = len(wanted)
    if iterator in (EQ, REQ):
        ordered = [row for row in ordered if parts(row)[:width] == wanted]
    elif iterator == LT:
        ordered = [row for row in ordered if not width or parts(row)[:width] < wanted]
    elif iterator == LE:
        ordered = [row for row in ordered if not width or parts(row)[:width] <= wanted]
    elif iterator == GE:
        ordered = [row for row in ordered if parts(row)[:width] >= wanted]
    elif iterator == GT:
        ordered = [row for row in ordered if not width or parts(row)[:width] > wanted]
    elif iterator != ALL:
        raise QueueError(ER_KEY_PART_TYPE, f"Iterator type {iterator} is not supported")
    if iterator in (REQ, LT, LE):
        ordered.reverse()
    return ordered


def _source(engine: EnginePort, space: Space) -> list[Row]:
    """The rows of a space; those of memory-only ones are made up on the spot."""
    if space.id == SESSION_IDS_ID:
        return [
            (client.id, session)
            for session, members in engine.sessions.members.items()
            for client in members
        ]
    if space.id == CONSUMERS_ID:
        return [
            (w.client.id, w.id, tube.id, NEVER_US if w.deadline is None else w.deadline, w.id)
            for tube in engine.tubes.values()
            for w in tube.waiters.values()
        ]
    return list(space.rows.values())


def _comparable(value: Any) -> Any:
    """Strings and bytes compare as bytes; anything else as it is."""
    return value.encode("utf-8", "surrogateescape") if type(value) is str else value


def _check_key(shape: IndexShape, key: list[Any]) -> None:
    if len(key) > len(shape.parts):
        raise QueueError(
            ER_KEY_PART_TYPE,
            f"Invalid key part count (expected [0..{len(shape.parts)}], got {len(key)})",
        )
    for number, (part, (_, kind)) in enumerate(zip(key, shape.parts, strict=False)):
        wrong = (
            (kind == "unsigned" and (type(part) is not int or part < 0))
            or (kind == "string" and type(part) is not bytes)
            or (kind == "boolean" and type(part) is not bool)
        )
        if wrong:
            raise QueueError(
                ER_KEY_PART_TYPE,
                f"Supplied key type of part {number} does not match index part type: "
                f"expected {kind}",
            )


def _visible(space: Space, row: Row) -> list[Any]:
    if isinstance(space, ViewSpace):
        return space.view(row)
    fields = list(row)
    if space.raw is not None:
        fields[space.raw] = Raw(row[space.raw])
    uuid = _UUID_FIELDS.get(space.id)
    if uuid is not None:
        fields[uuid] = raw_str(row[uuid])
    return fields
