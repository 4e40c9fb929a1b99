"""`box.space.NAME:select`, `:get`, `:count`, `:len`: reading by a call what SELECT reads.

Some connectors read the schema that way. Rights are those of SELECT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq_server.engine import reading as spaces
from tandemq_server.engine.clients import NIL
from tandemq_server.node.core.calls import Handler, argument, reply
from tandemq_server.wire import schema
from tandemq_server.wire.arguments import plain
from tandemq_server.wire.replies import values_reply

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core
    from tandemq_server.spaces.space import Space

PREFIX = "box.space."
ITERATORS = {"EQ": 0, "REQ": 1, "ALL": 2, "LT": 3, "LE": 4, "GE": 5, "GT": 6}
#: Rows of one answer.
SELECT_MAX = 100_000
_METHODS = frozenset({"select", "get", "count", "len"})


def _parts(text: str) -> tuple[str, str] | None:
    """(space, method) of a call of ours, None for any other."""
    name, colon, method = text.removeprefix(PREFIX).rpartition(":")
    return (name, method) if text.startswith(PREFIX) and colon and method in _METHODS else None


def may_read(core: Core, connection: Connection, text: str) -> bool:
    """Whether the call only reads what this user may SELECT."""
    parts = _parts(text)
    if parts is None or connection.stranger:
        return False
    return parts[0] in schema.SYSTEM_IDS or core.allowed(connection.user, f"space:{parts[0]}")


def reader(core: Core, text: str) -> Handler | None:
    """The handler of a reading call of a space there is."""
    parts = _parts(text)
    if parts is None:
        return None
    name, method = parts
    if name in schema.SYSTEM_IDS:
        return _system(core, schema.SYSTEM_IDS[name], method)
    space = core.engine.store.by_name.get(name)
    return None if space is None else _own(core, space, method)


def _own(core: Core, space: Space, method: str) -> Handler:
    engine = core.engine

    def handle(_connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        if method == "len" or (method == "count" and not values):
            return reply(ticket, spaces.size(engine, space))
        key, iterator, offset, limit = asked(values, method)
        rows = spaces.select(engine, space, 0, key, iterator, offset, limit)
        if method == "count":
            return reply(ticket, len(rows))
        return _rows(ticket, rows, method)

    return handle


def _system(core: Core, space_id: int, method: str) -> Handler:
    def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        key, iterator, offset, limit = asked(plain(args), method)
        wanted = schema.SelectRequest(space_id, 0, iterator, limit, offset, key)
        rows = core.schema.rows(connection.user, wanted)
        if method in ("count", "len"):
            return reply(ticket, len(rows))
        return _rows(ticket, rows, method)

    return handle


def asked(values: list[Any], method: str) -> tuple[list[Any], int, int, int]:
    """(key, iterator, offset, limit) of `(key, {iterator, offset, limit})`. Raises QueueError."""
    key, opts = argument(values, 0), argument(values, 1)
    if opts is None or opts == []:
        opts = {}
    if type(opts) is not dict:
        raise failure(f"Wrong options of {method}: expected a map")
    key = key if type(key) is list else [] if key is None else [key]
    iterator = opts.get("iterator", "EQ" if key else "ALL")
    iterator = ITERATORS.get(str(iterator).upper(), iterator)
    offset, limit = opts.get("offset", 0), opts.get("limit", SELECT_MAX)
    if type(iterator) is not int or any(
        type(n) is not int or n < 0 for n in (iterator, offset, limit)
    ):
        raise failure(f"Wrong options of {method}: iterator, offset and limit")
    return key, iterator, offset, min(limit, SELECT_MAX)


def _rows(ticket: int, rows: list[Any], method: str) -> bytes | None:
    if method == "select":
        # CALL_16 takes the outer of two arrays off.
        return values_reply(ticket >> 1, rows if ticket & 1 and rows else [rows], False)
    return values_reply(ticket >> 1, [rows[0]], False) if rows else reply(ticket, NIL)
