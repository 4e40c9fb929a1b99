"""`box.space.NAME:method` of tubes that keep records, and `xqueue.upgrade`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tandemq.model.errors import failure
from tandemq_server.engine import admin
from tandemq_server.engine import reading as spaces
from tandemq_server.engine.clients import EMPTY, PENDING
from tandemq_server.facades.xqueue.tube import RecordTube
from tandemq_server.node.core.calls import Handler, argument, reply
from tandemq_server.node.core.facade import Facade
from tandemq_server.node.core.space_calls import asked
from tandemq_server.wire.arguments import check_nesting, plain
from tandemq_server.wire.replies import values_reply

if TYPE_CHECKING:
    from tandemq_server.engine.tube import EngineTube
    from tandemq_server.node.core.connection import Connection
    from tandemq_server.node.core.core import Core

PREFIX, UPGRADE = "box.space.", "xqueue.upgrade"
#: Calls of the tube as a whole, under their usual names; those on tasks are the facade's.
OF_EVERY_TUBE = frozenset(
    {"drop", "pause", "resume", "release_all", "grant", "grant_role", "revoke", "revoke_role"}
)
READING = frozenset({"wait", "stats", "get", "select", "len", "count"})


def _handlers(core: Core, tube: RecordTube) -> Iterator[tuple[str, Handler]]:
    """Handlers of one tube by their whole names."""
    prefix = f"{PREFIX}{tube.name}:"
    calls: dict[str, Callable[[Connection, int, list[Any]], Any]] = {
        "put": lambda c, t, a: tube.put_record(c, t, argument(a, 0), argument(a, 1)),
        "take": lambda c, t, a: tube.take_record(c, t, a[0] if a else 0, argument(a, 1)),
        "ack": lambda c, _, a: tube.ack_record(c, argument(a, 0), argument(a, 1)),
        "release": lambda c, _, a: tube.release_record(c, argument(a, 0), argument(a, 1)),
        "bury": lambda c, _, a: tube.bury_record(c, argument(a, 0), argument(a, 1)),
        "touch": lambda c, _, a: tube.touch_record(c, argument(a, 0), argument(a, 1)),
        "dig": lambda c, _, a: tube.dig(c, argument(a, 0), argument(a, 1)),
        "kick": lambda c, _, a: tube.dig(c, argument(a, 0), argument(a, 1)),
        "kill": lambda c, _, a: tube.kill(c, argument(a, 0)),
        "wait": lambda c, t, a: tube.wait_record(c, t, argument(a, 0), argument(a, 1)),
        "stats": lambda _c, _t, a: tube.stats(argument(a, 0)),
        "truncate": lambda c, _t, _a: tube.truncate(c),
        "drop": lambda _c, _t, _a: admin.drop_tube(core.engine, tube),
    }

    def bound(call: Callable[[Connection, int, list[Any]], Any]) -> Handler:
        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            if len(args) > core.limits.payload_bytes_max:
                raise failure(f"the call is larger than {core.limits.payload_bytes_max} bytes")
            check_nesting(args, core.limits.nesting_max)
            outcome = call(connection, ticket, plain(args))
            return None if outcome is PENDING else reply(ticket, outcome)

        return handle

    for name, call in calls.items():
        yield prefix + name, bound(call)

    def reader(read: Callable[[list[Any]], list[Any]]) -> Handler:
        def handle(_connection: Connection, ticket: int, args: bytes) -> bytes | None:
            return values_reply(ticket >> 1, read(plain(args)), bool(ticket & 1))

        return handle

    yield prefix + "get", reader(lambda a: _select(tube, argument(a, 0), {"limit": 1}))
    yield (
        prefix + "select",
        reader(lambda a: [_select(tube, argument(a, 0), argument(a, 1) or {})]),
    )
    yield prefix + "len", reader(lambda _: [len(tube.space.rows)])
    yield prefix + "count", reader(lambda a: [len(_select(tube, argument(a, 0), {}))])


def _select(tube: RecordTube, key: Any, opts: Any) -> list[list[Any]]:
    key, iterator, offset, limit = asked([key, opts], "select")
    return spaces.select(tube.engine, tube.space, 0, key, iterator, offset, limit)


def _upgrade(core: Core) -> Handler:
    """`xqueue.upgrade(name, options)`: declare a tube; the same declaration again changes nothing.

    The declaration is a logged row, so a call on every start and every node is not needed.
    """

    def handle(_connection: Connection, ticket: int, args: bytes) -> bytes | None:
        values = plain(args)
        name, opts = argument(values, 0), argument(values, 1)
        existing = core.engine.tubes.get(name) if type(name) is str else None
        if existing is None:
            admin.create_tube(core.engine, name, "xqueue", opts)
        elif not isinstance(existing, RecordTube):
            raise failure(f"Space '{name}' already exists and is not an xqueue")
        else:
            full = {"if_not_exists": False, **(opts if type(opts) is dict else {})}
            if existing.inner.check_options(full) != existing.opts:
                raise failure(f"xqueue {name} is declared with other options: drop it first")
        return reply(ticket, EMPTY)

    return handle


def _of_tube(core: Core, tube: EngineTube, usual: dict[str, Handler]) -> dict[str, Handler]:
    if not isinstance(tube, RecordTube):
        return usual
    kept = {name: one for name, one in usual.items() if name.rpartition(":")[2] in OF_EVERY_TUBE}
    return {**kept, **dict(_handlers(core, tube))}


def _reads(call: str) -> bool | None:
    if call.startswith(PREFIX):
        return call.rpartition(":")[2] in READING
    return False if call == UPGRADE else None


FACADE = Facade(lambda core: {UPGRADE: _upgrade(core)}, _reads, of_tube=_of_tube)
