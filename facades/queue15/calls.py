"""Calls of the Tarantool-1.5 queue API: `queue15.*` always, `queue.*` where that dialect is spoken.

Handlers as in node/core/calls.py. What a call means stands in spaces.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import ER_NO_SUCH_PROC, ER_TUPLE_TOO_LARGE, QueueError
from tandemq_server.facades.queue15 import spaces
from tandemq_server.facades.queue15.spaces import Space15
from tandemq_server.node.core.calls import Handler, argument, reply
from tandemq_server.node.core.facade import Facade
from tandemq_server.node.core.module_calls import must_fill
from tandemq_server.wire.arguments import check_nesting, plain
from tandemq_server.wire.fields import split_fields
from tandemq_server.wire.replies import values_reply

if TYPE_CHECKING:
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

PREFIX = "queue15."
#: Calls that touch no space that is there.
OF_NO_SPACE = frozenset({"create_space"})
#: Answered by a node that is not RUNNING from its own copy.
READING = frozenset({"peek", "meta", "statistics", "statistic", "restart_check"})


def _handlers(core: Core) -> dict[str, Handler]:
    """Names to handlers, bound to `core`."""
    engine = core.engine

    def simple(operation: Callable[[Space15, list[Any]], Any]) -> Handler:
        """space, then what `operation` wants of the other arguments."""

        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            values = plain(args)
            space = Space15(engine, connection, argument(values, 0))
            return reply(ticket, operation(space, values[1:]))

        return handle

    def by_id(operation: Callable[[Space15, Any], Any]) -> Handler:
        return simple(lambda space, values: operation(space, argument(values, 0)))

    def producer(operation: Callable[[Space15, list[Any], bytes], Any]) -> Handler:
        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            values, data = split_fields(args, 6)
            _check_fields(core, data)
            space = Space15(engine, connection, values[0])
            return reply(ticket, operation(space, values[1:], data))

        return handle

    def done(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values, data = split_fields(args, 2)
        _check_fields(core, data)
        return reply(ticket, Space15(engine, connection, values[0]).done(values[1], data))

    def take(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        space = Space15(engine, connection, argument(values, 0))
        return reply(ticket, space.take(ticket, argument(values, 1), argument(values, 2)))

    def statistics(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        found = spaces.statistics(engine, connection, argument(values, 0), argument(values, 1))
        return values_reply(ticket >> 1, [found], bool(ticket & 1))

    def create_space(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        number, opts = (*plain(args), None, None)[:2]
        must_fill(core, connection, opts)
        return reply(ticket, spaces.create_space(engine, number, opts))

    calls = {
        "put": producer(Space15.put),
        "urgent": producer(lambda space, values, data: space.put(values, data, urgent=True)),
        "put_unique": producer(Space15.put_unique),
        "take": take,
        "ack": by_id(Space15.ack),
        "release": simple(lambda space, values: space.release(*(values + [None] * 3)[:3])),
        "requeue": by_id(Space15.requeue),
        "bury": by_id(Space15.bury),
        "done": done,
        "touch": by_id(Space15.touch),
        "dig": by_id(Space15.dig),
        "unbury": by_id(Space15.dig),
        "kick": simple(lambda space, values: space.kick(*(values + [None] * 2)[:2])),
        "delete": by_id(Space15.delete),
        "truncate": by_id(Space15.truncate),
        "peek": by_id(Space15.peek),
        "meta": by_id(Space15.meta),
        "statistics": statistics,
        "statistic": statistics,
        # A start looks after what was taken; there is nothing left to begin.
        "restart_check": simple(lambda _space, _values: "already started"),
        "create_space": create_space,
    }
    return {PREFIX + name: _checked(core, name, handler) for name, handler in calls.items()}


def _in_some_space(core: Core, user: str, call: str) -> bool:
    """Whether a user may make this call in a space; which one, only its arguments tell."""
    name = call.removeprefix(PREFIX)
    if name == call or call not in core.handlers or name in OF_NO_SPACE:
        return False
    return any(
        core.may(user, f"{PREFIX}{tube.name}:{name}")
        for tube in core.engine.tubes.values()
        if tube.type == "queue15"
    )


def _checked(core: Core, name: str, handler: Handler) -> Handler:
    """For users who may make the call everywhere (`queue15.put`) or in the space it names
    (`queue15.space0:put`).
    """
    everywhere = PREFIX + name
    if name in OF_NO_SPACE:
        return handler

    def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
        if not core.may(connection.user, everywhere):
            space = spaces.named(split_fields(args, 1)[0][0])
            if space is None or not core.may(connection.user, f"{PREFIX}{space}:{name}"):
                core.must(connection, everywhere)
        return handler(connection, ticket, args)

    return handle


def _check_fields(core: Core, data: bytes) -> None:
    limit = core.limits.payload_bytes_max
    if len(data) > limit:
        raise QueueError(
            ER_TUPLE_TOO_LARGE,
            f"Failed to allocate {len(data)} bytes for tuple: tuple is too large. "
            f"Check 'payload_bytes_max' ({limit})",
        )
    check_nesting(data, core.limits.nesting_max)


def _in_dialect(dialect: str, call: str, known: Mapping[str, Handler]) -> str:
    """The full name of what a connection of this dialect calls by `call`.

    Raises 33 for a call that only the other dialect has.
    """
    if not call.startswith("queue."):
        return call
    other = PREFIX + call.removeprefix("queue.")
    if other not in known:
        return call
    if dialect == "queue15":
        return other
    if call in known:
        return call
    raise QueueError(
        ER_NO_SUCH_PROC,
        f"Procedure '{call}' is not defined in the dialect tube, which this connection speaks: "
        f"call {other}, or set dialect: queue15 for its user or listener",
    )


def _reads(call: str) -> bool | None:
    return call.removeprefix(PREFIX) in READING if call.startswith(PREFIX) else None


FACADE = Facade(_handlers, _reads, renamed=_in_dialect, in_part=_in_some_space)
