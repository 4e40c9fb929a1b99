"""The call table: from a name on the wire to an engine operation, arguments decoded as it needs.

A handler takes (connection, ticket, raw arguments) and returns the encoded reply, or None when the
reply comes later. One dictionary look-up finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import ER_TUPLE_TOO_LARGE, QueueError, failure
from tandemq.model.raw import Raw
from tandemq_server.engine import admin, batches, grants
from tandemq_server.engine.arguments import split_token, wants_token
from tandemq_server.engine.clients import EMPTY, NIL, PENDING, Delivery, Values
from tandemq_server.engine.tube import EngineTube
from tandemq_server.wire.arguments import (
    FallThrough,
    check_nesting,
    first_id,
    plain,
    split_put,
    split_put_many,
    take_timeout,
)
from tandemq_server.wire.replies import (
    empty_reply,
    nil_reply,
    task_reply,
    tasks_reply,
    values_reply,
)

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.identity import ClientBounds

Handler = Callable[["Connection", int, bytes], bytes | None]

#: Calls of a tube that a node which is not RUNNING answers from its own copy.
READING = frozenset({"peek"})


def reply(ticket: int, outcome: Any) -> bytes | None:
    """Encode what an engine operation returned or delivered."""
    kind = type(outcome)
    if kind is tuple:
        return task_reply(ticket >> 1, outcome[0], outcome[1], outcome[-1])
    if outcome is PENDING:
        return None
    if outcome is EMPTY:
        return empty_reply(ticket >> 1)
    if outcome is NIL:
        return nil_reply(ticket >> 1, bool(ticket & 1))
    if kind is Values:
        return values_reply(ticket >> 1, list(outcome), bool(ticket & 1))
    if kind is Delivery:
        return values_reply(ticket >> 1, [visible(outcome)], bool(ticket & 1))
    if kind is list:
        first = type(outcome[0]) if outcome else None
        if first is tuple:
            return tasks_reply(ticket >> 1, outcome)
        if first is int:
            return values_reply(ticket >> 1, [outcome], bool(ticket & 1))
        visible_rows = [visible(row) if isinstance(row, tuple) else row for row in outcome]
        return values_reply(ticket >> 1, [visible_rows], bool(ticket & 1))
    return values_reply(ticket >> 1, [outcome], bool(ticket & 1))


def visible(row: tuple[Any, ...]) -> list[Any]:
    """A task as clients see it: id, status, payload, and its token if that was asked for."""
    if type(row) is Delivery:
        return [row[0], row[1], Raw(row[3]), row[2]]
    return [row[0], row[1], Raw(row[-1])]


def argument(values: list[Any], at: int) -> Any:
    return values[at] if at < len(values) else None


def _only_token(values: list[Any], at: int, what: str) -> Any:
    return split_token(argument(values, at), what, only=True)[1]


class TubeCalls:
    """Handlers of one tube."""

    def __init__(self, tube: EngineTube, limits: ClientBounds) -> None:
        self.tube = tube
        self.payload_bytes_max = limits.payload_bytes_max
        self.nesting_max = limits.nesting_max

    def handlers(self) -> Iterator[tuple[str, Handler]]:
        yield "put", self._put_handler()
        yield "take", self._take_handler()
        yield "ack", self._ack_handler()
        for name in (
            "release",
            "touch",
            "peek",
            "bury",
            "kick",
            "delete",
            "truncate",
            "release_all",
            "drop",
            "grant",
            "grant_role",
            "revoke",
            "revoke_role",
            "on_task_change",
            "put_many",
            "take_many",
            "ack_many",
            "release_many",
        ):
            yield name, getattr(self, name)

    def check_payload(self, data: bytes) -> None:
        if len(data) > self.payload_bytes_max:
            raise QueueError(
                ER_TUPLE_TOO_LARGE,
                f"Failed to allocate {len(data)} bytes for tuple: tuple is too large. "
                f"Check 'payload_bytes_max' ({self.payload_bytes_max})",
            )
        check_nesting(data, self.nesting_max)

    def _put_handler(self) -> Handler:
        put = self.tube.put
        size_max = self.payload_bytes_max
        check = self.check_payload

        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            data, opts = split_put(args)
            # A short string has nothing nested in it; 0xa0..0xbf and 0xd9 are strings.
            if data is not None and (data[0] != 0xD9 or len(data) > size_max):
                check(data)
            row = put(connection, ticket, data, opts)
            if type(row) is tuple:
                return task_reply(ticket >> 1, row[0], row[1], row[-1])
            return reply(ticket, row)

        return handle

    def _take_handler(self) -> Handler:
        take = self.tube.take

        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            if args[0] < 0x92:
                row = take(connection, ticket, take_timeout(args))
            else:
                values = plain(args)
                token = wants_token(argument(values, 1))
                row = take(connection, ticket, argument(values, 0), token)
            if type(row) is tuple:
                return task_reply(ticket >> 1, row[0], row[1], row[-1])
            return reply(ticket, row)

        return handle

    def _ack_handler(self) -> Handler:
        ack = self.tube.ack

        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            try:
                row = ack(connection, first_id(args))
            except FallThrough:
                values = plain(args)
                row = ack(connection, argument(values, 0), _only_token(values, 1, "ack"))
            return task_reply(ticket >> 1, row[0], row[1], row[-1])

        return handle

    def release(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        options, token = split_token(argument(values, 1), "release", only=False)
        return reply(ticket, self.tube.release(connection, argument(values, 0), options, token))

    def touch(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        token = _only_token(values, 2, "touch")
        row = self.tube.touch(connection, argument(values, 0), argument(values, 1), token)
        return reply(ticket, row)

    def peek(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, self.tube.peek(argument(plain(args), 0)))

    def bury(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        options, token = split_token(argument(values, 1), "bury", only=False)
        return reply(ticket, self.tube.bury(connection, argument(values, 0), options, token))

    def kick(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, self.tube.kick(connection, argument(plain(args), 0)))

    def delete(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, self.tube.delete(connection, argument(plain(args), 0)))

    def truncate(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, self.tube.truncate(connection))

    def release_all(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, self.tube.release_all(connection))

    def drop(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        return reply(ticket, admin.drop_tube(self.tube.engine, self.tube))

    def grant(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        grants.grant(self.tube.engine, self.tube, argument(values, 0), argument(values, 1))
        return reply(ticket, EMPTY)

    def grant_role(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        grants.grant(self.tube.engine, self.tube, argument(values, 0), argument(values, 1), True)
        return reply(ticket, EMPTY)

    def revoke(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        engine, who, what = self.tube.engine, argument(values, 0), argument(values, 1)
        return reply(ticket, grants.revoke(engine, self.tube, who, what))

    def revoke_role(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        engine, who, what = self.tube.engine, argument(values, 0), argument(values, 1)
        return reply(ticket, grants.revoke(engine, self.tube, who, what, True))

    def on_task_change(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        raise failure(
            "on_task_change takes code inside the node: set it as module:function in its "
            "configuration"
        )

    def put_many(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        items, common = split_put_many(args)
        size_max = self.payload_bytes_max
        for data, _ in items:
            if data[0] != 0xD9 or len(data) > size_max:
                self.check_payload(data)
        return reply(ticket, batches.put_many(self.tube, connection, items, common))

    def take_many(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        timeout = argument(values, 1)
        token = wants_token(argument(values, 2))
        rows = batches.take_many(
            self.tube,
            connection,
            ticket,
            argument(values, 0),
            0 if timeout is None else timeout,
            token,
        )
        return reply(ticket, rows)

    def ack_many(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        rows = batches.ack_many(self.tube, connection, argument(plain(args), 0))
        return reply(ticket, rows)

    def release_many(self, connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        rows = batches.release_many(self.tube, connection, argument(values, 0), argument(values, 1))
        return reply(ticket, rows)
