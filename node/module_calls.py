"""Calls of the module and of `box`, as far as clients, pools and operators need them.

Each is `f(connection, ticket, raw arguments) -> encoded reply or None`, like the calls of a tube.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine import admin
from engine.clients import EMPTY
from model.errors import failure
from model.raw import raw_str
from node.calls import Handler, argument, reply
from wire.arguments import plain
from wire.greeting import instance_uuid
from wire.replies import values_reply

if TYPE_CHECKING:
    from node.connection import Connection
    from node.core import Core

VERSION = "1.5.0"


def handlers(core: Core) -> dict[str, Handler]:
    """Names to handlers, bound to `core`."""
    engine = core.engine

    def simple(operation: Callable[[Connection, list[Any]], Any]) -> Handler:
        def handle(connection: Connection, ticket: int, args: bytes) -> bytes | None:
            outcome = operation(connection, plain(args))
            if type(outcome) is list:
                return values_reply(ticket >> 1, [outcome], bool(ticket & 1))
            return reply(ticket, outcome)

        return handle

    def create(_connection: Connection, args: list[Any]) -> Any:
        tube = admin.create_tube(engine, argument(args, 0), argument(args, 1), argument(args, 2))
        return admin.describe(tube)

    def cfg(_connection: Connection, args: list[Any]) -> Any:
        admin.cfg(engine, argument(args, 0))
        return EMPTY

    def identify(connection: Connection, args: list[Any]) -> Any:
        return raw_str(engine.sessions.identify(connection, session_uuid(argument(args, 0))))

    def register_driver(_connection: Connection, args: list[Any]) -> Any:
        if argument(args, 0) in engine.drivers:
            raise failure(f'overriding registered driver "{args[0]}"')
        raise failure(
            'tube control methods must contain functions "create_space" and "new": drivers are '
            "Python classes named under `drivers:` in the node's configuration"
        )

    def statistics(_connection: Connection, args: list[Any]) -> Any:
        return admin.statistics(engine, argument(args, 0))

    return {
        "queue.create_tube": simple(create),
        "queue.cfg": simple(cfg),
        "queue.identify": simple(identify),
        "queue.register_driver": simple(register_driver),
        "queue.statistics": simple(statistics),
        "queue.stats": simple(statistics),
        "queue.state": simple(lambda _connection, _args: core.state),
        "queue.tube": simple(lambda _c, args: admin.tube_names(engine, argument(args, 0))),
        "box.info": simple(lambda _connection, _args: info(core)),
        "box.session.id": simple(lambda connection, _args: connection.id),
        "box.session.user": simple(lambda connection, _args: connection.user),
    }


def session_uuid(value: Any) -> bytes | None:
    """The argument of identify: 16 bytes, sent as str or bin; None when left out."""
    if value is None or type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode("utf-8", "surrogateescape")
    raise failure("Invalid UUID format.")


def info(core: Core) -> dict[str, Any]:
    """`box.info`: what connectors' pools look at, and a little more."""
    identity = core.identity
    lsn = core.engine.lsn
    uuid = instance_uuid(identity.node_id)
    return {
        "version": f"{identity.version}-0-gtandemq",
        "id": 1,
        "ro": core.state != "RUNNING",
        "status": "running",
        "uuid": uuid,
        "name": identity.name,
        "package": "Tarantool",
        "cluster": {"uuid": identity.cluster_id},
        "listen": identity.listen,
        "pid": identity.pid,
        "uptime": max(0, core.engine.now - core.started_us) // 1_000_000,
        "lsn": lsn,
        "signature": lsn,
        "vclock": {1: lsn},
        "replication": {1: {"id": 1, "uuid": uuid, "lsn": lsn}},
        "queue": {
            "state": core.state,
            "term": core.term,
            "commit_lsn": core.commit_lsn,
            "promise": core.promise(),
            "master": _master(core),
        },
    }


def _master(core: Core) -> dict[str, str] | None:
    """Which node serves, and where clients reach it; None when this one cannot tell."""
    if core.state == "RUNNING":
        return {"name": core.identity.name, "address": core.identity.listen}
    other = core.other_master()
    return {"name": other[0], "address": other[1]} if other is not None else None


__all__ = ["VERSION", "handlers", "info", "session_uuid"]
